"""What requests of our own have met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import METRICS, Evidence, Make
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.evidence import Measured
    from slotgate.doctor.finding import Finding

# A pause that a reader notices, and takes for an end.
NOTICED_SECONDS = 1.0
# Below this many usual gaps it is no stall.
STALL_RATIO = 5.0
# How long a batch may hold up those that write, by the sizes that are advised.
WANTED_SECONDS = 0.25
# More than a model that drafts writes in one step, and so rarely that nobody is that fast.
LUMP_TOKENS, LUMP_SECONDS = 8.0, 0.3
_SMALLEST_BATCH, _DEFAULT_BATCH = 32, 2048
# So many tokens of prompts tell a speed.
_ENOUGH_TOKENS = 2048
_HELD_UP = (
    "A batch of prompt tokens is read in one go, and meanwhile nobody gets a token, and no client "
    "that leaves is noticed. The default batch is 2,048 tokens."
)


@check(
    "request-failed",
    asks="Is a request answered where a slot is free?",
    by="Measured, with `--measure`: an error, a broken stream, or no token in a minute.",
    severities=(ERROR, NOTE),
)
def failed(seen: Evidence) -> Iterator[Finding]:
    if seen.measured is None or not seen.measured.failure:
        return
    if seen.idle_slots:
        yield error(
            "A request of ours failed, though a slot was free.",
            seen.measured.failure,
            "Those of its clients fail likewise, or wait for ever: a server may look healthy and "
            "swallow what it is asked (#16448).",
            "Ask it by hand, and read its log.",
            "Restart it.",
        )
    else:
        yield note("A request of ours failed; no slot was known to be free.", seen.measured.failure)


@check(
    "stream-buffered",
    asks="Does something between here and the server keep streams back?",
    by="Measured, with `--measure`: 8 tokens or more at once, 0.3 s or more apart.",
    severities=(WARNING,),
)
def buffered(seen: Evidence) -> Iterator[Finding]:
    measured = seen.measured
    if measured is not None and _is_buffered(measured):
        yield warning(
            f"Its streams come in lumps: {measured.lump_tokens:.0f} tokens at once, every "
            f"{_duration(measured.lump_gap)}.",
            "a stream of ours: when its pieces came",
            "Something between here and the server keeps answers back until a buffer is full, and "
            "readers wait for what is long written.",
            "Turn off buffering in the proxy: `proxy_buffering off` in nginx, which also heeds the "
            "header X-Accel-Buffering that llama-server sends.",
        )


def _is_buffered(measured: Measured) -> bool:
    return measured.lump_tokens >= LUMP_TOKENS and measured.lump_gap >= LUMP_SECONDS


@check(
    "speed",
    asks="How fast does it write and read?",
    by="Measured, with `--measure`.",
    severities=(NOTE, OK),
)
def speed(seen: Evidence) -> Iterator[Finding]:
    measured = seen.measured
    if measured is None:
        return
    if measured.decode_rate is not None and not _is_buffered(measured):
        reads = measured.prefill_rate
        yield fine(
            f"It writes {measured.decode_rate:.0f} tokens/s in one slot"
            + (f", and reads {reads:.0f} tokens/s of a prompt." if reads else "."),
            "a stream of ours: the median time between two tokens"
            + (f"; `timings` of a prompt of {measured.prompt_tokens:,} tokens" if reads else ""),
        )
    if measured.refusal and seen.make is not Make.UNKNOWN:
        yield note("Not all was measured.", measured.refusal)


@check(
    "stream-stall",
    asks="Does a long prompt of one client hold up the streams of all others?",
    by="Measured, with `--measure`: the longest time without a token of a stream of ours while "
    "a prompt of ours is read in another slot.",
    severities=(WARNING, NOTE, OK),
)
def stall(seen: Evidence) -> Iterator[Finding]:
    measured = seen.measured
    if measured is None or not measured.worst_gap or not measured.usual_gap:
        return
    if _is_buffered(measured):  # gaps are then the buffer's
        return
    worst, usual = measured.worst_gap, measured.usual_gap
    known_by = (
        f"a stream of ours: {_duration(usual)} between two tokens, and {_duration(worst)} while a "
        f"prompt of {measured.prompt_tokens:,} tokens was read in another slot"
        + (f", {measured.piece_tokens:,} at a time" if measured.piece_tokens else "")
    )
    if worst < STALL_RATIO * usual:
        yield fine("A long prompt does not hold up those who write.", known_by)
        return
    yield (warning if worst >= NOTICED_SECONDS else note)(
        f"A long prompt holds up every stream: {_duration(worst)} without a token, "
        f"{worst / usual:.0f} times the usual.",
        known_by,
        _HELD_UP,
        *_smaller_batch(measured.prefill_rate, seen.slots or 1),
    )


@check(
    "stall-expected",
    asks="Where that was not measured: is a long prompt likely to hold up all streams?",
    by="`GET /metrics`: `prompt_tokens_total` by `prompt_seconds_total`, from 2,048 tokens on; "
    "`-b` of its flags, or its default.  A batch of that size is read in one go.  Where "
    "several prompts are read at once, that is faster than it looks.",
    severities=(NOTE, OK),
)
def stall_expected(seen: Evidence) -> Iterator[Finding]:
    """What was not measured, as far as the server's own counts and its flags tell it."""
    counted, slots = seen.counted, seen.slots or 1
    is_measured = seen.measured is not None and seen.measured.worst_gap is not None
    if counted is None or is_measured or slots < 2 or not counted.prompt_seconds:
        return
    if counted.prompt_tokens < _ENOUGH_TOKENS:
        return
    rate = counted.prompt_tokens / counted.prompt_seconds
    told = None if seen.flags is None else seen.flags.batch
    batch = _DEFAULT_BATCH if told is None else told
    source = "llama-server's default" if seen.flags is None or told is None else seen.flags.source
    known_by = f"GET {METRICS}: prompts were read at {rate:.0f} tokens/s; -b {batch}, of {source}"
    # A slot has no longer prompt than it holds.
    seconds = min(batch, seen.ctx_per_slot or batch) / rate
    if seconds < NOTICED_SECONDS:
        yield fine("A long prompt holds up those who write for less than a second.", known_by)
        return
    yield note(
        f"A long prompt may hold up every stream for up to {_duration(seconds)}.",
        known_by,
        _HELD_UP,
        *_smaller_batch(rate, slots),
        "--measure: sends one, and says how long it was.",
    )


def _smaller_batch(rate: float | None, slots: int) -> Iterator[str]:
    if rate is None:
        yield "-b 512, or less"
        return
    tokens = min(_DEFAULT_BATCH, int(rate * WANTED_SECONDS))
    size = max(_SMALLEST_BATCH, 1 << max(0, tokens.bit_length() - 1))
    if slots > size:  # llama-server aborts if a batch has not a token for each slot
        size = 1 << (slots - 1).bit_length()
    yield (
        f"-b {size}: about {_duration(size / rate)} at the {rate:.0f} tokens/s that it "
        "reads; prompts are read a little slower"
    )


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
