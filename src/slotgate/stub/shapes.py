"""The shapes of answers that generate text, and the paths that have them.

The gateway has such a list too.  This one is the stub's own, on purpose: a double that shared code
with what it tests would share its mistakes.
"""

from __future__ import annotations

from enum import StrEnum


class Shape(StrEnum):
    """How a route's answers look."""

    NATIVE = "native"
    COMPLETION = "completion"
    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    INFILL = "infill"
    EMBEDDING = "embedding"
    OPENAI_EMBEDDING = "openai_embedding"
    RERANK = "rerank"


WORK_PATHS: dict[str, Shape] = {
    "/completion": Shape.NATIVE,
    "/completions": Shape.NATIVE,
    "/infill": Shape.INFILL,
    "/v1/completions": Shape.COMPLETION,
    "/chat/completions": Shape.CHAT,
    "/v1/chat/completions": Shape.CHAT,
    "/responses": Shape.RESPONSES,
    "/v1/responses": Shape.RESPONSES,
    "/v1/messages": Shape.MESSAGES,
    "/embedding": Shape.EMBEDDING,
    "/embeddings": Shape.EMBEDDING,
    "/v1/embeddings": Shape.OPENAI_EMBEDDING,
    "/rerank": Shape.RERANK,
    "/reranking": Shape.RERANK,
    "/v1/rerank": Shape.RERANK,
    "/v1/reranking": Shape.RERANK,
}
