"""How an answer that generates text is written: what all shapes have in common.

A frame's keys and their order are llama-server's.  A chunk may hold several frames, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.slotsim import Result, Stop

if TYPE_CHECKING:
    from slotgate.slotsim import Finished, Generated, Progressed, Started
    from slotgate.stub.ask import Ask

Json = dict[str, Any]
encode = msgspec.json.encode
FINGERPRINT = "b11434-stub"


def word(number: int) -> str:
    """The text of an answer's token; they count from one."""
    return f"tok{number} "


def frame(value: object) -> bytes:
    return b"data: %b\n\n" % encode(value)


def event_frame(name: str, value: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(value))


def timings(result: Result) -> Json:
    read = result.prompt_tokens - result.cached_tokens if result.prompt_tokens else 0
    prompt_ms = (result.first_token_at - result.began_at) * 1000 if read else 0.0
    rest = result.output_tokens - 1
    predicted_ms = (
        (result.ended_at - result.first_token_at) * 1000
        if rest > 0
        else 0.001 * (result.output_tokens > 0)
    )
    return {
        "cache_n": result.cached_tokens,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / read if read else 0.0,
        "prompt_per_second": read / prompt_ms * 1000 if prompt_ms else 0.0,
        "predicted_n": result.output_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / rest if rest > 0 else 0.0,
        "predicted_per_second": rest / predicted_ms * 1000 if rest > 0 and predicted_ms else 0.0,
    }


class Reply:
    """Writes one job's answer.  `id` is the answer's own, `created` in Unix seconds."""

    terminator = b""

    def __init__(self, ask: Ask, *, id: str, model: str, created: int) -> None:
        self.ask = ask
        self.id = id
        self.model = model
        self.created = created
        self._tokens = [0] * (len(ask.prompts) * ask.n)
        # Of each answer the last token is the end of the text, and says nothing.
        self._ends_at: int | None = None
        self._has_begun = False
        # For timings before the end: when it began, what the cache had, when its first token came.
        self._began_at = 0.0
        self._cached = 0
        self._first_at: dict[int, float] = {}

    def end_text_at(self, tokens: int | None) -> None:
        """Say after how many tokens the model ends its text by itself."""
        self._ends_at = tokens

    # A stream.

    def started(self, event: Started) -> bytes:
        """The first such event only sends the head; another one is a frame of its own."""
        if self._has_begun:
            return self._null()
        self._begin(event.at, event.cached_tokens)
        return b""

    def progressed(self, event: Progressed) -> bytes:
        if not self._has_begun:
            self._begin(event.at, event.cached)
        return self._progress(event)

    def generated(self, event: Generated) -> bytes:
        before = self._tokens[event.index]
        self._tokens[event.index] = event.total
        self._first_at.setdefault(event.index, event.at)
        return b"".join(
            self._token(event.index, number, self._say(number), self._extra(event, number))
            for number in range(before + 1, event.total + 1)
        )

    def finished(self, event: Finished) -> bytes:
        """End one answer; after the last one `terminator` ends the stream, in its own chunk."""
        return self._final(event)

    def failed(self, error: Json) -> bytes:
        """Break a stream that has begun."""
        return frame({"error": error})

    # One body.

    def body(self, results: list[Finished]) -> bytes:
        """Answer at once; the results are in the order of their index."""
        return encode(self._whole(results))

    # What a shape defines.

    def _null(self) -> bytes:
        return b"data: null\n\n"

    def _progress(self, event: Progressed) -> bytes:
        raise NotImplementedError

    def _token(self, index: int, number: int, text: str, extra: Json) -> bytes:
        raise NotImplementedError

    def _final(self, event: Finished) -> bytes:
        raise NotImplementedError

    def _whole(self, results: list[Finished]) -> Any:
        raise NotImplementedError

    # Common parts.

    def _begin(self, at: float, cached: int) -> None:
        self._has_begun = True
        self._began_at = at
        self._cached = cached

    def _extra(self, event: Generated, number: int) -> Json:
        """Timings, if they were asked for on each token."""
        if not self.ask.timings_per_token:
            return {}
        result = Result(
            prompt_tokens=self._prompt_tokens(event.index),
            cached_tokens=self._cached,
            output_tokens=number,
            held_tokens=0,
            began_at=self._began_at,
            first_token_at=self._first_at[event.index],
            ended_at=event.at,
            stop=Stop.NONE,
            truncated=False,
        )
        return {"timings": timings(result)}

    def _prompt_tokens(self, index: int) -> int:
        return self.ask.prompts[index // self.ask.n].tokens

    def _say(self, number: int) -> str:
        return "" if number == self._ends_at else word(number)

    def _text(self, result: Result) -> str:
        return "".join(self._say(number) for number in range(1, result.output_tokens + 1))

    def _prompt(self, index: int) -> str:
        return self.ask.prompts[index // self.ask.n].text.decode(errors="replace")


def progress_object(event: Progressed) -> Json:
    return {
        "total": event.total,
        "cache": event.cached,
        "processed": event.processed,
        "time_ms": int(event.elapsed * 1000),
    }


def usage(result: Result) -> Json:
    return {
        "completion_tokens": result.output_tokens,
        "prompt_tokens": result.prompt_tokens,
        "total_tokens": result.prompt_tokens + result.output_tokens,
        "prompt_tokens_details": {"cached_tokens": result.cached_tokens},
    }


def finish_reason(result: Result) -> str:
    return "length" if result.stop is Stop.LIMIT else "stop"
