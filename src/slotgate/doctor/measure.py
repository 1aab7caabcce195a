"""Measures a server by requests of our own: a stream, and prompts that are read beside it.

All are streams, so that closing them frees their slots, and all are closed however this ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.doctor.measuring import BEFORE_TOKENS, COMPLETION, Measuring, NotOffered
from slotgate.errors import BackendError
from slotgate.wire.sse import FrameSplitter
from slotgate.wire.usage import as_mapping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slotgate.doctor.asking import Asker
    from slotgate.doctor.evidence import Measured
    from slotgate.doctor.measure_plan import MeasurePlan

MEASURE_SECONDS = 60.0
_START = "Count: one, two, three, four, five, six, seven, eight, nine, ten, eleven,"


async def measure(asker: Asker, plan: MeasurePlan, seconds: float = MEASURE_SECONDS) -> Measured:
    """Send what is planned, and nothing more; what came in between is in the result."""
    measuring = Measuring()
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
            async for _ in _frames(asker, _asked(prompt="One", n_predict=1)):
                pass


async def _listen(asker: Asker, tokens: int, measuring: Measuring) -> None:
    """Have the stream written."""
    loop = asyncio.get_running_loop()
    try:
        async for _ in _frames(asker, _asked(prompt=_START, n_predict=tokens)):
            measuring.token(loop.time())
    except BackendError as error:
        measuring.failed(error)
    # Not if it is cancelled: its last gap is open then.
    measuring.stream_ended()


async def _beside(asker: Asker, plan: MeasurePlan, prompt: list[int], measuring: Measuring) -> None:
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
    asker: Asker, plan: MeasurePlan, prompt: list[int], measuring: Measuring
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
    asked = _asked(prompt=prompt, n_predict=1, cache_prompt=False, return_progress=True)
    async for frame in _frames(asker, asked):
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
    reply = await asker.post("/tokenize", {"content": text})
    try:
        found = msgspec.json.decode(reply.body)["tokens"]
        tokens = [int(token) for token in found][:number]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise NotOffered(f"POST /tokenize: {reply.status or reply.message}") from error
    if len(tokens) < number:
        raise NotOffered("POST /tokenize: it told too few tokens")
    return tokens


def _asked(**fields: Any) -> dict[str, Any]:
    return {"stream": True, "temperature": 0, "ignore_eos": True, **fields}


async def _frames(asker: Asker, asked: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Yield the frames of a completion; BackendError if it is refused or breaks."""
    splitter = FrameSplitter()
    with asker.generation(COMPLETION, asked) as exchange:
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
    return NotOffered(f"POST {COMPLETION}: {status}")


def _fields(frame: bytes) -> dict[str, Any]:
    try:
        return as_mapping(msgspec.json.decode(frame.removeprefix(b"data: ")))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
