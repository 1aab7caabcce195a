"""The routes that only turn text into tokens, or count them: no slot, no waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.stub.answers import json_answer
from slotgate.stub.ask import chat_text, count_tokens, messages_text, read_json
from slotgate.stub.options import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slotgate.stub.ask import Body, Json
    from slotgate.stub.connection import Answer, Request


def apply_template(request: Request) -> Answer:
    return json_answer({"prompt": chat_text(read_json(request.body))})


def tokenize(request: Request) -> Answer:
    data = read_json(request.body)
    content = data.get("content", "")
    parts = content if isinstance(content, list) else [content]
    ids = [token for part in parts for token in _tokens(part)]
    if not data.get("with_pieces"):
        return json_answer({"tokens": ids})
    return json_answer({"tokens": [{"id": token, "piece": _text((token,))} for token in ids]})


def _tokens(part: Json) -> list[int]:
    """Make tokens of a text; what is a token already stays one."""
    if isinstance(part, int):
        return [part]
    text = part.encode() if isinstance(part, str) else b""
    pieces = (text[at : at + BYTES_PER_TOKEN] for at in range(0, len(text), BYTES_PER_TOKEN))
    return [int.from_bytes(piece, "big") for piece in pieces]


def detokenize(request: Request) -> Answer:
    return json_answer({"content": _text(read_json(request.body).get("tokens", []))})


def _text(tokens: Iterable[Json]) -> str:
    pieces = (
        token.to_bytes(max(1, -(-token.bit_length() // 8)), "big")
        for token in tokens
        if isinstance(token, int) and 0 <= token < 1 << 32
    )
    return b"".join(pieces).decode(errors="replace")


def counting(text: Callable[[Body], str]) -> Callable[[Request], Answer]:
    def count(request: Request) -> Answer:
        tokens = count_tokens(text(read_json(request.body))).tokens
        return json_answer({"input_tokens": tokens, "object": "response.input_tokens"})

    return count


def count_messages(request: Request) -> Answer:
    return json_answer(
        {"input_tokens": count_tokens(messages_text(read_json(request.body))).tokens}
    )
