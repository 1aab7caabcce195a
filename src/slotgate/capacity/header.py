"""The header of a GGUF model: what it says of itself, and its table of tensors.

    magic "GGUF" | version u32 | tensors u64 | entries u64 | the entries | the table of tensors

All numbers are little-endian.  Of a model that is cut into parts (`x-00001-of-00003.gguf`) the
first holds the metadata, and each a table of its own tensors; any of their names will do.

Rule 1: only headers are read, so a model may lie on a server: `opener` opens it by its name, and
        the file is read forward in large blocks (see `gguf_cursor`).
Rule 2: what llama.cpp refuses is refused here, as far as it can be seen in a header.  Every
        failure is a `HeaderError`, and a hostile file costs neither much memory nor much time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from slotgate.capacity.gguf_cursor import Cursor
from slotgate.capacity.gguf_tensors import MAX_TENSORS, Table, Tensor, read_tensors
from slotgate.capacity.gguf_values import Skipped, Value, read_meta
from slotgate.errors import HeaderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Opener = Callable[[str, str], IO[Any]]

__all__ = ["Header", "Skipped", "Tensor", "Value", "part_names", "read_header"]

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_ALIGNMENT: Final = 32
# As llama.cpp writes it, and no other way: it finds the other parts by it.
_PART = re.compile(r"^(?P<stem>.*)-\d{5}-of-(?P<parts>\d{5})\.gguf$", re.DOTALL)


class PathLike(Protocol):
    """What `open` takes besides a string."""

    def __fspath__(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A model's header; of a split model, all parts taken together.

    `path` is the file that llama.cpp is to be given, the first part.
    `n_bytes` is how much all files must have, by their tables.
    """

    path: str
    version: int
    alignment: int
    meta: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    n_bytes: int


class _File(NamedTuple):
    """The header of one file."""

    version: int
    alignment: int
    meta: dict[str, Value]
    table: Table


def read_header(path: str | PathLike, *, opener: Opener = open) -> Header:
    """Read a model's header; `opener(name, "rb")` opens each of its files.

    Raises HeaderError, whatever is wrong with the file or its opener.
    """
    name = path if isinstance(path, str) else path.__fspath__()
    names = part_names(name)
    first = _read_file(names[0], 1, opener)
    parts = _checked_parts(first.meta, name, names)
    tables = [first.table]
    for number in range(2, parts + 1):
        tables.append(_read_further(names[number - 1], number, parts, opener))
        if sum(len(table.tensors) for table in tables) > MAX_TENSORS:
            raise HeaderError(f"{names[0]}: its parts have more than {MAX_TENSORS:,} tensors")
    return Header(
        path=names[0],
        version=first.version,
        alignment=first.alignment,
        meta=MappingProxyType(first.meta),
        tensors=_joined(tables, first.meta, names[0]),
        n_bytes=sum(table.n_bytes for table in tables),
    )


def part_names(name: str) -> tuple[str, ...]:
    """The names of all parts that belong to this file, in order; only itself if it is whole."""
    found = _PART.match(name)
    if not found:
        return (name,)
    parts = int(found["parts"])
    numbers = range(1, max(parts, 1) + 1)
    return tuple(f"{found['stem']}-{n:05d}-of-{parts:05d}.gguf" for n in numbers)


def _checked_parts(meta: Mapping[str, Value], name: str, names: tuple[str, ...]) -> int:
    """How many parts the model has; what its name says must agree."""
    count = meta.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        if name != names[0]:
            raise HeaderError(f"{name}: its first part, {names[0]}, says that it is a whole model")
        return 1
    if count != len(names):
        raise HeaderError(f"{name}: its header speaks of {count} parts, its name of {len(names)}")
    if meta.get("split.no") != 0:
        raise HeaderError(f"{names[0]}: named as the first part, but its header denies it")
    return count


def _read_further(name: str, number: int, parts: int, opener: Opener) -> Table:
    try:
        file = _read_file(name, number, opener)
    except HeaderError as error:
        raise HeaderError(f"part {number} of {parts}: {error}") from error
    if file.meta.get("split.no") != number - 1:
        raise HeaderError(f"{name}: named as part {number}, but its header denies it")
    return file.table


def _joined(tables: list[Table], meta: Mapping[str, Value], name: str) -> tuple[Tensor, ...]:
    tensors = tuple(tensor for table in tables for tensor in table.tensors)
    if len(tables) > 1:
        if len({tensor.name for tensor in tensors}) < len(tensors):
            raise HeaderError(f"{name}: two of its parts have the same tensor")
        if (told := meta.get("split.tensors.count")) != len(tensors):
            raise HeaderError(f"{name}: its parts have {len(tensors)} tensors, not {told}")
    return tensors


# One file.


def _read_file(name: str, part: int, opener: Opener) -> _File:
    try:
        file = opener(name, "rb")
    except Exception as error:  # of whatever library the opener is
        why = getattr(error, "strerror", None) or error
        raise HeaderError(f"{name}: cannot be opened: {why}") from error
    with file:
        return _parse(Cursor(file, name), part)


def _parse(cursor: Cursor, part: int) -> _File:
    magic = cursor.take(len(_MAGIC))
    if magic != _MAGIC:
        raise cursor.error(f"no GGUF model: the file begins with {magic!r}")
    version = _checked_version(cursor)
    tensors, entries = cursor.u64(), cursor.u64()
    meta = read_meta(cursor, entries)
    alignment = _checked_alignment(cursor, meta)
    return _File(
        version, alignment, meta, read_tensors(cursor, tensors, alignment=alignment, part=part)
    )


def _checked_version(cursor: Cursor) -> int:
    version = cursor.u32()
    if version in _VERSIONS:
        return version
    if version == 1:
        raise cursor.error("GGUF version 1, which llama.cpp no longer reads; convert it again")
    if version & 0xFFFF == 0:
        raise cursor.error("a big-endian GGUF file; this machine needs a little-endian one")
    raise cursor.error(f"GGUF version {version:,}; versions 2 and 3 are known")


def _checked_alignment(cursor: Cursor, meta: Mapping[str, Value]) -> int:
    alignment = meta.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment <= 0:
        raise cursor.error("general.alignment is not a positive number")
    if alignment & (alignment - 1):
        raise cursor.error(f"general.alignment is {alignment}, not a power of two")
    return alignment
