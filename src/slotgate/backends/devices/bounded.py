"""Asks another program for a few lines, and does not wait for ever.

A driver that is stuck holds whoever calls it inside the kernel, where not even a kill ends it, so
drivers are asked in a process of their own, and one that does not end is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from slotgate.errors import SlotgateError

if TYPE_CHECKING:
    from collections.abc import Sequence

# The driver of a machine with many cards takes seconds to wake where nothing keeps it awake.
TIMEOUT_SECONDS = 15.0
_GOODBYE_SECONDS = 1.0


class NoAnswerError(SlotgateError):
    """The program did not answer; the message says why, and begins with a verb."""


def ask(argv: Sequence[str], *, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """Return what the program prints; NoAnswerError if it fails, or takes too long."""
    process = _start(argv)
    try:
        said, complained = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired as late:
        raise NoAnswerError(f"did not answer within {timeout_seconds:g} s") from late
    finally:
        if process.returncode is None:
            _leave(process)
    if process.returncode < 0:
        raise NoAnswerError(f"was ended by signal {-process.returncode}")
    if process.returncode > 0:
        raise NoAnswerError(f"failed: {_last_line(complained or said)}")
    return said.decode("utf-8", "replace")


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        # A session of its own, so that what it starts can be ended with it.
        return subprocess.Popen(  # noqa: S603 our own argv, never a user's
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswerError(f"cannot be run: {error.strerror}") from error


def _leave(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started; wait for it a moment, but not for whoever holds its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GOODBYE_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:200] if lines else "without a word"
