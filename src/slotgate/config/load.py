"""File, environment and command line, laid over each other and checked as one.

Later layers win: the file, then `SLOTGATE_...` variables, then the command line's options.
Whatever is wrong becomes one `ConfigError` that lists every fault with its key and its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slotgate.config.describe import environment_names
from slotgate.config.explain import explain
from slotgate.config.keys import Sources
from slotgate.config.settings import Settings
from slotgate.config.yaml import Document, read_yaml
from slotgate.errors import ConfigError

COMMAND_LINE = "command line"


def load_settings(
    path: Path | None,
    *,
    overrides: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> Settings:
    """Read, merge and check all settings.

    `overrides` come from the command line: each key is a setting's path with dots, like
    `queue.max_waiting`, and None means not given.  Relative paths in the file start from the
    file's directory; those in `overrides` should be absolute.  Raises ConfigError.
    """
    document = read_yaml(path) if path is not None else Document()
    env = env or {}
    for key, name in environment_names(Settings).items():
        if name in env:
            document.put(key, env[name], f"environment variable {name}")
    for dotted, value in (overrides or {}).items():
        if value is not None:
            document.put(tuple(dotted.split(".")), value, COMMAND_LINE)
    base = path.absolute().parent if path is not None else Path.cwd()
    return check(document.data, Sources(env=env, base=base), document)


def check(data: Any, sources: Sources, document: Document) -> Settings:
    """Turn plain data into Settings; ConfigError lists every fault."""
    try:
        return Settings.model_validate(data, context=sources)
    except ValidationError as error:
        lines = explain(error, Settings, document)
        raise ConfigError("\n".join(lines)) from None
