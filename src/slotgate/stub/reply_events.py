"""The two shapes whose frames have names: OpenAI's `/v1/responses`, Anthropic's `/v1/messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from slotgate.stub.reply import (
    Json,
    Reply,
    event_frame,
    finish_reason,
    progress_object,
    timings,
)

if TYPE_CHECKING:
    from slotgate.slotsim import Finished, Progressed, Result


class ResponsesReply(Reply):
    """`/v1/responses`: always `completed`, even when cut by a limit; no terminator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._response_id = self.id.replace("chatcmpl-", "resp_")
        self._item_id = self.id.replace("chatcmpl-", "msg_")
        self._is_created = False
        self._has_item = False

    @override
    def _progress(self, event: Progressed) -> bytes:
        progress = {"prompt_progress": progress_object(event)}
        return self._create() + self._in_progress(progress)

    @override
    def _token(self, index: int, number: int, text: str, extra: Json) -> bytes:
        first = b""
        if not self._is_created:
            first = self._create() + self._in_progress({})
        if not text:
            return first
        if not self._has_item:
            self._has_item = True
            first += self._open_item()
        return first + self._event(
            "response.output_text.delta", {"item_id": self._item_id, "delta": text}
        )

    @override
    def _final(self, event: Finished) -> bytes:
        text = self._text(event.result)
        head = b"" if self._is_created else self._create() + self._in_progress({})
        return head + (self._close_item(text) if text else b"") + self._completed(event, text)

    @override
    def _whole(self, results: list[Finished]) -> Any:
        result = results[0].result
        text = self._text(result)
        part = [self._part(text)]
        item = {
            "content": part,
            "id": self._item_id,
            "role": "assistant",
            "status": "completed",
            "type": "message",
        }
        return {
            "completed_at": self.created,
            "created_at": self.created,
            "id": self._response_id,
            "model": self.model,
            "object": "response",
            "output": [item] if text else [],
            "status": "completed",
            "usage": self._usage(result),
        }

    def _create(self) -> bytes:
        if self._is_created:
            return b""
        self._is_created = True
        return self._event("response.created", {"response": self._stub()})

    def _in_progress(self, more: Json) -> bytes:
        return self._event("response.in_progress", {"response": self._stub(), **more})

    def _open_item(self) -> bytes:
        item = {
            "content": [],
            "id": self._item_id,
            "role": "assistant",
            "status": "in_progress",
            "type": "message",
        }
        part = {"type": "output_text", "text": ""}
        return self._event("response.output_item.added", {"item": item}) + self._event(
            "response.content_part.added", {"item_id": self._item_id, "part": part}
        )

    def _close_item(self, text: str) -> bytes:
        return (
            self._event("response.output_text.done", {"item_id": self._item_id, "text": text})
            + self._event(
                "response.content_part.done", {"item_id": self._item_id, "part": self._part(text)}
            )
            + self._event("response.output_item.done", {"item": self._item(text)})
        )

    def _completed(self, event: Finished, text: str) -> bytes:
        response = {
            "id": self._response_id,
            "object": "response",
            "created_at": self.created,
            "status": "completed",
            "model": self.model,
            "output": [self._item(text)] if text else [],
            "usage": self._usage(event.result),
        }
        return self._event(
            "response.completed", {"response": response, "timings": timings(event.result)}
        )

    def _item(self, text: str) -> Json:
        return {
            "type": "message",
            "status": "completed",
            "id": self._item_id,
            "content": [self._part(text)],
            "role": "assistant",
        }

    @staticmethod
    def _part(text: str) -> Json:
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}

    @staticmethod
    def _usage(result: Result) -> Json:
        return {
            "input_tokens": result.prompt_tokens,
            "output_tokens": result.output_tokens,
            "total_tokens": result.prompt_tokens + result.output_tokens,
            "input_tokens_details": {"cached_tokens": result.cached_tokens},
        }

    @staticmethod
    def _event(name: str, value: Json) -> bytes:
        return event_frame(name, {"type": name, **value})

    def _stub(self) -> Json:
        return {"id": self._response_id, "object": "response", "status": "in_progress"}


class MessagesReply(Reply):
    """`/v1/messages`: the prompt's usage comes with the first token, the output's at the end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_block = False

    @override
    def failed(self, error: Json) -> bytes:
        return event_frame("error", error)

    @override
    def _progress(self, event: Progressed) -> bytes:
        return b""

    @override
    def _token(self, index: int, number: int, text: str, extra: Json) -> bytes:
        head = b""
        if number == 1:
            message = self._message(
                [], None, self._usage(self._cached, self._prompt_tokens(index), 0)
            )
            head = self._event("message_start", {"message": message})
        if not text:
            return head
        if not self._has_block:
            self._has_block = True
            head += self._event(
                "content_block_start",
                {"index": 0, "content_block": {"type": "text", "text": ""}},
            )
        delta = {"type": "text_delta", "text": text}
        return head + self._event("content_block_delta", {"index": 0, "delta": delta})

    @override
    def _final(self, event: Finished) -> bytes:
        result = event.result
        stop = self._event("content_block_stop", {"index": 0}) if self._has_block else b""
        delta = {
            "delta": {"stop_reason": self._reason(result), "stop_sequence": None},
            "usage": {"output_tokens": result.output_tokens},
        }
        return stop + self._event("message_delta", delta) + self._event("message_stop", {})

    @override
    def _whole(self, results: list[Finished]) -> Any:
        result = results[0].result
        text = self._text(result)
        content = [{"type": "text", "text": text}] if text else []
        usage = self._usage(result.cached_tokens, result.prompt_tokens, result.output_tokens)
        return self._message(content, self._reason(result), usage)

    def _message(self, content: list[Json], reason: str | None, usage: Json) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    @staticmethod
    def _reason(result: Result) -> str:
        return "max_tokens" if finish_reason(result) == "length" else "end_turn"

    @staticmethod
    def _usage(cached: int, prompt: int, output: int) -> Json:
        return {
            "cache_read_input_tokens": cached,
            "input_tokens": prompt - cached,
            "output_tokens": output,
        }

    @staticmethod
    def _event(name: str, value: Json) -> bytes:
        return event_frame(name, {"type": name, **value})
