"""Going on with a chat's answer on another backend, after the first one broke amid it.

The other backend gets the conversation with what was sent so far as the assistant's unfinished
turn, which llama-server continues (`--prefill-assistant`, on by default); its stream goes on under
the first one's name, without a second beginning, and its counts are those of the whole answer.
With a temperature of 0 the text is the same as without a break; else the dice fall anew from there.

It is done only where the client asked for it (`resume: true`) and where text is all there is to
carry over: no tools, no grammar, no probabilities, one answer, no reasoning apart from the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from slotgate.errors import BadRequestError
from slotgate.wire import prompt
from slotgate.wire.fields import (
    Fields,
    encode_fields,
    flag,
    has,
    items,
    parse_fields,
    small_value,
)
from slotgate.wire.progress import PROGRESS, ROLE_ONLY
from slotgate.wire.relay import StreamRelay
from slotgate.wire.routes import Shape
from slotgate.wire.sse import frame_data, is_comment
from slotgate.wire.usage import Usage, as_count, as_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slotgate.wire.request import Prepared

RESUME = "resume"
_END = b"\n\n"
# Each of these makes a part of the answer that text alone does not carry over.
_IN_THE_WAY = ("tools", "functions", "grammar", "json_schema", "logprobs", "n_probs")
_FLAGS_IN_THE_WAY = ("echo", "timings_per_token", "return_tokens", "verbose")
# What all chunks of one answer share.
_IDENTITY = ("id", "created", "model", "system_fingerprint")


def check(shape: Shape, fields: Fields, messages: Sequence[msgspec.Raw]) -> None:
    """Raise BadRequestError, naming the field, where an answer could not be resumed exactly."""
    if shape is not Shape.CHAT:
        raise BadRequestError("only chat completions can be resumed", param=RESUME)
    if (name := _obstacle(shape, fields, messages)) is not None:
        raise BadRequestError(
            f"an answer with '{name}' cannot be resumed exactly; leave out 'resume', or it",
            param=name,
        )


def _obstacle(shape: Shape, fields: Fields, messages: Sequence[msgspec.Raw]) -> str | None:
    for name in _IN_THE_WAY:
        if has(fields, name) and small_value(fields, name) not in ([], False, 0, ""):
            return name
    for name in _FLAGS_IN_THE_WAY:
        if flag(fields, name):
            return name
    if as_mapping(small_value(fields, "response_format")).get("type", "text") != "text":
        return "response_format"
    if prompt.completions_of(shape, fields) > 1:
        return "n"
    return "messages" if prompt.is_prefilled(fields, messages) else None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has of an answer: its text, how many tokens that was, and its chunks' name.

    `input_tokens` and `cached_tokens` of its prompt, as far as the backend has told.
    """

    text: str = ""
    tokens: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    identity: dict[str, Any] = msgspec.field(default_factory=dict)

    @override
    def __repr__(self) -> str:
        return f"Written({len(self.text)} characters, tokens={self.tokens})"


def rest_of(prepared: Prepared, written: Written) -> Prepared | None:
    """Return the request for the rest of the answer; None if its bound leaves nothing to write."""
    left = None if prepared.output_tokens is None else prepared.output_tokens - written.tokens
    if left is not None and left <= 0:
        return None
    fields = parse_fields(prepared.body)
    if written.text:
        turn = msgspec.json.encode({"role": "assistant", "content": written.text})
        fields["messages"] = msgspec.Raw(
            msgspec.json.encode([*items(fields["messages"]), msgspec.Raw(turn)])
        )
    if left is not None:
        fields[prompt.bound_name(Shape.CHAT, fields) or "max_tokens"] = msgspec.Raw(b"%d" % left)
    return replace(prepared, body=encode_fields(fields), output_tokens=left)


class ResumableRelay(StreamRelay):
    """Passes a chat's stream on in whole frames only, and remembers what it has passed on.

    With `before`, it is the rest of an answer that began elsewhere, and looks like it.
    """

    def __init__(self, shape: Shape, prepared: Prepared, before: Written | None = None) -> None:
        super().__init__(shape, prepared)
        self._before = before
        self._begun = b""
        # The frames that were passed on as they came from this backend.
        self._frames: list[bytes] = []
        self._prompt = Usage()

    @override
    def feed(self, data: bytes) -> bytes:
        whole, end, self._begun = (self._begun + super().feed(data)).rpartition(_END)
        return b"".join(self._passed_on(whole + end))

    @override
    def finish(self) -> bytes:
        begun, self._begun = self._begun, b""
        rest = begun + super().finish()
        return b"".join(self._passed_on(rest)) if self.has_terminator else b""

    @property
    @override
    def is_between_frames(self) -> bool:
        return True

    @property
    @override
    def has_untold_error(self) -> bool:
        """An error came: it was kept back, for the answer may yet go on."""
        return self.error is not None

    @override
    def usage(self) -> Usage:
        """Return what the whole answer has used, wherever it was written."""
        usage = super().usage()
        if self._before is None:
            return usage
        return self._whole_usage(usage)

    def written(self) -> Written | None:
        """Return what the client has so far; None where it cannot be gone on from."""
        before = self._before or Written()
        text, identity = [], dict(before.identity)
        for frame in self._frames:
            chunk = _decode(frame)
            if chunk is None:
                continue
            part = _text_of(chunk)
            if part is None:
                return None
            text.append(part)
            identity = identity or {name: chunk[name] for name in _IDENTITY if name in chunk}
        prompt_usage = self._prompt if self._before is None else self._whole_usage(Usage())
        return Written(
            text=before.text + "".join(text),
            tokens=before.tokens + self.token_frames,
            input_tokens=prompt_usage.input_tokens,
            cached_tokens=prompt_usage.cached_tokens,
            identity=identity,
        )

    @override
    def _note(self, frame: bytes) -> None:
        if PROGRESS in frame:
            progress = as_mapping((_decode(frame) or {}).get("prompt_progress"))
            self._prompt = Usage(
                input_tokens=as_count(progress.get("total")),
                cached_tokens=as_count(progress.get("cache")),
            )
        super()._note(frame)

    def _passed_on(self, frames: bytes) -> Iterator[bytes]:
        *whole, rest = frames.split(_END)
        for frame in [*(frame + _END for frame in whole), *([rest] if rest else [])]:
            if self.error is not None and "error" in (_decode(frame) or {}):
                continue
            self._frames.append(frame)
            yield frame if self._before is None else self._renamed(frame)

    def _renamed(self, frame: bytes) -> bytes:
        chunk = _decode(frame)
        if chunk is None:
            return frame
        if ROLE_ONLY in frame or PROGRESS in frame:
            return b""
        assert self._before is not None  # noqa: S101 - only then is anything renamed
        chunk |= {name: v for name, v in self._before.identity.items() if name in chunk}
        # Times of a part would be read as those of the whole.
        chunk.pop("timings", None)
        if chunk.get("usage"):
            chunk["usage"] = _usage_fields(self._whole_usage(super().usage()))
        return b"data: " + msgspec.json.encode(chunk) + _END

    def _whole_usage(self, part: Usage) -> Usage:
        before = self._before or Written()
        return replace(
            part,
            input_tokens=before.input_tokens or max(0, part.input_tokens - before.tokens),
            cached_tokens=before.cached_tokens,
            output_tokens=before.tokens + part.output_tokens,
        )


def _decode(frame: bytes) -> dict[str, Any] | None:
    """Return the chunk in a frame; None for a comment, the terminator and what is no JSON."""
    data = None if is_comment(frame) else frame_data(frame)
    try:
        return as_mapping(msgspec.json.decode(data or b"null")) or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text_of(chunk: dict[str, Any]) -> str | None:
    """Return the text that a chunk adds; None if it brings anything else, or the end."""
    choices = chunk.get("choices")
    choice = as_mapping(choices[0]) if isinstance(choices, list) and len(choices) == 1 else None
    if not choice or choice.get("finish_reason") is not None:
        return None
    delta = {n: v for n, v in as_mapping(choice.get("delta")).items() if v is not None}
    text = delta.pop("content", "")
    delta.pop("role", None)
    return text if isinstance(text, str) and not delta else None


def _usage_fields(usage: Usage) -> dict[str, Any]:
    return {
        "completion_tokens": usage.output_tokens,
        "prompt_tokens": usage.input_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
