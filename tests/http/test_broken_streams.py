"""Streams whose backend fails: tokens that have been made are delivered, then the error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.http.rig import CHAT, chat, gateway_at
from tests.http.test_odd_backends import backend, stream

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Broken:
    """A route's stream: a frame before any token, a token's, and the backend's error."""

    path: str
    body: dict[str, Any]
    opening: bytes
    token: bytes
    error: bytes


ERROR = b'{"error":{"code":500,"message":"Compute error.","type":"server_error"}}'
MESSAGES_ERROR = (
    b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"Compute error."}}'
)
CASES = [
    Broken(
        CHAT,
        chat(),
        b'data: {"choices":[{"finish_reason":null,"index":0,'
        b'"delta":{"role":"assistant","content":null}}]}\n\n',
        b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}],'
        b'"object":"chat.completion.chunk"}\n\n',
        b"data: " + ERROR,
    ),
    Broken(
        "/v1/completions",
        {"prompt": "x"},
        b"",
        b'data: {"choices":[{"text":"Hi","index":0,"logprobs":null,"finish_reason":null}]}\n\n',
        b"data: " + ERROR,
    ),
    Broken(
        "/completion",
        {"prompt": "x"},
        b"",
        b'data: {"index":0,"content":"Hi","tokens":[1],"stop":false}\n\n',
        b"data: " + ERROR,
    ),
    Broken(
        "/v1/responses",
        {"input": "x"},
        b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n',
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
        b'"delta":"Hi"}\n\n',
        b"data: " + ERROR,
    ),
    Broken(
        "/v1/messages",
        chat(),
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":{}}}\n\n',
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"Hi"}}\n\n',
        MESSAGES_ERROR,
    ),
]
ROUTES = pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)


def asked(case: Broken, *, wants_stream: bool) -> dict[str, Any]:
    return {**case.body, "stream": wants_stream}


@ROUTES
async def test_tokens_that_come_together_with_an_error_are_delivered_before_it(
    case: Broken,
) -> None:
    broken = case.opening + case.token * 2 + case.error + b"\n\n"
    async with backend(stream(broken)) as url, gateway_at(url) as rig:
        answer = await rig.post(case.path, asked(case, wants_stream=True))
        assert answer.status == 200
        assert answer.body == broken
        page = (await rig.get("/metrics")).body.decode()
        assert 'slotgate_output_tokens_total{backend="stub"} 2.0' in page
        assert f'slotgate_requests_total{{outcome="failed",route="{case.path}"}} 1.0' in page


@ROUTES
async def test_an_error_before_any_token_has_its_status(case: Broken) -> None:
    broken = case.opening + case.error + b"\n\n"
    async with backend(stream(broken)) as url, gateway_at(url) as rig:
        answer = await rig.post(case.path, asked(case, wants_stream=True))
        assert answer.status == 500
        assert answer.json()["error"]["message"] == "Compute error."


@ROUTES
async def test_who_wanted_a_whole_answer_gets_the_error_and_no_half_of_it(case: Broken) -> None:
    broken = case.opening + case.token * 2 + case.error + b"\n\n"
    async with backend(stream(broken)) as url, gateway_at(url) as rig:
        answer = await rig.post(case.path, asked(case, wants_stream=False))
        assert answer.status == 500
        assert answer.json()["error"]["message"] == "Compute error."
        assert b"Hi" not in answer.body


# A router says in a bare line that its child has died, builds of 2025 name errors like a field: no
# client of events sees either.
BARE = [b"proxy error: Failed to read connection\n", b'error: {"code":500,"message":"Boo"}\n\n']


@ROUTES
@pytest.mark.parametrize("line", BARE, ids=["proxy error", "error"])
async def test_an_error_that_is_no_event_is_told_as_one_after_the_tokens(
    case: Broken, line: bytes
) -> None:
    async with backend(stream(case.token, line)) as url, gateway_at(url) as rig:
        answer = await rig.post(case.path, asked(case, wants_stream=True))
        assert answer.status == 200
        assert answer.body.startswith(case.token + line)
        last = answer.body.rstrip().rpartition(b"\n\n")[2]
        is_named = case.path in {"/v1/messages", "/v1/responses"}
        assert last.startswith(b"event: error\n") == is_named
        data = json.loads(last.partition(b"data: ")[2])
        assert data["error"]["message"] in {"proxy error: Failed to read connection", "Boo"}
        assert answer.body.count(b"data: ") == 2


@ROUTES
@pytest.mark.parametrize("line", BARE, ids=["proxy error", "error"])
async def test_an_error_that_is_no_event_and_comes_first_has_its_status(
    case: Broken, line: bytes
) -> None:
    async with backend(stream(line)) as url, gateway_at(url) as rig:
        answer = await rig.post(case.path, asked(case, wants_stream=True))
        assert answer.status == 500
        assert b"internal_error" not in answer.body
