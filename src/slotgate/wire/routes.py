"""Which path takes slots, which passes, which is ours, and what shape its bodies have.

One exact table, no patterns: llama-server answers a wrong method or an unknown path with 404, and
a path that is not in the table must not reach a backend.  Left out on purpose are the paths that
act on one process and mean nothing, or harm, behind a pool: `/slots/{id}?action=`, `/v1/stream*`
(generations that survive their client), `/tools`, `/cors-proxy`, and a router's `/models/load`,
`/models/unload`, `/models/sse`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Shape(StrEnum):
    """How a route's bodies and streams look."""

    COMPLETION = "completion"  # llama.cpp's own: /completion, /completions, /infill
    OPENAI_COMPLETION = "openai_completion"
    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"  # Anthropic's
    EMBEDDING = "embedding"
    RERANK = "rerank"
    DECISION = "decision"  # /v1/systemone: scores the options of questions, generates nothing
    TRANSCRIPTION = "transcription"


class RouteKind(StrEnum):
    """What the gateway does with a request."""

    SLOT = "slot"  # goes through admission
    FREE = "free"  # passes to a backend without a slot
    OWN = "own"  # answered here; never takes a slot, never waits


@dataclass(frozen=True, slots=True)
class Route:
    """One path.  `streams` says whether its answer can be an event stream."""

    path: str
    kind: RouteKind
    shape: Shape | None = None
    streams: bool = False


ADMIN_PREFIX = "/-/"

_SLOT_PATHS: dict[Shape, tuple[str, ...]] = {
    Shape.COMPLETION: ("/completion", "/completions", "/infill"),
    Shape.OPENAI_COMPLETION: ("/v1/completions",),
    Shape.CHAT: ("/chat/completions", "/v1/chat/completions"),
    Shape.RESPONSES: ("/responses", "/v1/responses"),
    Shape.MESSAGES: ("/v1/messages",),
    Shape.EMBEDDING: ("/embedding", "/embeddings", "/v1/embeddings"),
    Shape.RERANK: ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"),
    Shape.DECISION: ("/v1/systemone",),
    Shape.TRANSCRIPTION: ("/audio/transcriptions", "/v1/audio/transcriptions"),
}
_WITHOUT_STREAM = frozenset({Shape.EMBEDDING, Shape.RERANK, Shape.DECISION})

# Bodies of these name a model too; their shape says how an error must look.
_FREE_PATHS: tuple[tuple[str, str, Shape | None], ...] = (
    ("POST", "/tokenize", None),
    ("POST", "/detokenize", None),
    ("POST", "/apply-template", Shape.CHAT),
    ("POST", "/chat/completions/input_tokens", Shape.CHAT),
    ("POST", "/v1/chat/completions/input_tokens", Shape.CHAT),
    ("POST", "/v1/chat/completions/control", Shape.CHAT),
    ("POST", "/responses/input_tokens", Shape.RESPONSES),
    ("POST", "/v1/responses/input_tokens", Shape.RESPONSES),
    ("POST", "/v1/messages/count_tokens", Shape.MESSAGES),
    ("GET", "/props", None),
    ("POST", "/props", None),
    ("GET", "/models", None),
    ("GET", "/v1/models", None),
    ("GET", "/lora-adapters", None),
    ("POST", "/lora-adapters", None),
)
_OWN_PATHS = ("/health", "/v1/health", "/ready", "/slots", "/metrics", "/queue")

_ADMIN = Route(ADMIN_PREFIX, RouteKind.OWN)


def _table() -> dict[tuple[str, str], Route]:
    routes: dict[tuple[str, str], Route] = {}
    for shape, paths in _SLOT_PATHS.items():
        for path in paths:
            streams = shape not in _WITHOUT_STREAM
            routes["POST", path] = Route(path, RouteKind.SLOT, shape, streams)
    for method, path, free_shape in _FREE_PATHS:
        routes[method, path] = Route(path, RouteKind.FREE, free_shape)
    for path in _OWN_PATHS:
        routes["GET", path] = Route(path, RouteKind.OWN)
    for method, path in [key for key in routes if key[0] == "GET"]:
        routes["HEAD", path] = routes[method, path]
    return routes


ROUTES = _table()


def find_route(method: str, path: str) -> Route | None:
    """Find the route of an upper-case method and an exact path without its query.

    Everything below `/-/` is the one administrative route, whatever the method.
    """
    route = ROUTES.get((method, path))
    if route is None and path.startswith(ADMIN_PREFIX):
        return _ADMIN
    return route
