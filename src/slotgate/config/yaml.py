"""Reads YAML into plain data, and remembers on which line each key stands.

Stricter than YAML 1.1, because a configuration file should have one meaning: duplicate keys and
tags are errors; only true and false are booleans (`no`, `on` and `off` are text); there are no
dates, no octal and no base-60 numbers, so `listen: 0:8080` stays what it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml as pyyaml

from slotgate.errors import ConfigError

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000

KeyPath = tuple[str | int, ...]

_TEXT_TAG = "tag:yaml.org,2002:str"
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?"
)
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(slots=True)
class Document:
    """Plain data, and where each part of it came from."""

    data: dict[str, Any] = field(default_factory=dict)
    # Key path -> "file:line", or the name of another source.
    sources: dict[KeyPath, str] = field(default_factory=dict)
    name: str = "configuration"

    def put(self, path: tuple[str, ...], value: object, source: str) -> None:
        """Set one key, whose value came from `source`."""
        place: Any = self.data
        for key in path[:-1]:
            inner = place.get(key)
            # A wrong type below is replaced only by what is set over it; the rest is checked later.
            inner = dict(inner) if isinstance(inner, dict) else {}
            place[key] = inner
            place = inner
        place[path[-1]] = value
        self.sources = {
            known: where for known, where in self.sources.items() if known[: len(path)] != path
        }
        self.sources[path] = source

    def source_of(self, path: KeyPath) -> str:
        """Say where `path` was set, or its nearest parent that was."""
        for length in range(len(path), 0, -1):
            if (source := self.sources.get(path[:length])) is not None:
                return source
        return self.name


def read_yaml(path: Path) -> Document:
    """Read a file; ConfigError names it, and the line."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "bad path"
        raise ConfigError(f"{path}: cannot be read: {why}") from None
    return parse_yaml(content, name=str(path))


def parse_yaml(content: bytes, *, name: str) -> Document:
    """Read the content of a file called `name`."""
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: is larger than 1 MiB, which no configuration is")
    try:
        text = content.decode("utf-8-sig")
        root = pyyaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8 text, at byte {error.start}") from None
    except pyyaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        raise ConfigError(f"{where}: not valid YAML: {error.problem or error.context}") from None
    except pyyaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {_first_line(error)}") from None
    except RecursionError:
        raise ConfigError(f"{name}: is nested too deeply") from None
    reader = _Reader(name)
    data = None if root is None else reader.read(root, ())
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:1: the file must be a mapping of settings, like `listen: ...`")
    return Document(data, reader.sources, name)


class _Loader(pyyaml.SafeLoader):
    """Resolves nothing: every plain scalar arrives as text, and any other tag was written out."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  the parent's attribute


class _Reader:
    """Turns nodes into data."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0
        self.sources: dict[KeyPath, str] = {}

    def read(self, node: pyyaml.Node, path: KeyPath) -> Any:
        self._nodes += 1
        # Aliases make small files large, and can contain themselves.
        if len(path) > MAX_DEPTH or self._nodes > MAX_NODES:
            self._fail(node, "is nested too deeply or too large")
        self.sources.setdefault(path, self._at(node))
        if isinstance(node, pyyaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, pyyaml.SequenceNode):
            self._refuse_tag(node, "tag:yaml.org,2002:seq")
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        self._refuse_tag(node, _TEXT_TAG)
        is_plain = isinstance(node, pyyaml.ScalarNode) and node.style is None
        return _plain(str(node.value)) if is_plain else str(node.value)

    def _mapping(self, node: pyyaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self._refuse_tag(node, "tag:yaml.org,2002:map")
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, pyyaml.ScalarNode):
                self._fail(key_node, "a key must be a word")
            key = str(key_node.value)
            if key in result:
                first = self.sources[(*path, key)].rpartition(":")[2]
                self._fail(key_node, f"{dotted((*path, key))} is set twice, first on line {first}")
            self.sources[(*path, key)] = self._at(key_node)
            result[key] = self.read(value_node, (*path, key))
        return result

    def _refuse_tag(self, node: pyyaml.Node, tag: str) -> None:
        if node.tag != tag:
            self._fail(node, "YAML tags (words with !) have no meaning here")

    def _at(self, node: pyyaml.Node) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"

    def _fail(self, node: pyyaml.Node, why: str) -> NoReturn:
        raise ConfigError(f"{self._at(node)}: {why}")


def _plain(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def dotted(path: KeyPath) -> str:
    """Write a key path: `backends[0].url`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    # A key may hold anything that YAML can write; a message stays on its line.
    return text.removeprefix(".") if text.isprintable() else ascii(text)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
