"""Runs a program that must not outlive the gateway.

    python -m slotgate.backends.guardian [--supervise] --parent PID -- PROGRAM ARGUMENTS...

On Linux it asks the kernel to kill it with its parent and becomes the program (the request
survives exec).  Elsewhere, or with `--supervise`, it stays: it starts the program, hands on
SIGTERM, and kills it when its own standard input ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading

from slotgate.backends.orphan import die_with, watch_lifeline

CANNOT_RUN = 126
_STDIN = 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="guardian")
    parser.add_argument("--supervise", action="store_true")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    if sys.platform == "linux" and not options.supervise:
        die_with(options.parent)
        return _become(options.command)
    return _supervise(options.command)


def _become(command: list[str]) -> int:
    # Python ignores these two, and exec would hand that on.
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - the user's own llama-server
    except OSError as error:
        return _say_why(command[0], error)


def _supervise(command: list[str]) -> int:
    running: list[subprocess.Popen[bytes]] = []
    # Before the start, lest a SIGTERM in between leaves the program behind.
    signal.signal(signal.SIGTERM, lambda *_: _end(running))
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603
    except OSError as error:
        return _say_why(command[0], error)
    running.append(child)
    threading.Thread(
        target=watch_lifeline, args=(_STDIN, child.kill), name="lifeline", daemon=True
    ).start()
    status = child.wait()
    # Like a shell: 128 + the signal that ended it.
    return status if status >= 0 else 128 - status


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    for child in running:
        child.terminate()


def _say_why(program: str, error: OSError) -> int:
    print(f"{program}: cannot be run: {error.strerror}", flush=True)  # noqa: T201
    return CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
