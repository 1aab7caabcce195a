"""A client's request, understood, and as it goes upstream.

What changes on the way (DESIGN.md A3, A5):

- `id_slot` is taken out: with it a client can overwrite another's running generation.
- A generation is asked for as a stream even when the client wants one answer, because llama-server
  notices at once that a *streaming* client has left; `wire.assemble` puts the answer together.
- `return_progress` is switched on, so that leaving is noticed during prefill too (0.2 s instead of
  a whole batch); `wire.relay` takes the progress out again for a client that did not ask for it.
  Anthropic's route drops the field, so there prefill stays deaf.
- `resume` is the gateway's own, and taken out (`wire.resume`).

Some answers cannot be put together from a stream, because llama-server's stream lacks a part of
them.  Those requests go upstream as the client sent them (`Prepared.upstream_stream` is false);
`_needs_whole_answer` lists them with their reasons.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from slotgate.errors import BadRequestError
from slotgate.wire import prompt, resume
from slotgate.wire.fields import (
    Fields,
    encode_fields,
    flag,
    has,
    parse_fields,
    small_value,
    text,
    whole,
)
from slotgate.wire.routes import Route, RouteKind, Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRUE = msgspec.Raw(b"true")
_INCLUDE_USAGE = msgspec.Raw(b'{"include_usage":true}')
# Fields that no other make knows, and that we may add.
_OWN = ("return_progress", "echo")
_GENERATIONS = frozenset(
    {
        Shape.COMPLETION,
        Shape.OPENAI_COMPLETION,
        Shape.CHAT,
        Shape.RESPONSES,
        Shape.MESSAGES,
    }
)
_OF_TEXT = frozenset({Shape.COMPLETION, Shape.OPENAI_COMPLETION})
_FORM_STREAM = re.compile(
    rb'name="?stream"?[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n\s*true\s*\r?\n', re.IGNORECASE
)
_FORM_MODEL = re.compile(
    rb'name="?model"?[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n([^\r\n]*)\r?\n', re.IGNORECASE
)


def _shown(prepared: Prepared) -> str:
    """Show no text of the user."""
    return (
        f"Prepared({len(prepared.body)} bytes, width={prepared.width}, model={prepared.model!r}, "
        f"wants_stream={prepared.wants_stream}, upstream_stream={prepared.upstream_stream})"
    )


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway must know of a request, and the bytes to send.

    `width` is slots taken at once, `completions` how many of these share a prompt; `text_bytes`
    bounds the prompt's tokens; `output_tokens` is the client's bound for each sequence.
    `wants_progress` and `wants_usage` say which extra frames the client asked for.
    `response_fields` are the parts of llama.cpp's own answer that the client wants instead of all.
    `may_resume`: should its backend fail, another may go on with the stream.
    `added` are fields of llama-server's own that the client did not send.  `has_end_mark`: on
    OpenAI's routes its stream ends with one.
    """

    body: bytes
    wants_stream: bool = False
    upstream_stream: bool = False
    width: int = 1
    completions: int = 1
    model: str | None = None
    text_bytes: int = 0
    output_tokens: int | None = None
    affinity: str | None = None
    wants_progress: bool = False
    wants_usage: bool = False
    upstream_progress: bool = False
    response_fields: tuple[str, ...] = ()
    may_resume: bool = False
    added: tuple[str, ...] = ()
    has_end_mark: bool = True

    __repr__ = _shown


def prepare(route: Route, body: bytes, *, content_type: str) -> Prepared:
    """Read a request and make what goes upstream.

    Raises BadRequestError when the body is not a JSON object, or a field that the gateway itself
    must understand has a wrong type.  All else that llama-server refuses is left to it.
    """
    if route.kind is not RouteKind.SLOT or route.shape is None:
        return _prepare_free(body)
    if route.shape is Shape.TRANSCRIPTION:
        return _prepare_form(body, content_type)
    fields = parse_fields(body)
    if route.shape in _GENERATIONS:
        return _prepare_generation(route.shape, fields, body)
    changed = fields.pop("id_slot", None) is not None
    return Prepared(
        body=encode_fields(fields) if changed else body,
        width=prompt.prompts_of(route.shape, fields),
        model=text(fields, "model", strict=True),
        text_bytes=prompt.text_bytes_of(route.shape, fields, body),
        output_tokens=0,
    )


def _prepare_free(body: bytes) -> Prepared:
    """Find the model's name if there is one; what it costs is nothing, so nothing is refused."""
    try:
        fields = parse_fields(body)
    except BadRequestError:
        return Prepared(body=body, output_tokens=0)
    return Prepared(body=body, model=text(fields, "model"), output_tokens=0)


def _prepare_form(body: bytes, content_type: str) -> Prepared:
    """Leave a form as it is: sounds are not text, and its fields have no place for options."""
    if not content_type.lower().startswith("multipart/"):
        raise BadRequestError("a transcription is asked for as multipart/form-data")
    wants_stream = _FORM_STREAM.search(body) is not None
    model = _FORM_MODEL.search(body)
    return Prepared(
        body=body,
        wants_stream=wants_stream,
        upstream_stream=wants_stream,
        model=model.group(1).decode(errors="replace").strip() or None if model else None,
    )


def _prepare_generation(shape: Shape, fields: Fields, body: bytes) -> Prepared:
    wants_stream = flag(fields, "stream", strict=True)
    messages = prompt.messages_of(shape, fields)
    completions = prompt.completions_of(shape, fields)
    if completions > 1 and bytes(fields.get("prompt", b"")) == b'""':
        # It would hold a slot until its client has had enough.
        raise BadRequestError(
            "llama-server never answers several choices of an empty prompt", param="prompt"
        )
    wants_progress = wants_stream and flag(fields, "return_progress")
    wants_usage = wants_stream and _includes_usage(fields)
    response_fields = _response_fields(fields) if shape is Shape.COMPLETION else ()
    size = prompt.text_bytes_of(shape, fields, body)

    may_resume = flag(fields, resume.RESUME, strict=True)
    if may_resume:
        resume.check(shape, fields, messages)
    changed = [fields.pop(name, None) for name in ("id_slot", resume.RESUME)] != [None, None]
    sent = set(fields)
    upstream_stream = wants_stream or not _needs_whole_answer(shape, fields, messages)
    if upstream_stream and not wants_stream:
        _ask_for_stream(shape, fields, messages)
        changed = True
    upstream_progress = upstream_stream and _has_progress(shape, completions)
    if upstream_progress and not wants_progress:
        fields["return_progress"] = _TRUE
        changed = True
    return Prepared(
        body=encode_fields(fields) if changed else body,
        wants_stream=wants_stream,
        upstream_stream=upstream_stream,
        width=prompt.prompts_of(shape, fields) * completions,
        completions=completions,
        model=text(fields, "model", strict=True),
        text_bytes=size,
        output_tokens=prompt.output_tokens_of(shape, fields),
        affinity=prompt.affinity_of(shape, fields, messages),
        wants_progress=wants_progress,
        wants_usage=wants_usage,
        upstream_progress=upstream_progress,
        response_fields=response_fields,
        may_resume=may_resume and wants_stream,
        added=tuple(name for name in _OWN if name in fields and name not in sent),
    )


def _includes_usage(fields: Fields) -> bool:
    options = small_value(fields, "stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _has_progress(shape: Shape, completions: int) -> bool:
    """Tell whether progress can be asked for, and taken out again.

    Anthropic's route drops the field; several responses at once cannot be told apart.
    """
    return shape is not Shape.MESSAGES and not (shape is Shape.RESPONSES and completions > 1)


def _response_fields(fields: Fields) -> tuple[str, ...]:
    names = small_value(fields, "response_fields")
    is_valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_valid else ()


def _ask_for_stream(shape: Shape, fields: Fields, messages: Sequence[msgspec.Raw]) -> None:
    """Change the fields so that a stream brings all that the whole answer has."""
    fields["stream"] = _TRUE
    if shape is Shape.CHAT:
        fields["stream_options"] = _INCLUDE_USAGE
        if prompt.is_prefilled(fields, messages):
            # A stream leaves out the assistant's turn that the client began; the answer has it.
            fields["echo"] = _TRUE
    if shape is Shape.COMPLETION:
        # They would thin out the final frame alone, even of its `stop`; `wire.assemble` does it.
        fields.pop("response_fields", None)


def _needs_whole_answer(shape: Shape, fields: Fields, messages: Sequence[msgspec.Raw]) -> bool:
    """Tell whether llama-server's stream of this request lacks a part of its answer.

    - chat with logprobs: a token that adds no text yet (the end, tool calls, held back) has no
      frame, so its probabilities are lost; with tools the stream is even refused;
    - probabilities with stop words: the answer drops as many of the last ones as the stop word
      has tokens, which no one outside can know;
    - `return_tokens`: the bytes of an unfinished character bring no frame, so tokens are missing;
    - `verbose` chat: the debug part holds the raw text, of which the stream shows the parsed one;
    - `deepseek-legacy`: reasoning is in the content in streams only;
    - several responses: their events do not say which is which;
    - Anthropic's continued turn: the stream leaves out what the client began, and the route has no
      `echo`.
    """
    if shape is Shape.CHAT:
        return _has_probabilities(fields) or _has_untold_text(fields)
    if shape in _OF_TEXT:
        has_stop = "stop" in fields and has(fields, "stop")
        return flag(fields, "return_tokens") or (has_stop and _has_probabilities(fields))
    if shape is Shape.RESPONSES:
        return prompt.completions_of(shape, fields) > 1
    return prompt.is_prefilled(fields, messages)


def _has_probabilities(fields: Fields) -> bool:
    """Read `n_probs`, or else `logprobs`: a number, and a flag on chat."""
    number = whole(fields, "n_probs")
    if number is None:
        number = whole(fields, "logprobs")
    return number > 0 if number is not None else flag(fields, "logprobs")


def _has_untold_text(fields: Fields) -> bool:
    is_legacy = text(fields, "reasoning_format") == "deepseek-legacy"
    return is_legacy or flag(fields, "verbose")
