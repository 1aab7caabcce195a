"""What a model file on disk must look like, and what it is called.

A model may be cut into parts `name-00001-of-00003.gguf`; llama.cpp is given the first one and
finds the others beside it.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from slotgate.capacity.header import part_names
from slotgate.errors import ModelError

GGUF_MAGIC = b"GGUF"
# Magic, version, number of tensors, number of metadata entries.
GGUF_HEADER_BYTES = 24
NAME_LENGTH = 64

SPLIT = re.compile(r"^(?P<stem>.*)-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
# What packers append to a model's name: its quantisation, and the words gguf and imatrix.
QUANTISATION = re.compile(
    r"(?:UD[-_.])?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_[A-Z]+)?|BF16|F16|FP16|F32|FP32)",
    re.IGNORECASE,
)
_SUFFIX = re.compile(rf"[-_.](?:{QUANTISATION.pattern}|gguf|imatrix|imat)$", re.IGNORECASE)


def short_name(path: Path | PurePosixPath) -> str:
    """The name that clients use for the model in this file: its stem, without quantisation."""
    split = SPLIT.match(path.name)
    name = split["stem"] if split else path.stem
    while (shorter := _SUFFIX.sub("", name)) != name and shorter:
        name = shorter
    return name.lower()[:NAME_LENGTH].rstrip("-_. ") or "model"


def check_gguf(path: Path) -> None:
    """Raise ModelError unless the file begins like a GGUF file and is long enough for a header."""
    try:
        with path.open("rb") as file:
            head = file.read(GGUF_HEADER_BYTES)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(head) < GGUF_HEADER_BYTES or not head.startswith(GGUF_MAGIC):
        found = "an empty file" if not head else f"a file that begins with {head[:8]!r}"
        raise ModelError(
            f"{path}: not a GGUF model but {found}; llama.cpp needs a .gguf file "
            "(if it was downloaded, it may be an error page or cut short: fetch it again)"
        )


def find_model_file(path: Path) -> Path:
    """Check a model that the user named, all its parts included; return the file to load."""
    if path.is_dir():
        raise ModelError(f"{path}: a directory; name one file{_files_in(path)}")
    if not path.exists():
        raise ModelError(f"{path}: no such file{_files_in(path.parent)}")
    names = part_names(path.name)
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise ModelError(
            f"{path}: {len(missing)} of its {len(names)} parts are missing, "
            f"the first of them {missing[0]}; put all parts into {path.parent}"
        )
    for name in names:
        check_gguf(path.parent / name)
    return path.parent / names[0]


def _files_in(directory: Path) -> str:
    if not directory.is_dir():
        return ""
    names = sorted(entry.name for entry in directory.glob("*.gguf"))[:5]
    return f" (it is beside: {', '.join(names)})" if names else ""
