"""Errors that must be the same, word for word."""

from __future__ import annotations

from typing import Any

NOT_FOUND = {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}


def _bad(message: str) -> dict[str, Any]:
    return {"error": {"code": 400, "message": message, "type": "invalid_request_error"}}


def _unsupported(message: str) -> dict[str, Any]:
    return {"error": {"code": 501, "message": message, "type": "not_supported_error"}}


def _internal(message: str) -> dict[str, Any]:
    return {"error": {"code": 500, "message": message, "type": "server_error"}}


_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

ERRORS: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("GET", "/nope", None, NOT_FOUND),
    ("POST", "/nope", {}, NOT_FOUND),
    ("GET", "/completion", None, NOT_FOUND),
    ("POST", "/health", {}, NOT_FOUND),
    ("PUT", "/completion", {}, NOT_FOUND),
    ("POST", "/completion", {}, _bad("[json.exception.out_of_range.403] key 'prompt' not found")),
    ("POST", "/completion", {"prompt": []}, _bad('"prompt" must not be empty')),
    (
        "POST",
        "/completion",
        {"prompt": 5},
        _bad(
            '"prompt" elements must be a string, a list of tokens, a JSON object containing a '
            "prompt string, or a list of mixed strings & tokens."
        ),
    ),
    (
        "POST",
        "/completion",
        [1, 2],
        _bad("[json.exception.type_error.304] cannot use at() with array"),
    ),
    (
        "POST",
        "/completion",
        {"prompt": "a", "n_predict": -5},
        _bad("Field 'n_predict': Value must be between -1 <= value <= 2147483647, but got -5"),
    ),
    (
        "POST",
        "/completion",
        {"prompt": "a", "n_predict": "x"},
        _bad(
            "Field 'n_predict': [json.exception.type_error.302] type must be number, but is string"
        ),
    ),
    (
        "POST",
        "/completion",
        {"prompt": "a", "stream": "yes"},
        _bad("Field 'stream': [json.exception.type_error.302] type must be boolean, but is string"),
    ),
    (
        "POST",
        "/v1/completions",
        {"prompt": "a", "n": 3},
        _bad("Field 'n': Value must be between 1 <= value <= 2, but got 3"),
    ),
    ("POST", "/v1/chat/completions", {}, _bad("'messages' is required")),
    (
        "POST",
        "/v1/chat/completions",
        {"messages": "x"},
        _bad("Expected 'messages' to be an array"),
    ),
    (
        "POST",
        "/v1/chat/completions",
        {"messages": [{"role": "user"}]},
        _bad("All non-assistant messages must contain 'content'"),
    ),
    (
        "POST",
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [_IMAGE]}]},
        _internal(
            "image input is not supported - hint: if this is unexpected, "
            "you may need to provide the mmproj"
        ),
    ),
    ("POST", "/apply-template", {}, _bad("'messages' is required")),
    ("POST", "/v1/responses", {}, _bad("'input' is required")),
    ("POST", "/v1/messages", {}, _internal("'messages' is required")),
    (
        "POST",
        "/v1/embeddings",
        {"input": "a"},
        _unsupported("This server does not support embeddings. Start it with `--embeddings`"),
    ),
    (
        "POST",
        "/rerank",
        {"query": "a", "documents": ["b"]},
        _unsupported("This server does not support reranking. Start it with `--reranking`"),
    ),
    (
        "POST",
        "/v1/audio/transcriptions",
        {},
        _unsupported("The current model does not support audio input."),
    ),
    (
        "POST",
        "/slots/0?action=erase",
        {},
        _unsupported("This server does not support slots action. Start it with `--slot-save-path`"),
    ),
    (
        "POST",
        "/props",
        {},
        _unsupported(
            "This server does not support changing global properties. Start it with `--props`"
        ),
    ),
]
