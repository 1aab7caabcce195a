"""Popular models by name: the keys of their headers, for a plan without a file.

A name is found in any case, with any separators, with or without an organisation before it or a
quantisation behind it: `Llama-3.1-8B`, `llama 3.1 8b` and `meta-llama/Llama-3.1-8B-Instruct-Q4_K_M`
are one model.  A variant of another shape or context (`-2507`) is not taken for its relative.

The catalog is data of this package, `catalog.json`; where each shape comes from is said there by
letter, and what was compared with nothing (M) is named in `unchecked`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slotgate.capacity.metadata import Meta

_FILE = "catalog.json"
# What stands behind a model's name and does not change its shape.
_BLOCKS = r"i?q[1-8](?:[-_.]?(?:[0-9]|k|xxs|xs|xl|nl|s|m|l))*"
_QUANTISED = rf"(?:ud[-_.])?(?:{_BLOCKS}|bf16|fp?16|fp?32|mxfp4)"
_BEHIND = re.compile(rf"[\W_]+(?:{_QUANTISED}|gguf|imatrix|qat|hf)$")
_TUNED = re.compile(r"(?<![a-z])(?:instruct|it|chat|base)(?![a-z])")
_MAKER = re.compile(r"^meta[\W_]+")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])[\W_]+(?=[0-9])")
_SEPARATORS = re.compile(r"(?<![0-9])-|-(?![0-9])|[^a-z0-9-]")
_SUGGESTIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One shape and the names it is known by.

    `meta`: the keys of its header.
    `sources`: letters of `sources_in_words`.
    `unchecked`: which values were compared with nothing; "" if none.
    `note`: what is special about the shape.
    `tied_embeddings`: whether the output matrix is the token embedding.
    """

    name: str
    also: tuple[str, ...]
    meta: Meta
    sources: str
    unchecked: str
    note: str
    tied_embeddings: bool


def names() -> tuple[str, ...]:
    """The models' own names, in the catalog's order."""
    return tuple(entry.name for entry in _catalog().entries)


def find(name: str) -> CatalogEntry:
    """The entry of a model's name; ConfigError with the nearest names if there is none."""
    entry = lookup(name)
    if entry is None:
        raise ConfigError(f"no model {name!r} in the catalog{_meant(name)}")
    return entry


def lookup(name: str) -> CatalogEntry | None:
    """The same without a complaint."""
    known = _catalog().by_key
    return next((known[key] for key in _keys(name) if key in known), None)


def sources_in_words(entry: CatalogEntry) -> tuple[str, ...]:
    """Where an entry's values come from."""
    return tuple(_catalog().sources[letter] for letter in entry.sources)


@dataclass(frozen=True, slots=True)
class _Catalog:
    entries: tuple[CatalogEntry, ...]
    sources: Mapping[str, str]
    # Key of a name -> its entry.
    by_key: Mapping[str, CatalogEntry]


@cache
def _catalog() -> _Catalog:
    content = json.loads(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    entries = tuple(
        CatalogEntry(
            name=model["name"],
            also=tuple(model.get("also", ())),
            meta=MappingProxyType(model["meta"]),
            sources=model["sources"],
            unchecked=model.get("unchecked", ""),
            note=model.get("note", ""),
            tied_embeddings=model["tied_embeddings"],
        )
        for model in content["models"]
    )
    by_key = {_key(name): entry for entry in entries for name in (entry.name, *entry.also)}
    return _Catalog(entries, MappingProxyType(content["sources"]), MappingProxyType(by_key))


def _keys(name: str) -> Iterator[str]:
    """The keys that a name may be known by: as it is, without its path, without its ending."""
    yield _key(name)
    plain = name.strip().lower().rsplit("/", 1)[-1]
    while True:
        yield _key(plain)
        shorter = _BEHIND.sub("", plain)
        if shorter == plain:
            return
        plain = shorter


def _key(name: str) -> str:
    """A name without case, separators and tuning; digits stay apart where they were apart."""
    text = _TUNED.sub("", _MAKER.sub("", name.strip().lower()))
    return _SEPARATORS.sub("", _BETWEEN_DIGITS.sub("-", text))


def _meant(name: str) -> str:
    """The nearest names, as a question."""
    by_key = _catalog().by_key
    close = get_close_matches(_key(name), by_key, n=_SUGGESTIONS, cutoff=0.5)
    nearest = dict.fromkeys(by_key[key].name for key in close)
    return f"; did you mean {' or '.join(nearest)}?" if nearest else ""
