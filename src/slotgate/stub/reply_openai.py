"""OpenAI's two older shapes: `/v1/completions` and `/v1/chat/completions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from slotgate.stub.reply import (
    FINGERPRINT,
    Json,
    Reply,
    finish_reason,
    frame,
    progress_object,
    timings,
    usage,
)

if TYPE_CHECKING:
    from slotgate.slotsim import Finished, Progressed, Result

DONE = b"data: [DONE]\n\n"


class CompletionReply(Reply):
    """`/v1/completions`."""

    terminator = DONE

    @override
    def _progress(self, event: Progressed) -> bytes:
        return frame(
            self._chunk(event.index, "", None) | {"prompt_progress": progress_object(event)}
        )

    @override
    def _token(self, index: int, number: int, text: str, extra: Json) -> bytes:
        return frame(self._chunk(index, text, None) | extra)

    @override
    def _final(self, event: Finished) -> bytes:
        return frame(self._object([self._choice(event.index, "", event.result)], event.result))

    @override
    def _whole(self, results: list[Finished]) -> Any:
        choices = [self._choice(e.index, self._text(e.result), e.result) for e in results]
        return self._object(choices, results[0].result)

    def _choice(self, index: int, text: str, result: Result | None) -> Json:
        return {
            "text": text,
            "index": index,
            "logprobs": None,
            "finish_reason": finish_reason(result) if result else None,
        }

    def _chunk(self, index: int, text: str, result: Result | None) -> Json:
        return {
            "choices": [self._choice(index, text, result)],
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "object": "text_completion",
            "id": self.id,
        }

    def _object(self, choices: list[Json], result: Result) -> Json:
        return {
            "choices": choices,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "object": "text_completion",
            "usage": usage(result),
            "id": self.id,
            "timings": timings(result),
        }


class ChatReply(Reply):
    """`/v1/chat/completions`: the role comes with the first token."""

    terminator = DONE

    @override
    def _progress(self, event: Progressed) -> bytes:
        return frame(
            self._chunk([self._delta(event.index, self._role())])
            | {"prompt_progress": progress_object(event)}
        )

    @override
    def _token(self, index: int, number: int, text: str, extra: Json) -> bytes:
        deltas = [self._role()] if number == 1 else []
        if text:
            deltas.append({"content": text})
        chunks = [self._chunk([self._delta(index, delta)]) for delta in deltas]
        if chunks:
            chunks[-1] |= extra
        return b"".join(map(frame, chunks))

    @override
    def _final(self, event: Finished) -> bytes:
        reason = finish_reason(event.result)
        last = self._chunk([self._delta(event.index, {}, reason)])
        timing = {"timings": timings(event.result)}
        if not self.ask.include_usage:
            return frame(last | timing)
        return frame(last) + frame(self._chunk([]) | {"usage": usage(event.result)} | timing)

    @override
    def _whole(self, results: list[Finished]) -> Any:
        result = results[0].result
        return {
            "choices": [
                {
                    "finish_reason": finish_reason(event.result),
                    "index": event.index,
                    "message": {"role": "assistant", "content": self._text(event.result)},
                }
                for event in results
            ],
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "object": "chat.completion",
            "usage": usage(result),
            "id": self.id,
            "timings": timings(result),
        }

    @staticmethod
    def _role() -> Json:
        return {"role": "assistant", "content": None}

    @staticmethod
    def _delta(index: int, delta: Json, reason: str | None = None) -> Json:
        return {"finish_reason": reason, "index": index, "delta": delta}

    def _chunk(self, choices: list[Json]) -> Json:
        return {
            "choices": choices,
            "created": self.created,
            "id": self.id,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "object": "chat.completion.chunk",
        }
