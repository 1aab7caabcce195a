"""What a client gets from a gateway that is not full."""

from __future__ import annotations

import json

import pytest

from slotgate.stub import Build, StubOptions
from tests.http.rig import CHAT, chat, gateway

pytestmark = pytest.mark.anyio

GENERATIONS = {
    "/completion": {"prompt": "hello", "n_predict": 4},
    "/completions": {"prompt": "hello", "n_predict": 4},
    "/v1/completions": {"prompt": "hello", "max_tokens": 4},
    "/chat/completions": chat(),
    CHAT: chat(),
    "/v1/responses": {"input": "hello", "max_output_tokens": 4},
    "/responses": {"input": "hello", "max_output_tokens": 4},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 4},
}


@pytest.mark.parametrize("path", GENERATIONS)
async def test_an_answer_is_the_backends_own_though_it_went_up_as_a_stream(path: str) -> None:
    async with gateway() as rig:
        answer = await rig.post(path, GENERATIONS[path])
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["x-slotgate-backend"] == "stub"
        assert answer.headers["x-slotgate-queue-ms"] == "0"
        assert answer.headers["x-request-id"]
        [record] = rig.stub.observed.records
        assert json.loads(record.body)["stream"] is True


@pytest.mark.parametrize("path", GENERATIONS)
async def test_a_stream_passes_with_its_terminator(path: str) -> None:
    async with gateway() as rig:
        answer = await rig.post(path, {**GENERATIONS[path], "stream": True})
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert b"prompt_progress" not in answer.body
        ends = (b"data: [DONE]\n\n", b'"type":"message_stop"}\n\n')
        is_native = path in {"/completion", "/completions", "/infill"}
        is_responses = path.endswith("responses")
        assert is_native or is_responses or answer.body.endswith(ends)
        assert not is_responses or b"event: response.completed" in answer.body


async def test_the_slot_is_free_again_after_every_kind_of_end() -> None:
    async with gateway() as rig:
        await rig.post(CHAT, chat())
        await rig.post(CHAT, chat(stream=True))
        await rig.post(CHAT, {"messages": 5})
        await rig.wait_until(lambda counts: counts.idle == counts.slots == 4)
        assert rig.app.driver.books("stub").width == 0


@pytest.mark.parametrize("build", list(Build))
async def test_every_generation_of_builds_is_understood(build: Build) -> None:
    async with gateway(StubOptions(decode=0, slots=3, ctx=1024, build=build)) as rig:
        assert rig.counts.slots == 3
        assert (await rig.post(CHAT, chat())).status == 200
        slots = (await rig.get("/slots")).json()
        assert [slot["is_processing"] for slot in slots] == [False] * 3


async def test_a_backend_without_slots_endpoint_serves() -> None:
    async with gateway(StubOptions(decode=0, has_slots=False, has_metrics=False)) as rig:
        assert rig.counts.slots == 4
        assert (await rig.post(CHAT, chat())).status == 200
        assert len((await rig.get("/slots")).json()) == 4


async def test_a_backend_behind_a_key_and_a_prefix_serves() -> None:
    key = "a-key-that-nobody-guesses"
    stub = StubOptions(decode=0, api_keys=(key,), api_prefix="/llm")
    backend = {"api_key_env": "BACKEND_KEY"}
    async with gateway(stub, backend=backend, env={"BACKEND_KEY": key}) as rig:
        assert (await rig.get("/slots")).json()[0]["backend"] == "stub"
        assert (await rig.post(CHAT, chat())).status == 200
        assert (await rig.get("/v1/models")).status == 200


async def test_a_backend_that_wants_another_key_is_not_used_and_the_reason_is_shown() -> None:
    stub = StubOptions(decode=0, api_keys=("a-key-that-nobody-guesses",))
    async with gateway(stub) as rig:
        assert (await rig.post(CHAT, chat())).code == "no_backend"
        assert "API key" in (await rig.get("/ready")).json()["backends"]["stub"]["why"]


async def test_requests_without_a_slot_pass_even_when_all_slots_are_busy() -> None:
    async with gateway(StubOptions(decode=1, slots=1)) as rig:
        async with rig.open("POST", CHAT, chat(100, stream=True)) as held:
            await held.open()
            await rig.wait_until(lambda counts: counts.idle == 0)
            assert (await rig.post("/tokenize", {"content": "hello"})).status == 200
            assert (await rig.get("/v1/models")).status == 200
            assert (await rig.get("/props")).json()["total_slots"] == 1
            counted = await rig.post("/v1/chat/completions/input_tokens", chat())
            assert counted.json()["input_tokens"] > 0
            for path in ("/health", "/ready", "/metrics", "/queue", "/slots"):
                assert (await rig.get(path)).status == 200


async def test_the_backends_own_refusal_passes_unchanged() -> None:
    async with gateway() as rig:
        answer = await rig.post(CHAT, {"model": "x"})
        assert answer.status == 400
        assert "messages" in answer.json()["error"]["message"]
        assert "src" not in answer.json()


async def test_a_number_in_a_field_of_llama_cpp_passes_unchanged() -> None:
    async with gateway() as rig:
        body = b'{"prompt":"x","n_predict":1,"temperature":0.10000000000000001,"other":[1E2]}'
        assert (await rig.post("/completion", body)).status == 200
        [record] = rig.stub.observed.records
        assert b'"temperature":0.10000000000000001,"other":[1E2]' in record.body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b'{"messages":[],"stream":"yes"}',
        b'{"messages":"hello"}',
        b'{"messages":[],"n":"two"}',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"messages":' + b"[" * 100_000,
    ],
    ids=["empty", "cut", "list", "words", "stream", "messages", "n", "utf8", "deep", "deeper"],
)
async def test_a_malformed_body_is_refused_in_words_and_never_reaches_a_backend(
    body: bytes,
) -> None:
    async with gateway() as rig:
        answer = await rig.post(CHAT, body)
        assert answer.status == 400
        assert answer.json()["src"] == "slotgate"
        assert answer.headers["x-should-retry"] == "false"
        assert not rig.stub.observed.records


async def test_the_anthropic_route_has_anthropics_errors() -> None:
    async with gateway() as rig:
        answer = await rig.post("/v1/messages", b"{")
        assert answer.status == 400
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read() -> None:
    async with gateway(limits__max_body_bytes=4096) as rig:
        answer = await rig.post(CHAT, bytes(10_000))
        assert answer.status == 413
        assert "limits.max_body_bytes is 4096" in answer.json()["error"]["message"]


async def test_an_unknown_path_is_llama_servers_404() -> None:
    async with gateway() as rig:
        for method, path in (("GET", "/nope"), ("GET", CHAT), ("DELETE", "/v1/stream")):
            answer = await rig.ask(method, path)
            assert answer.status == 404
            assert "File Not Found" in answer.json()["error"]["message"]


async def test_what_could_harm_other_clients_stops_here() -> None:
    async with gateway() as rig:
        headers = [(b"x-conversation-id", b"7"), (b"authorization", b"Bearer secret-of-client")]
        await rig.post(CHAT, chat(id_slot=0), headers)
        [record] = rig.stub.observed.records
        assert "id_slot" not in json.loads(record.body)
        names = {name.lower() for name in record.headers}
        assert "x-conversation-id" not in names
        assert "authorization" not in names


async def test_a_request_id_of_the_client_is_echoed_if_it_is_fit_to_be() -> None:
    async with gateway() as rig:
        answer = await rig.post(CHAT, chat(), [(b"x-request-id", b"mine-1")])
        assert answer.headers["x-request-id"] == "mine-1"
        answer = await rig.post(CHAT, chat(), [(b"x-request-id", b"x" * 500)])
        assert answer.headers["x-request-id"] != "x" * 500


async def test_a_browser_may_ask_from_another_origin() -> None:
    async with gateway() as rig:
        answer = await rig.ask("OPTIONS", CHAT, None, [(b"origin", b"http://elsewhere.test")])
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers
