"""The routes that only turn text into tokens, or count them: no slot, no waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.stub.answers import json_answer
from slotgate.stub.ask import chat_text, count_tokens, messages_text, read_json
from slotgate.stub.options import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.stub.ask import Body
    from slotgate.stub.connection import Answer, Request


def apply_template(request: Request) -> Answer:
    return json_answer({"prompt": chat_text(read_json(request.body))})


def tokenize(request: Request) -> Answer:
    data = read_json(request.body)
    content = data.get("content", "")
    text = (content if isinstance(content, str) else "").encode()
    pieces = [text[at : at + BYTES_PER_TOKEN] for at in range(0, len(text), BYTES_PER_TOKEN)]
    ids = [int.from_bytes(piece, "big") for piece in pieces]
    if not data.get("with_pieces"):
        return json_answer({"tokens": ids})
    texts = [piece.decode(errors="replace") for piece in pieces]
    named = [{"id": token, "piece": text} for token, text in zip(ids, texts, strict=True)]
    return json_answer({"tokens": named})


def detokenize(request: Request) -> Answer:
    tokens = read_json(request.body).get("tokens", [])
    text = b"".join(
        token.to_bytes(max(1, -(-token.bit_length() // 8)), "big")
        for token in tokens
        if isinstance(token, int) and 0 <= token < 1 << 32
    )
    return json_answer({"content": text.decode(errors="replace")})


def counting(text: Callable[[Body], str]) -> Callable[[Request], Answer]:
    def count(request: Request) -> Answer:
        tokens = count_tokens(text(read_json(request.body))).tokens
        return json_answer({"input_tokens": tokens, "object": "response.input_tokens"})

    return count


def count_messages(request: Request) -> Answer:
    return json_answer(
        {"input_tokens": count_tokens(messages_text(read_json(request.body))).tokens}
    )
