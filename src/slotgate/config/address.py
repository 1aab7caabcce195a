"""Where we listen and what we call: addresses checked before anything is opened."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from slotgate.config.section import NAME_PATTERN

_HOST_PORT = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%a-z]+)\]|(?P<host>[^:\[\]/@\s]+)):(?P<port>[0-9]{1,5})"
)
_UNIX = "unix://"
_NAME = re.compile(NAME_PATTERN)
_UNSEEN = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class Listen:
    """A parsed `listen`: a host and a port (0: any free one), or the path of a unix socket."""

    host: str = ""
    port: int = 0
    unix_path: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether anybody but this machine can reach it; a name other than localhost counts so."""
        if self.unix_path is not None or self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Read `host:port`, `[v6]:port` or `unix:///path`; ValueError says what is wrong."""
        if text.startswith(_UNIX):
            return cls(unix_path=_unix_path(text))
        match = _HOST_PORT.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not host:port or unix:///path; all interfaces are 0.0.0.0:port"
            )
        if (port := int(match["port"])) > 65535:
            raise ValueError(f"port {port} is above 65535")
        return cls(host=match["v6"] or match["host"], port=port)


def check_url(text: str) -> str:
    """Return the URL of a backend as it is; ValueError says what is wrong with it."""
    if _UNSEEN.search(text):
        raise ValueError("the URL contains spaces or control characters")
    if text.startswith(_UNIX):
        _unix_path(text)
        return text
    try:
        parts = urlsplit(text)
        has_port = parts.port != 0
    except ValueError as error:
        raise ValueError(f"the URL cannot be read: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not has_port:
        raise ValueError("the URL must look like http://host:port, https://host or unix:///path")
    _refuse_extras(parts)
    return text


def default_name(url: str) -> str:
    """Name a backend after its URL: host and port, or the socket's file name.

    A URL that cannot be read gives a name too; `check_url` is who complains.
    """
    if url.startswith(_UNIX):
        name = url.removeprefix(_UNIX).partition(":")[0].rpartition("/")[2]
    else:
        name = url.partition("://")[2].partition("/")[0].strip("[")
    return name if _NAME.fullmatch(name) else "backend"


def _refuse_extras(parts: SplitResult) -> None:
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL must not carry a user or password; use api_key_env")
    if parts.query or parts.fragment:
        raise ValueError("the URL must end after its path: no ? and no #")


def _unix_path(text: str) -> str:
    path = text.removeprefix(_UNIX)
    if not path.startswith("/") or path == "/" or "\x00" in path:
        raise ValueError("a unix socket is written unix:///absolute/path")
    return path
