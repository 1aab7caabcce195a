"""Every path of the contract is found, and no other."""

from __future__ import annotations

import pytest

from slotgate.wire.routes import ROUTES, RouteKind, Shape, find_route

SLOT_PATHS = {
    "/completion": Shape.COMPLETION,
    "/completions": Shape.COMPLETION,
    "/infill": Shape.COMPLETION,
    "/v1/completions": Shape.OPENAI_COMPLETION,
    "/chat/completions": Shape.CHAT,
    "/v1/chat/completions": Shape.CHAT,
    "/v1/responses": Shape.RESPONSES,
    "/responses": Shape.RESPONSES,
    "/v1/messages": Shape.MESSAGES,
    "/embedding": Shape.EMBEDDING,
    "/embeddings": Shape.EMBEDDING,
    "/v1/embeddings": Shape.EMBEDDING,
    "/rerank": Shape.RERANK,
    "/reranking": Shape.RERANK,
    "/v1/rerank": Shape.RERANK,
    "/v1/reranking": Shape.RERANK,
    "/v1/audio/transcriptions": Shape.TRANSCRIPTION,
    "/audio/transcriptions": Shape.TRANSCRIPTION,
    "/v1/systemone": Shape.DECISION,
}
FREE = [
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/apply-template"),
    ("POST", "/chat/completions/input_tokens"),
    ("POST", "/v1/chat/completions/input_tokens"),
    ("POST", "/v1/chat/completions/control"),
    ("POST", "/responses/input_tokens"),
    ("POST", "/v1/responses/input_tokens"),
    ("POST", "/v1/messages/count_tokens"),
    ("GET", "/props"),
    ("POST", "/props"),
    ("GET", "/models"),
    ("GET", "/v1/models"),
    ("GET", "/lora-adapters"),
    ("POST", "/lora-adapters"),
]
OWN = ["/health", "/v1/health", "/ready", "/slots", "/metrics", "/queue"]


@pytest.mark.parametrize(("path", "shape"), SLOT_PATHS.items())
def test_paths_that_take_slots(path: str, shape: Shape) -> None:
    route = find_route("POST", path)
    assert route is not None
    assert (route.path, route.kind, route.shape) == (path, RouteKind.SLOT, shape)
    assert route.streams == (shape not in {Shape.EMBEDDING, Shape.RERANK, Shape.DECISION})


@pytest.mark.parametrize(("method", "path"), FREE)
def test_paths_that_pass_without_a_slot(method: str, path: str) -> None:
    route = find_route(method, path)
    assert route is not None
    assert (route.path, route.kind, route.streams) == (path, RouteKind.FREE, False)


@pytest.mark.parametrize("path", OWN)
def test_paths_of_our_own(path: str) -> None:
    route = find_route("GET", path)
    assert route is not None
    assert (route.path, route.kind) == (path, RouteKind.OWN)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_administration_is_one_route(method: str) -> None:
    route = find_route(method, "/-/backends/left/drain")
    assert route is not None
    assert route.kind is RouteKind.OWN


@pytest.mark.parametrize("path", ["/props", "/v1/models", "/health", "/slots"])
def test_head_is_answered_as_get(path: str) -> None:
    assert find_route("HEAD", path) is find_route("GET", path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("HEAD", "/completion"),
        ("PUT", "/completion"),
        ("POST", "/health"),
        ("POST", "/slots/0"),
        ("POST", "/slots"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "//completion"),
        ("POST", "/V1/chat/completions"),
        ("GET", "/v1/stream"),
        ("DELETE", "/v1/stream"),
        ("POST", "/v1/streams/lookup"),
        ("GET", "/tools"),
        ("POST", "/tools"),
        ("GET", "/cors-proxy"),
        ("POST", "/models/load"),
        ("POST", "/models/unload"),
        ("POST", "/models"),
        ("GET", "/"),
        ("GET", "/-"),
        ("get", "/health"),
        ("OPTIONS", "/health"),
        ("POST", ""),
    ],
)
def test_nothing_else_is_a_route(method: str, path: str) -> None:
    assert find_route(method, path) is None


def test_the_table_holds_nothing_that_is_not_listed_here() -> None:
    listed = {("POST", path) for path in SLOT_PATHS} | set(FREE) | {("GET", path) for path in OWN}
    listed |= {("HEAD", path) for method, path in listed if method == "GET"}
    assert set(ROUTES) == listed
