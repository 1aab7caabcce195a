"""One response as it comes in: bytes in, head and body pieces out; no I/O.

Rule 1: it ends in exactly one of two ways, `is_complete` or `fault`; both are final.
Rule 2: every answer has a parser of its own, so nothing of one response can leak into the next
        one on the same connection, and bytes behind the end are noticed.
"""

from __future__ import annotations

import httptools

# Names, values and separators of all lines together, 1xx heads and trailers included.
MAX_HEAD_BYTES = 64 * 1024
# Bytes in a row that are not body, because no callback hears of a line before it ends.
_MAX_QUIET_BYTES = 2 * MAX_HEAD_BYTES
_TOO_LARGE = f"its head or trailers are larger than {MAX_HEAD_BYTES} bytes"


class _StopParsingError(Exception):
    """Raised inside a parser's callback to leave it at once; never leaves this module."""


_NO_PARSER = httptools.HttpResponseParser(object())


class Answer:
    """Collects one response, the answer to a HEAD if `is_head`.

    A 1xx head is skipped.  A body with neither length nor chunks ends with the connection.
    `pieces` are the body's bytes that nobody has taken yet, `unread_bytes` in number.
    `received_bytes` counts everything that came in, the head included.
    """

    __slots__ = (
        "_head_bytes",
        "_is_head",
        "_parser",
        "_quiet_bytes",
        "fault",
        "has_head",
        "headers",
        "is_complete",
        "keeps_alive",
        "pieces",
        "reason",
        "received_bytes",
        "status",
        "unread_bytes",
    )

    def __init__(self, *, is_head: bool) -> None:
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.unread_bytes = 0
        self.received_bytes = 0
        self.has_head = False
        self.is_complete = False
        # Whether the connection may carry another exchange, as far as the bytes tell.
        self.keeps_alive = False
        self.fault: str | None = None
        self._is_head = is_head
        self._head_bytes = 0
        # Bytes since the last one of the body.
        self._quiet_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    # Events.

    def feed(self, data: bytes) -> None:
        """Take the bytes that arrived."""
        size = len(data)
        self.received_bytes += size
        self._quiet_bytes += size
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._stop(error)
        if self._quiet_bytes > _MAX_QUIET_BYTES and not self.is_complete and self.fault is None:
            self.fault = _TOO_LARGE

    def end(self) -> None:
        """The peer has closed its side."""
        self.keeps_alive = False
        if self.is_complete or self.fault is not None:
            return
        if self.has_head and not self._has_frame():
            self.is_complete = True
        elif self.has_head:
            self.fault = "the connection was closed in the middle of the body"
        else:
            self.fault = "the connection was closed in the middle of the head"

    def take(self) -> bytes:
        """All unread bytes as one piece; b"" if there are none."""
        pieces = self.pieces
        if len(pieces) == 1:
            data = pieces.pop()
        else:
            data = b"".join(pieces)
            pieces.clear()
        self.unread_bytes = 0
        return data

    def drop_parser(self) -> None:
        """Nothing more is expected.  The parser and this object hold each other: part them."""
        self._parser = _NO_PARSER

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _StopParsingError

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES:
            self.fault = _TOO_LARGE
            raise _StopParsingError
        if not self.has_head:  # else it is a trailer, which nobody here needs
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                self.fault = "it switches protocols, which nobody asked for"
                raise _StopParsingError
            self.reason = b""
            self.headers.clear()
            return
        self.status = status
        self.has_head = True
        self.keeps_alive = self._parser.should_keep_alive()
        if self._is_head:
            # The parser would wait for the body that the head describes and that never comes.
            self.is_complete = True
            raise _StopParsingError

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)
        self.unread_bytes += len(data)
        self._quiet_bytes = 0

    def on_message_complete(self) -> None:
        if self.has_head:
            self.is_complete = True

    # Private rules.

    def _stop(self, error: Exception) -> None:
        self.keeps_alive = False
        if not self.is_complete and self.fault is None:
            self.fault = f"it is malformed: {error}"

    def _has_frame(self) -> bool:
        """Whether the body's end is marked by a length or by chunks."""
        encoding = b""
        for name, value in self.headers:
            if name == b"content-length":
                return True
            if name == b"transfer-encoding":
                encoding = value
        return encoding.lower().rpartition(b",")[2].strip() == b"chunked"
