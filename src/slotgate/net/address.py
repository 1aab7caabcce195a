"""Where a backend listens, read from the URL in the configuration."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from typing_extensions import override

from slotgate.errors import ConfigError

_LABEL = r"[A-Za-z0-9_-]{1,63}"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_PATH = re.compile(r"(?:/[\x21-\x7e]*)?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_FORMS = "http://host:port[/prefix], https://host:port[/prefix] or unix:///path.sock[:/prefix]"


@dataclass(frozen=True, slots=True)
class Address:
    """One place to connect to.

    `prefix` is the path that goes before every target, "" or like "/llm", without a slash at its
    end.  `unix_path` is set for a unix socket, and `host` is then "localhost", the name that the
    Host header gives.
    """

    host: str
    port: int
    tls: bool
    unix_path: str | None
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a backend's URL; ConfigError says what is wrong with it."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise _nonsense(url, str(error)) from error
        if parts.scheme == "unix":
            return cls._parse_unix(url)
        if parts.scheme in _DEFAULT_PORTS:
            return cls._parse_tcp(url, parts)
        raise _nonsense(url, "it has no scheme that is known here")

    @classmethod
    def _parse_tcp(cls, url: str, parts: SplitResult) -> Address:
        if parts.username is not None or parts.password is not None:
            # Not echoed: what stands there is a secret.
            raise ConfigError(f"a backend URL may not carry a user or a password; write {_FORMS}")
        try:
            port = parts.port
        except ValueError as error:
            raise _nonsense(url, "its port is not a number from 1 to 65535") from error
        if port == 0:
            raise _nonsense(url, "its port is not a number from 1 to 65535")
        host = parts.hostname or ""
        if not _is_host(host):
            raise _nonsense(url, "it names no host")
        if parts.query or parts.fragment:
            raise _nonsense(url, "it has a query or a fragment")
        tls = parts.scheme == "https"
        return cls(host, port or _DEFAULT_PORTS[parts.scheme], tls, None, _prefix(url, parts.path))

    @classmethod
    def _parse_unix(cls, url: str) -> Address:
        rest = url.partition(":")[2]
        if not rest.startswith("///"):
            raise _nonsense(url, "the path of its socket is not absolute")
        path, _, prefix = rest[2:].partition(":")
        if path == "/" or "\0" in path:
            raise _nonsense(url, "it names no socket")
        return cls("localhost", 80, tls=False, unix_path=path, prefix=_prefix(url, prefix))

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = _DEFAULT_PORTS["https" if self.tls else "http"]
        return host if self.port == default else f"{host}:{self.port}"

    @override
    def __str__(self) -> str:
        if self.unix_path is not None:
            return f"unix://{self.unix_path}" + (f":{self.prefix}" if self.prefix else "")
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _NAME.fullmatch(host) is not None
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _prefix(url: str, path: str) -> str:
    if not _PATH.fullmatch(path) or "?" in path or "#" in path:
        raise _nonsense(url, "its path has characters that a path may not have")
    return path.rstrip("/")


def _nonsense(url: str, why: str) -> ConfigError:
    return ConfigError(f"{url!r} is no backend URL: {why}; write {_FORMS}")
