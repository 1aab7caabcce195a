"""Whose fault a backend's error is: a table of statuses and of words that are in their bodies.

llama-server answers 500 for its own failures and for some of its clients' mistakes, and says which
only in words.  So what is known is listed, with words recorded from it; the first rule that fits
decides.  docs/reference/backend-errors.md is generated from `RULES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import msgspec

from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping


class Blame(StrEnum):
    """Whose fault an error is, and so what becomes of a request whose client has no byte yet."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        blame = str.__new__(cls, name)
        blame._value_ = name
        blame.meaning = meaning
        return blame

    LOADING = "loading", "it has not begun: the request waits until something is ready"
    BACKEND = "backend", "a failure of the backend: the request is tried elsewhere"
    BUSY = "busy", "no failure, but no room either: the request is tried elsewhere"
    OVERFLOW = (
        "overflow",
        "the context that all slots share was full: the request is tried elsewhere, unless it ran "
        "there alone and so was itself too big",
    )
    UNKNOWN = (
        "unknown",
        "nobody can tell: the request is tried elsewhere, and if it is served there, it was the "
        "backend's failure",
    )
    REQUEST = "request", "the request's own: it passes as it is, and is never tried again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Errors of these statuses (none: of any) with these words (none: with any) on this route."""

    blame: Blame
    statuses: tuple[int, ...] = ()
    words: bytes = b""
    shape: Shape | None = None
    example: str = ""

    def fits(self, status: int, body: bytes, shape: Shape | None) -> bool:
        """Whether the rule is about this error."""
        return (
            (not self.statuses or status in self.statuses)
            and self.words in body
            and (self.shape is None or self.shape is shape)
        )


RULES = (
    Rule(
        blame=Blame.LOADING,
        statuses=(503,),
        words=b"oading model",
        example="503 `Loading model`, of every build",
    ),
    Rule(
        blame=Blame.OVERFLOW,
        words=b"Context size has been exceeded",
        example="500 `Context size has been exceeded.`: all that ran there were ended",
    ),
    Rule(
        blame=Blame.REQUEST,
        words=b"failed to load",
        example="500 `model name=x failed to load`, of a router: it would fail again",
    ),
    Rule(
        blame=Blame.REQUEST,
        statuses=(500,),
        words=b"input is not supported",
        example="500 `image input is not supported - hint: ... mmproj`",
    ),
    Rule(
        blame=Blame.REQUEST,
        statuses=(500,),
        words=b"is too large to process",
        example="500 `input (3000 tokens) is too large to process. increase the physical batch "
        "size`",
    ),
    Rule(
        blame=Blame.BACKEND,
        words=b"proxy error:",
        example="500 or a bare line `proxy error: Could not establish connection`, of a router "
        "whose child died",
    ),
    Rule(blame=Blame.BACKEND, words=b"Compute error", example="500 `Compute error.`"),
    Rule(blame=Blame.BACKEND, words=b"Invalid input batch", example="500 `Invalid input batch.`"),
    Rule(blame=Blame.BACKEND, words=b"decode() failed", example="500 `decode() failed: ...`"),
    Rule(blame=Blame.BACKEND, words=b"got exception", example="500 `got exception: ...`"),
    Rule(
        blame=Blame.REQUEST,
        statuses=(500,),
        words=b'"server_error"',
        shape=Shape.MESSAGES,
        example="500 `'messages' is required` on `/v1/messages`, which says so of any bad body",
    ),
    Rule(
        blame=Blame.BACKEND,
        statuses=(502, 503, 504),
        example="502, 503 and 504 of whatever stands in front of it",
    ),
    Rule(
        blame=Blame.BUSY,
        statuses=(409, 429),
        example="429 and 409 of servers that limit their clients; llama-server never says so",
    ),
    Rule(blame=Blame.UNKNOWN, statuses=(500,), example="any other 500"),
    Rule(
        blame=Blame.REQUEST,
        example="everything else: any other 4xx, such as a bad grammar or a prompt that is too "
        "long, and 501",
    ),
)


def blame_of(status: int, body: bytes, shape: Shape | None = None) -> Blame:
    """Say whose fault an error answer is."""
    return next(rule.blame for rule in RULES if rule.fits(status, body, shape))


def blame_of_event(error: Mapping[str, Any], shape: Shape | None = None) -> Blame:
    """Say whose fault an error is that came inside a stream; without a code it is a 500."""
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return blame_of(status, msgspec.json.encode(error), shape)


def blame_reference() -> str:
    """Return the tables of the documentation, in Markdown."""
    lines = ["| whose | what becomes of it |", "| --- | --- |"]
    lines += [f"| `{blame}` | {blame.meaning} |" for blame in Blame]
    lines += ["", "| error | whose |", "| --- | --- |"]
    lines += [f"| {rule.example} | `{rule.blame}` |" for rule in RULES]
    return "\n".join(lines)
