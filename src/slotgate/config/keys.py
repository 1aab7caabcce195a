"""Keys: where they come from, and how they are kept.

A key never stands in the configuration file.  The file names an environment variable, names a
file, or holds the key's SHA-256.  What a client must prove to know is kept as a digest only; what
we must send to a backend is kept as a `SecretStr`, which does not print.
No message of this module contains a key, or a text that might be one.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

MIN_KEY_CHARACTERS = 16
MAX_KEY_CHARACTERS = 512

_KEY = re.compile(r"[!-~]+")  # what a header can carry, without spaces
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A name that is surely not a key pasted in its place, and so may be shown.
_SHOWN_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where settings find what they refer to; pydantic's validation context.

    `base` is the directory that relative paths start from.  `warnings` collects what is allowed
    but unwise, for the caller to show.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    base: Path = field(default_factory=Path)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, context: object) -> Sources:
        return context if isinstance(context, Sources) else cls()


def problem(text: str, *path: str | int) -> PydanticCustomError:
    """Make an error of the setting at `path`, seen from the model that raises it."""
    return PydanticCustomError("setting", "{text}", {"text": text, "path": path})


@dataclass(frozen=True, slots=True)
class KeyReference:
    """The up to three settings that say where one key is; `prefix` is `key`, `api_key`, ..."""

    prefix: str
    env: str | None = None
    file: str | None = None
    sha256: str | None = None

    def digest(self, sources: Sources) -> bytes | None:
        """Return the key's SHA-256, None if no key is configured."""
        if self.sha256 is not None and self.env is None and self.file is None:
            return self._given_digest(self.sha256)
        key = self.secret(sources)
        return None if key is None else key_digest(key.get_secret_value())

    def secret(self, sources: Sources) -> SecretStr | None:
        """Return the key itself, None if no key is configured."""
        given = [s for s in ("env", "file", "sha256") if getattr(self, s) is not None]
        if len(given) > 1:
            names = " and ".join(f"{self.prefix}_{source}" for source in given)
            raise problem(f"{names} exclude each other; keep one", f"{self.prefix}_{given[1]}")
        if self.env is not None:
            return self._checked(self._from_variable(self.env, sources.env), "env")
        if self.file is not None:
            return self._checked(self._from_file(self.file, sources), "file")
        return None

    def _given_digest(self, text: str) -> bytes:
        if not _SHA256.fullmatch(text):
            raise problem(
                "is not a SHA-256: 64 lower-case hexadecimal digits, as `slotgate keys new` prints",
                f"{self.prefix}_sha256",
            )
        return bytes.fromhex(text)

    def _from_variable(self, name: str, env: Mapping[str, str]) -> str:
        if not _VARIABLE.fullmatch(name):
            raise problem("is not the name of an environment variable", f"{self.prefix}_env")
        if name not in env:
            shown = f"variable {name}" if _SHOWN_VARIABLE.fullmatch(name) else "variable it names"
            raise problem(f"the environment {shown} is not set", f"{self.prefix}_env")
        return env[name]

    def _from_file(self, name: str, sources: Sources) -> str:
        setting = f"{self.prefix}_file"
        try:
            path = sources.base / Path(name).expanduser()
            mode = path.stat().st_mode
            with path.open("rb") as stream:
                content = stream.read(MAX_KEY_CHARACTERS + 2)
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "bad path"
            raise problem(f"the key file cannot be read: {why}", setting) from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            sources.warnings.append(
                f"{setting}: {path} can be read by others than its owner; chmod 600 mends it"
            )
        return content.decode("latin-1")

    def _checked(self, text: str, source: str) -> SecretStr:
        key = text.strip()
        setting = f"{self.prefix}_{source}"
        if len(key) > MAX_KEY_CHARACTERS:
            raise problem(f"the key is longer than {MAX_KEY_CHARACTERS} characters", setting)
        if len(key) < MIN_KEY_CHARACTERS:
            raise problem(
                f"the key has less than {MIN_KEY_CHARACTERS} characters and could be guessed; "
                "`slotgate keys new` makes a good one",
                setting,
            )
        if not _KEY.fullmatch(key):
            raise problem(
                "the key has spaces or characters beyond ASCII, which no header can carry", setting
            )
        return SecretStr(key)


def key_digest(key: str) -> bytes:
    """Hash a key for keeping.  Keys are 256 random bits: nothing slower than SHA-256 would help."""
    return hashlib.sha256(key.encode()).digest()
