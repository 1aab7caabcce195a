"""The stub as a double: what it is told to be, and what it says it saw."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys

import pytest

from slotgate.errors import ConfigError
from slotgate.stub import Build, Outcome, StubServer
from slotgate.stub.options import parse_curve
from tests.polling import wait_until
from tests.stub.client import call, chat, fetch, stub

pytestmark = [pytest.mark.anyio, pytest.mark.process]

CHAT = "/v1/chat/completions"


async def test_it_tells_what_it_saw_of_each_request() -> None:
    async with stub() as server:
        await fetch(server, CHAT, chat(3), x_who="me")
        (record,) = server.observed.records
        assert (record.path, record.headers["x-who"]) == (CHAT, "me")
        assert json.loads(record.body)["max_tokens"] == 3
        assert (record.status, record.output_tokens, record.outcome) == (200, 3, Outcome.COMPLETED)
        assert record.started_at is not None
        assert record.first_token_at is not None
        assert record.ended_at is not None
        assert record.arrived_at <= record.started_at <= record.first_token_at <= record.ended_at


async def test_it_tells_how_many_were_there_at_once_and_how_many_it_put_off() -> None:
    async with stub(slots=2) as server:
        callers = [await call(server, CHAT, chat(40)) for _ in range(5)]
        await wait_until(lambda: server.observed.deferred == 3)
        assert server.observed.in_flight == 5
        for caller in callers:
            await caller.rest()
            await caller.leave()
        observed = server.observed
        assert (observed.in_flight, observed.max_in_flight) == (0, 5)
        assert (observed.deferred, observed.max_deferred) == (0, 3)
        assert observed.completed == 5


async def test_a_stream_that_was_left_is_seen_abandoned_then_cancelled() -> None:
    async with stub() as server:
        caller = await call(server, CHAT, chat(400))
        await caller.until(b"tok1 ")
        await caller.leave()
        await wait_until(lambda: server.observed.cancelled == 1)
        (record,) = server.observed.records
        assert record.outcome is Outcome.ABANDONED
        assert record.ended_at is not None
        assert record.cancelled_at is not None
        assert record.ended_at <= record.cancelled_at


async def test_an_abandoned_answer_that_came_to_its_end_was_never_cancelled() -> None:
    async with stub() as server:
        caller = await call(server, CHAT, chat(20, stream=False))
        await wait_until(lambda: server.observed.in_flight == 1)
        await caller.leave()
        busy = await call(server, CHAT, chat(60))
        await busy.rest()
        await busy.leave()
        assert (server.observed.abandoned, server.observed.cancelled) == (1, 0)


async def test_a_refusal_is_a_completed_request_too() -> None:
    async with stub() as server:
        status, _ = await fetch(server, CHAT, {})
        (record,) = server.observed.records
        assert (status, record.status, record.outcome) == (400, 400, Outcome.COMPLETED)


async def test_a_text_ends_by_itself_after_the_scripted_length() -> None:
    async with stub(output_tokens=3) as server:
        _, body = await fetch(server, CHAT, chat(50, stream=False))
        choice = json.loads(body)["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "tok1 tok2 ")
        assert json.loads(body)["usage"]["completion_tokens"] == 3
        _, text = await fetch(server, CHAT, chat(50))
        assert b'"finish_reason":"stop"' in text
        assert b"tok3" not in text


async def test_speed_makes_everything_faster() -> None:
    async with stub(decode=10.0, speed=100.0) as server:
        await fetch(server, CHAT, chat(20))
        (record,) = server.observed.records
        assert record.ended_at is not None
        assert record.ended_at - record.arrived_at < 1.0


async def test_what_a_fast_stub_says_it_took_is_what_its_clients_saw() -> None:
    async with stub(decode=10.0, prefill=100.0, speed=100.0) as server:
        _, text = await fetch(server, CHAT, chat(21, stream=False, content="x" * 800))
        timings = json.loads(text)["timings"]
        assert timings["predicted_ms"] == pytest.approx(20 / 10 / 100 * 1000)
        assert timings["predicted_per_second"] == pytest.approx(1000)
        assert timings["prompt_per_second"] == pytest.approx(10_000, rel=0.2)
        _, metrics = await fetch(server, "/metrics")
        (total,) = re.findall(rb"\nllamacpp:tokens_predicted_seconds_total (\S+)", metrics)
        assert float(total) == pytest.approx(0.02)


async def test_a_curve_makes_each_slower_when_more_are_busy() -> None:
    async with stub(curve=((1, 400.0), (2, 40.0))) as server:
        alone = await call(server, CHAT, chat(8))
        await alone.rest()
        await alone.leave()
        both = [await call(server, CHAT, chat(8)) for _ in range(2)]
        for caller in both:
            await caller.rest()
            await caller.leave()
        first, second, _ = server.observed.records
        assert first.ended_at is not None
        assert second.ended_at is not None
        assert second.ended_at - second.arrived_at > 3 * (first.ended_at - first.arrived_at)


async def test_an_idle_connection_is_closed() -> None:
    async with stub(keep_alive_seconds=0.05) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await writer.wait_closed()


async def test_it_can_be_started_again_after_it_was_stopped() -> None:
    server = StubServer()
    with pytest.raises(RuntimeError, match="does not listen"):
        _ = server.port
    with pytest.raises(RuntimeError, match="was not started"):
        _ = server.observed
    await server.stop()
    for _ in range(2):
        await server.start()
        assert (await fetch(server, "/health"))[0] == 200
        await server.stop()


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_just_accepted_is_closed_too(turns: int) -> None:
    server = StubServer()
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


async def test_old_builds_count_slots_in_health() -> None:
    async with stub(build=Build.OLD, slots=1) as server:
        status, body = await fetch(server, "/health?fail_on_no_slot=1")
        assert (status, json.loads(body)) == (
            200,
            {"status": "ok", "slots_idle": 1, "slots_processing": 0},
        )
        caller = await call(server, CHAT, chat(100))
        await caller.until(b"tok1 ")
        full = {"status": "no slot available", "slots_idle": 0, "slots_processing": 1}
        for path, expected in (("/health", 200), ("/health?fail_on_no_slot", 503)):
            status, body = await fetch(server, path)
            assert (status, json.loads(body)) == (expected, full)
        await caller.leave()
        await wait_until(lambda: server.observed.cancelled == 1)
        (slot,) = json.loads((await fetch(server, "/slots"))[1])
        assert (slot["state"], slot["next_token"]["n_decoded"], slot["temperature"] > 0) == (
            0,
            0,
            True,
        )
        assert "is_processing" not in slot


async def test_an_old_build_that_loads_says_so_in_its_own_words() -> None:
    async with stub(build=Build.OLD, load_seconds=1000.0) as server:
        assert await fetch(server, "/health") == (503, b'{"status":"loading model"}')


async def test_middle_builds_show_the_prompt_and_one_next_token() -> None:
    async with stub(build=Build.MIDDLE) as server:
        assert await fetch(server, "/health") == (200, b'{"status":"ok"}')
        await fetch(server, "/completion", {"prompt": "a secret", "n_predict": 1})
        fresh, used = json.loads((await fetch(server, "/slots"))[1])
        assert (fresh["id_task"], fresh["prompt"]) == (-1, "")
        assert (used["is_processing"], used["prompt"]) == (False, "a secret")
        assert used["next_token"]["n_decoded"] == 0


async def test_reranking_scores_each_document_in_a_slot_of_its_own() -> None:
    async with stub(reranking=True, embeddings=True) as server:
        body = {"query": "a", "documents": ["b", "c", "d"]}
        answer = json.loads((await fetch(server, "/v1/rerank", body))[1])
        assert [result["index"] for result in answer["results"]] == [0, 1, 2]
        assert (await fetch(server, "/v1/rerank", {"query": "a"}))[0] == 400
        assert (await fetch(server, "/v1/rerank", {"documents": ["a"]}))[0] == 400
        assert (await fetch(server, "/v1/embeddings", {}))[0] == 400


async def test_infill_answers_in_the_native_shape() -> None:
    async with stub() as server:
        body = {"input_prefix": "def f(", "input_suffix": "):", "n_predict": 2}
        assert json.loads((await fetch(server, "/infill", body))[1])["content"] == "tok1 tok2 "
        assert (await fetch(server, "/infill", {"input_prefix": "x"}))[0] == 400
        assert (await fetch(server, "/infill", body | {"input_suffix": 1}))[0] == 400


async def test_an_input_too_long_for_the_batch_is_not_embedded() -> None:
    async with stub(embeddings=True, batch=8) as server:
        status, body = await fetch(server, "/embedding", {"content": "x" * 100})
        assert (status, json.loads(body)["error"]["message"]) == (
            500,
            "input (25 tokens) is too large to process. increase the physical batch size "
            "(current batch size: 8)",
        )


@pytest.mark.parametrize("text", ["1", "1:x", "0:5", "2:0"])
async def test_a_curve_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--curve"):
        parse_curve(text)


async def test_a_curve_is_read_from_its_points() -> None:
    assert parse_curve("1:40,8:14.5") == ((1, 40.0), (8, 14.5))
    assert parse_curve("") == ()


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_text_survives_the_tokenizer(path: str) -> None:
    async with stub() as server:
        tokens = json.loads((await fetch(server, "/tokenize", {"content": "größer 5"}))[1])
        assert len(tokens["tokens"]) == 3
        assert json.loads((await fetch(server, "/detokenize", tokens))[1]) == {
            "content": "größer 5"
        }
        assert (await fetch(server, path, []))[0] == 400


async def test_the_command_serves_until_it_is_told_to_end() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.stub.command",
        *("--listen", "127.0.0.1:0", "--slots", "3", "--decode", "0", "--unified"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
    found = re.fullmatch(
        r"slotgate: ready on http://127\.0\.0\.1:(\d+), a stub with 3 slots of 4096 tokens\n", line
    )
    assert found
    reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
    writer.write(b"GET /slots HTTP/1.0\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 5)).count(b'"n_ctx":4096') == 3
    writer.close()
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 5) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "nowhere"], "--listen nowhere: expected HOST:PORT"),
        (["--fault", "gremlins"], "--fault gremlins: expected NAME or NAME:NUMBER"),
        (["--curve", "x"], "--curve x: expected BUSY:RATE"),
    ],
)
async def test_the_command_says_what_is_wrong(arguments: list[str], message: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stub.command", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, message in errors.decode()) == (2, True)


async def test_the_command_fails_when_the_fault_exits_strikes() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.stub.command",
        *("--listen", "127.0.0.1:0", "--fault", "exits:1"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
    port = re.findall(r":(\d+),", line)[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    body = json.dumps(chat(5)).encode()
    writer.write(b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)))
    writer.write(body)
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert await asyncio.wait_for(process.wait(), 5) == 1
