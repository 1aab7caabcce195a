"""Measures a server by requests of our own: a stream, and prompts that are read beside it.

All are streams, so that closing them frees their slots, and all are closed however this ends.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import pairwise
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.doctor.asking import Asker, in_words
from slotgate.doctor.evidence import Measured
from slotgate.errors import BackendError
from slotgate.wire.sse import FrameSplitter
from slotgate.wire.usage import as_mapping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slotgate.doctor.measure_plan import MeasurePlan

MEASURE_SECONDS = 60.0
# Tokens of the stream before the prompt is sent: enough for a median.
BEFORE_TOKENS = 24
# Tokens that are no further apart were read from the socket at once.
TOGETHER_SECONDS = 0.001
_COMPLETION = "/completion"
_START = "Count: one, two, three, four, five, six, seven, eight, nine, ten, eleven,"


class _NotOffered(BackendError):  # noqa: N818 - a condition, not a fault
    """The server does not do this for us."""


class _Measuring:
    """What has been measured so far; it may end at any moment."""

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
        if isinstance(error, _NotOffered):
            self.refusal = str(error)
        else:
            self.failure = f"POST {_COMPLETION}: {in_words(error)}"

    def overdue(self, seconds: float) -> None:
        if self._times:
            self.refusal = f"it was not done within {seconds:g} s"
        else:
            self.failure = f"POST {_COMPLETION}: no token within {seconds:g} s"

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


async def measure(asker: Asker, plan: MeasurePlan, seconds: float = MEASURE_SECONDS) -> Measured:
    """Send what is planned, and nothing more; what went wrong is said in `refusal`."""
    measuring = _Measuring()
    try:
        async with asyncio.timeout(seconds):
            prompt = await _tokens(asker, plan.prompt_tokens) if plan.prompt_tokens else []
            async with asyncio.TaskGroup() as group:
                stream = group.create_task(_listen(asker, plan.stream_tokens, measuring))
                await _beside(asker, plan, prompt, measuring)
                stream.cancel()
    except TimeoutError:
        measuring.overdue(seconds)
    except BackendError as error:
        measuring.failed(error)
    return measuring.found(asyncio.get_running_loop().time())


async def ask_one_token(asker: Asker) -> None:
    """A request of the least size: what a shared pool does to idle slots shows after it."""
    with suppress(TimeoutError, BackendError):
        async with asyncio.timeout(MEASURE_SECONDS / 6):
            async for _ in _frames(asker, _body(prompt="One", n_predict=1)):
                pass


async def _listen(asker: Asker, tokens: int, measuring: _Measuring) -> None:
    """Have the stream written."""
    loop = asyncio.get_running_loop()
    try:
        async for _ in _frames(asker, _body(prompt=_START, n_predict=tokens)):
            measuring.token(loop.time())
    except BackendError as error:
        measuring.failed(error)
    # Not if it is cancelled: its last gap is open then.
    measuring.stream_ended()


async def _beside(
    asker: Asker, plan: MeasurePlan, prompt: list[int], measuring: _Measuring
) -> None:
    """Have prompts read while the stream goes on."""
    if not await measuring.wait_tokens(BEFORE_TOKENS):
        measuring.refusal = "the stream ended too early"
    elif not prompt:
        measuring.refusal = "only one slot was free, so no prompt was sent beside the stream"
    else:
        try:
            await _read_two(asker, plan, prompt, measuring)
        except BackendError as error:
            measuring.failed(error)


async def _read_two(
    asker: Asker, plan: MeasurePlan, prompt: list[int], measuring: _Measuring
) -> None:
    """Have a short prompt read, which tells the speed, and one of a length that fits it."""
    loop = asyncio.get_running_loop()
    measuring.prefill_rate, _ = await _read(asker, prompt[-plan.first_tokens :])
    length = plan.long_tokens(measuring.prefill_rate)
    measuring.prompt_sent(length, loop.time())
    rate, pieces = await _read(asker, prompt[:length])
    measuring.prefill_rate = rate or measuring.prefill_rate
    measuring.prompt_read(loop.time(), pieces)
    # The gap that is open now ends with the next token.
    if not await measuring.wait_tokens(1):
        measuring.refusal = "the stream ended before the prompt beside it was read"


async def _read(asker: Asker, prompt: list[int]) -> tuple[float | None, list[int]]:
    """Have a prompt read: tokens a second, and the pieces in which it was read."""
    timings: dict[str, Any] = {}
    progress: list[int] = []
    body = _body(prompt=prompt, n_predict=1, cache_prompt=False, return_progress=True)
    async for frame in _frames(asker, body):
        timings = as_mapping(frame.get("timings")) or timings
        processed = as_mapping(frame.get("prompt_progress")).get("processed")
        if isinstance(processed, int):
            progress.append(processed)
    rate = timings.get("prompt_per_second")
    pieces = [later - earlier for earlier, later in pairwise(progress)]
    return (float(rate) if isinstance(rate, int | float) and rate > 0 else None), pieces


async def _tokens(asker: Asker, number: int) -> list[int]:
    """Exactly so many tokens, of numbers that no other prompt begins with."""
    # More words than that: a tokenizer may take two of them for one token.
    text = " ".join(map(str, range(number, 4 * number)))
    reply = await asker.post("/tokenize", json.dumps({"content": text}).encode())
    try:
        found = msgspec.json.decode(reply.body)["tokens"]
        tokens = [int(token) for token in found][:number]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise _NotOffered(f"POST /tokenize: {reply.status or reply.message}") from error
    if len(tokens) < number:
        raise _NotOffered("POST /tokenize: it told too few tokens")
    return tokens


def _body(**fields: Any) -> bytes:
    settings = {"stream": True, "temperature": 0, "ignore_eos": True, **fields}
    return json.dumps(settings).encode()


async def _frames(asker: Asker, body: bytes) -> AsyncIterator[dict[str, Any]]:
    """Yield the frames of a completion; BackendError if it is refused or breaks."""
    splitter = FrameSplitter()
    with asker.generation(_COMPLETION, body) as exchange:
        await exchange.open()
        if exchange.status != 200:
            raise _error_of(exchange.status)
        while data := await exchange.read():
            for frame in splitter.feed(data):
                yield _fields(frame)


def _error_of(status: int) -> BackendError:
    """Tell a fault of the server from one of the request, or of what the model is for."""
    if status >= 500 and status != 501:
        return BackendError(str(status))
    return _NotOffered(f"POST {_COMPLETION}: {status}")


def _fields(frame: bytes) -> dict[str, Any]:
    try:
        return as_mapping(msgspec.json.decode(frame.removeprefix(b"data: ")))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _lumps(times: list[float]) -> list[float]:
    """The times without those that came together with the one before."""
    return times[:1] + [late for early, late in pairwise(times) if late - early > TOGETHER_SECONDS]


def _median_gap(times: list[float]) -> float | None:
    gaps = [late - early for early, late in pairwise(times)]
    return median(gaps) if gaps else None
