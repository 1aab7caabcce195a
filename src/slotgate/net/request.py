"""The bytes of a request's head, built so that nothing can be smuggled into them.

The client writes `host`, `connection`, `content-length` itself and never sends
`transfer-encoding`, so that a request has one length and one meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_METHOD = re.compile(r"[A-Z]+")
_TARGET = re.compile(rb"/[^\x00-\x20\x7f]*")
# A whole block of header lines.  The counts of line feeds and of names without a colon are compared
# besides: a value with a line break can look like two good lines, and a name with a colon like a
# shorter one.
_LINES = re.compile(
    rb"(?:(?!(?:host|connection|content-length|transfer-encoding):)"
    rb"[!#$%&'*+.^_`|~0-9a-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\r\n)*",
    re.IGNORECASE,
)
_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Request:
    """What goes on the wire: a complete head, and the body that its length announces."""

    head: bytes
    body: bytes
    is_head: bool


class RequestWriter:
    """Writes requests for one address."""

    __slots__ = ("_host", "_prefix")

    def __init__(self, authority: str, prefix: str) -> None:
        self._prefix = prefix.encode("ascii")
        self._host = b" HTTP/1.1\r\nhost: " + authority.encode("ascii") + b"\r\n"

    def write(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        closes: bool,
    ) -> Request:
        """Build the request; ValueError if a part holds what it must not."""
        path = target.encode("latin-1")
        if not _METHOD.fullmatch(method) or not _TARGET.fullmatch(path):
            raise ValueError(f"not a method and a target: {method!r} {target!r}")
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        is_odd = lines.count(b"\n") != len(headers) or any(b":" in name for name, _ in headers)
        if is_odd or not _LINES.fullmatch(lines):
            raise ValueError("a header's name or value holds what it must not")
        if body or method not in _BODILESS:
            lines += b"content-length: %d\r\n" % len(body)
        if closes:
            lines += b"connection: close\r\n"
        head = method.encode("ascii") + b" " + self._prefix + path + self._host + lines + b"\r\n"
        return Request(head, body, method == "HEAD")
