"""A directory for a socket: for us alone, and gone even if we are killed, at the next start.

    <tmp>/slotgate-<random>/
    ├── owner           locked as long as its gateway lives
    └── engine.sock

A lock ends with its process, however that ends.  So whoever can take the lock of another's
directory knows that its gateway is gone, and removes it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from slotgate.errors import ConfigError

PREFIX = "slotgate-"
# A directory this young may not have been locked yet.
YOUNG_SECONDS = 60.0
# The path of a socket has room for 104 bytes on some systems, its end included.
MAX_PATH_BYTES = 103
SOCKET = "engine.sock"


class PrivateDirectory:
    """The path is chosen once and stays the same over `make` and `remove`."""

    def __init__(self, parent: Path | None = None) -> None:
        self.path = (parent or Path(tempfile.gettempdir())) / f"{PREFIX}{secrets.token_hex(6)}"
        self._owner: BinaryIO | None = None

    @property
    def socket(self) -> Path:
        return self.path / SOCKET

    def make(self) -> None:
        """Make it, unless it is there; remove what killed gateways left beside it.

        Raises ConfigError if that cannot be done safely.
        """
        if len(os.fsencode(self.socket)) > MAX_PATH_BYTES:
            raise ConfigError(f"{self.socket}: too long for a socket; set TMPDIR to a shorter path")
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if not _is_private(self.path):
                raise ConfigError(
                    f"{self.path}: it is not ours alone; set TMPDIR to a directory of yours"
                )
            if self._owner is None:
                self._owner = (self.path / "owner").open("ab")
                fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"{self.path}: no directory for the engine's socket: {error.strerror}; "
                "set TMPDIR to a directory that can be written"
            ) from error
        self._sweep()

    def remove(self) -> None:
        if self._owner is not None:
            self._owner.close()
            self._owner = None
        shutil.rmtree(self.path, ignore_errors=True)

    def _sweep(self) -> None:
        now = self.path.stat().st_mtime
        for other in self.path.parent.glob(f"{PREFIX}*"):
            with suppress(OSError):
                if other != self.path and now - other.stat().st_mtime > YOUNG_SECONDS:
                    _remove_if_abandoned(other)


def _is_private(path: Path) -> bool:
    status = path.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return ours and not status.st_mode & 0o077


def _remove_if_abandoned(directory: Path) -> None:
    if not _is_private(directory):
        return
    with (directory / "owner").open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
