"""What a measurement has seen so far: it may end at any moment, and is good as far as it came."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from math import inf
from statistics import median

from slotgate.doctor.asking import in_words
from slotgate.doctor.evidence import Measured
from slotgate.errors import BackendError

# Tokens of the stream before a prompt is sent: enough for a median.
BEFORE_TOKENS = 24
# Tokens that are no further apart were read from the socket at once.
TOGETHER_SECONDS = 0.001
COMPLETION = "/completion"


class NotOffered(BackendError):  # noqa: N818 - a condition, not a fault
    """The server does not do this for us."""


class Measuring:
    """A stream of ours, and the long prompt that is read beside it.  Times are of one clock."""

    def __init__(self) -> None:
        self._times: list[float] = []
        # Of the long prompt: how many tokens, when it was sent, and when it had been read.
        self._prompt_tokens = 0
        self._sent_at = inf
        self._read_at = inf
        self._piece_tokens: int | None = None
        self._has_ended = False
        self._changed = asyncio.Event()
        self.prefill_rate: float | None = None
        self.refusal = ""
        self.failure = ""

    # What happens.

    def token(self, at: float) -> None:
        self._times.append(at)
        self._changed.set()

    def stream_ended(self) -> None:
        self._has_ended = True
        self._changed.set()

    def prompt_sent(self, tokens: int, at: float) -> None:
        self._prompt_tokens, self._sent_at = tokens, at

    def prompt_read(self, at: float, pieces: list[int]) -> None:
        self._read_at = at
        self._piece_tokens = max(pieces, default=None)

    def failed(self, error: BackendError) -> None:
        if isinstance(error, NotOffered):
            self.refusal = str(error)
        else:
            self.failure = f"POST {COMPLETION}: {in_words(error)}"

    def overdue(self, seconds: float) -> None:
        if self._times:
            self.refusal = f"it was not done within {seconds:g} s"
        else:
            self.failure = f"POST {COMPLETION}: no token within {seconds:g} s"

    async def wait_tokens(self, more: int) -> bool:
        """Wait for so many more tokens of the stream; tell whether they came."""
        wanted = len(self._times) + more
        while len(self._times) < wanted and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        return len(self._times) >= wanted

    # What that says.

    def found(self, now: float) -> Measured:
        lumps = _lumps(self._times)
        return Measured(
            usual_gap=_median_gap(self._times[:BEFORE_TOKENS]),
            worst_gap=self._worst_gap(now),
            prompt_tokens=self._prompt_tokens,
            prefill_rate=self.prefill_rate,
            piece_tokens=self._piece_tokens,
            lump_tokens=len(self._times) / max(1, len(lumps)),
            lump_gap=_median_gap(lumps) or 0.0,
            refusal=self.refusal,
            failure=self.failure,
        )

    def _worst_gap(self, now: float) -> float | None:
        """The longest gap that was open while the prompt was read, the one that still is too."""
        times = self._times if self._has_ended else [*self._times, now]
        gaps = [
            late - early
            for early, late in pairwise(times)
            if late >= self._sent_at and early <= self._read_at
        ]
        return max(gaps, default=None)


def _lumps(times: list[float]) -> list[float]:
    """The times without those that came together with the one before."""
    return times[:1] + [late for early, late in pairwise(times) if late - early > TOGETHER_SECONDS]


def _median_gap(times: list[float]) -> float | None:
    gaps = [late - early for early, late in pairwise(times)]
    return median(gaps) if gaps else None
