"""When a refused client comes back: the rules of the SDKs that people use, as a pure function.

All of them give up after two retries, and none adds chance to a delay that the server named.
They differ in which named delays they believe:

    openai-old   up to 60 s, anything longer is ignored: back within half a second
                 (openai-python up to 2.50, anthropic-python up to 1.0)
    openai       up to 120 s; asked for more, it does not come back (openai-python from 2.54)
    anthropic    any (anthropic-python from 1.17)
    node         any, also 0 (openai-node, the Anthropic SDK for TypeScript)
    vercel       below 60 s or below its own back-off (the AI SDK)
    ignoring     none: its own back-off only
    none         never comes back
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import inf, isnan
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.core.clock import Dice

MAX_RETRIES: Final = 2
_FIRST_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 8.0
_JITTER: Final = 0.25
_VERCEL_FIRST_SECONDS: Final = 2.0
_VERCEL_BELIEVES_SECONDS: Final = 60.0
_OLD_BELIEVES_SECONDS: Final = 60.0
_OPENAI_BELIEVES_SECONDS: Final = 120.0
_LONGEST_SECONDS: Final = 4_294_967.0
_RETRYABLE: Final = (408, 409, 429)


class ClientKind(StrEnum):
    """Whose rules a client follows; see the head of this module."""

    OPENAI_OLD = "openai-old"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    NODE = "node"
    VERCEL = "vercel"
    IGNORING = "ignoring"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client sees of a refusal; `status` 0 is an answer that never came."""

    status: int
    retry_after: float | None = None
    should_retry: bool | None = None


def read_refusal(status: int, headers: Mapping[str, str]) -> Refusal:
    """Take what matters from an answer's head; the names are in lower case."""
    word = headers.get("x-should-retry")
    return Refusal(
        status,
        _retry_after(headers),
        {"true": True, "false": False}.get(word) if word is not None else None,
    )


def delay_seconds(kind: ClientKind, attempts: int, refusal: Refusal, dice: Dice) -> float | None:
    """Return how long a client waits after so many attempts; None: it does not come back."""
    if kind is ClientKind.NONE or attempts > MAX_RETRIES or not _comes_back(kind, refusal):
        return None
    own = _own_back_off(kind, attempts - 1, dice)
    named = refusal.retry_after
    if named is None or not _believes(kind, named, own):
        return own
    return min(named, _LONGEST_SECONDS)


def _comes_back(kind: ClientKind, refusal: Refusal) -> bool:
    named = refusal.retry_after
    if kind is ClientKind.OPENAI and _OPENAI_BELIEVES_SECONDS < (named or 0.0) < inf:
        return False
    if refusal.should_retry is not None and kind is not ClientKind.VERCEL:
        return refusal.should_retry
    return refusal.status == 0 or refusal.status in _RETRYABLE or refusal.status >= 500


def _believes(kind: ClientKind, named: float, own: float) -> bool:
    match kind:
        case ClientKind.OPENAI_OLD:
            return 0 < named <= _OLD_BELIEVES_SECONDS
        case ClientKind.OPENAI:
            return 0 < named <= _OPENAI_BELIEVES_SECONDS
        case ClientKind.ANTHROPIC:
            return named > 0
        case ClientKind.NODE:
            return named >= 0
        case ClientKind.VERCEL:
            return 0 <= named < max(_VERCEL_BELIEVES_SECONDS, own)
        case _:
            return False


def _own_back_off(kind: ClientKind, retries: int, dice: Dice) -> float:
    if kind is ClientKind.VERCEL:
        return _VERCEL_FIRST_SECONDS * 2.0**retries
    seconds = min(_FIRST_SECONDS * 2.0**retries, _MOST_SECONDS)
    return seconds * (1 - _JITTER * dice.random())


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Milliseconds first, then seconds, then a date: in this order everywhere."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return None if isnan(seconds) else seconds
    return _until_date(headers)


def _until_date(headers: Mapping[str, str]) -> float | None:
    """From the answer's own date on: so it needs no clock, and no clock that agrees."""
    try:
        then = parsedate_to_datetime(headers["retry-after"])
        now = parsedate_to_datetime(headers["date"])
        return (then - now).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
