"""Chat and text completions out of their chunks, with the keys in llama-server's own order.

What the answer has and no chunk does is only the concatenation; everything else is taken over in
its own bytes.  Of several sequences (`n`, a list of prompts) llama-server reports the usage and the
timings of the first alone, and so does this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from slotgate.wire.answers.native import Raw, as_whole

_CHUNK = msgspec.json.Decoder(dict[str, Raw])


class _FunctionDelta(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _FunctionDelta | None = None


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Logprobs(msgspec.Struct):
    content: list[Raw] | None = None


class _ChoiceDelta(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Chunk(msgspec.Struct):
    choices: list[_ChoiceDelta] = []


_CHOICES = msgspec.json.Decoder(_Chunk)


@dataclass(slots=True)
class _ToolCall:
    """One call; its arguments come in pieces, its name and id whole, maybe more than once."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def take(self, delta: _CallDelta) -> None:
        self.id = delta.id or self.id
        if delta.function is not None:
            self.name = delta.function.name or self.name
            self.arguments.append(delta.function.arguments or "")

    def answer(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        answer: dict[str, Any] = {"type": "function", "function": function}
        return answer | {"id": self.id} if self.id else answer


@dataclass(slots=True)
class _Choice:
    """What one sequence has said so far."""

    index: int
    finish_reason: str | None = None
    role: str = "assistant"
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: dict[int, _ToolCall] = field(default_factory=dict)
    logprobs: list[Raw] = field(default_factory=list)

    def take(self, change: _ChoiceDelta) -> None:
        delta = change.delta
        if delta is None:
            delta = _Delta(content=change.text)
        if delta.content:
            self.content.append(delta.content)
        if delta.reasoning_content:
            self.reasoning.append(delta.reasoning_content)
        if delta.role:
            self.role = delta.role
        for call in delta.tool_calls or ():
            self.tool_calls.setdefault(call.index, _ToolCall()).take(call)
        if change.logprobs is not None:
            self.logprobs += change.logprobs.content or ()
        if change.finish_reason:
            self.finish_reason = change.finish_reason

    @property
    def has_ended(self) -> bool:
        return self.finish_reason is not None

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": self.role, "content": "".join(self.content)}
        reasoning = "".join(self.reasoning)
        if reasoning:
            message["reasoning_content"] = reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.answer() for _, call in sorted(self.tool_calls.items())]
        return message


class _Sequences:
    """What each sequence of one request has said, from the chunks of all of them."""

    def __init__(self) -> None:
        # Index of the sequence -> what it has said.
        self._choices: dict[int, _Choice] = {}
        # A usage chunk names no sequence: it belongs to the one that has ended just before.
        self._ended_last: int | None = None

    def take(self, data: bytes) -> bool:
        """Take one chunk's JSON; tell whether it is the first sequence's, and after its text.

        Raises msgspec.DecodeError when it is no chunk.
        """
        index = self._ended_last
        for change in _CHOICES.decode(data).choices:
            index = change.index
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = _Choice(index)
            choice.take(change)
            if change.finish_reason is not None:
                self._ended_last = index
        if self._ended_last is None or index != min(self._choices):
            return False
        return self._choices[index].has_ended

    def in_order(self) -> list[_Choice]:
        return [choice for _, choice in sorted(self._choices.items())]


_CHAT_ORDER = ("choices", "created", "model", "system_fingerprint", "object", "usage", "id")


class ChatAnswer:
    """`/v1/chat/completions`."""

    def __init__(self) -> None:
        self._sequences = _Sequences()
        self._common: dict[str, Raw] = {}

    def take(self, event: bytes | None, data: bytes) -> None:
        if self._sequences.take(data):
            self._common |= _CHUNK.decode(data)

    def body(self) -> bytes:
        choices = [_chat_choice(choice) for choice in self._sequences.in_order()]
        found: dict[str, Any] = self._common | {"choices": choices, "object": "chat.completion"}
        timings = found.pop("timings", None)
        answer = {name: found[name] for name in _CHAT_ORDER if name in found} | found
        return msgspec.json.encode(answer | {"timings": timings} if timings else answer)


def _chat_choice(choice: _Choice) -> dict[str, Any]:
    answer = {
        "finish_reason": choice.finish_reason,
        "index": choice.index,
        "message": choice.message(),
    }
    return answer | {"logprobs": {"content": choice.logprobs}} if choice.logprobs else answer


class CompletionAnswer:
    """`/v1/completions`, whose last chunk is the answer but for its text."""

    def __init__(self) -> None:
        self._sequences = _Sequences()
        self._last: dict[str, Any] = {}

    def take(self, event: bytes | None, data: bytes) -> None:
        if self._sequences.take(data):
            self._last = _CHUNK.decode(data)

    def body(self) -> bytes:
        sequences = self._sequences.in_order()
        choices = [
            {
                "text": "".join(choice.content),
                "index": choice.index,
                "logprobs": {"content": choice.logprobs} if choice.logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for choice in sequences
        ]
        answer = self._last | {"choices": choices}
        if "__verbose" in answer:
            answer["__verbose"] = as_whole(answer["__verbose"], sequences[0].content)
        return msgspec.json.encode(answer)
