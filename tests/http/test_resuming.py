"""A chat whose backend fails amid its answer goes on elsewhere, where its client asked for that."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer
from tests.http.by_hand import served_by
from tests.http.rig import CHAT, Rig, chat, gateway_at
from tests.http.test_odd_backends import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

WORDS = ["The", " sea", " is", " vast", " and", " deep", "."]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ERROR = {"error": {"code": 500, "message": "Compute error.", "type": "server_error"}}


class Breaks(Enum):
    """How an answer breaks."""

    BY_RESET = "reset"
    BY_A_CLEAN_END = "clean end"
    BY_AN_ERROR = "error"
    AMID_A_FRAME = "amid a frame"


class Teller:
    """A backend that tells one story, goes on with it where it was left, and may break off."""

    def __init__(self, name: str) -> None:
        self.name = name
        # How the answers to come break, and after how many words; then they are whole.
        self.breaks: list[tuple[Breaks, int]] = []
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.asked.append(json.loads(await reader.readexactly(length)))
                self._answer(writer, self.asked[-1])
            elif b" /props" in head:
                ctx = {"n_ctx": 4096}
                props = {"default_generation_settings": ctx, "total_slots": 2, "model_alias": "m"}
                writer.write(plain(json.dumps(props).encode()))
            elif b" /health" in head:
                writer.write(plain(b'{"status":"ok"}'))
            else:
                writer.write(plain(b"{}", b"404 Not Found"))
            await writer.drain()
        writer.close()

    def _answer(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        last = body["messages"][-1]
        begun = last["content"] if last["role"] == "assistant" else ""
        words = [w for n, w in enumerate(WORDS) if len("".join(WORDS[: n + 1])) > len(begun)]
        frames = [self._chunk({"role": "assistant", "content": None})]
        frames += [self._chunk({"content": word}) for word in words]
        usage = {"completion_tokens": len(words), "prompt_tokens": 20 + len(WORDS) - len(words)}
        frames += [self._chunk({}, "stop"), self._frame({"choices": [], "usage": usage})]
        frames.append(b"data: [DONE]\n\n")
        end = b"0\r\n\r\n"
        if self.breaks:
            how, after = self.breaks.pop(0)
            frames = frames[: 1 + after]
            if how is Breaks.BY_AN_ERROR:
                frames.append(self._frame(ERROR))
            if how is Breaks.AMID_A_FRAME:
                frames.append(self._chunk({"content": " lost"})[:60])
            end = end if how in {Breaks.BY_A_CLEAN_END, Breaks.BY_AN_ERROR} else b""
        writer.write(HEAD + b"".join(b"%x\r\n%s\r\n" % (len(f), f) for f in frames) + end)

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"finish_reason": finish, "index": 0, "delta": delta}
        return self._frame({"choices": [choice]})

    def _frame(self, chunk: dict[str, Any]) -> bytes:
        named = chunk | {"id": f"by-{self.name}", "object": "chat.completion.chunk"}
        return b"data: " + json.dumps(named, separators=(",", ":")).encode() + b"\n\n"


@contextlib.asynccontextmanager
async def tellers(*names: str) -> AsyncIterator[tuple[Rig, list[Teller]]]:
    async with contextlib.AsyncExitStack() as stack:
        told = [Teller(name) for name in names]
        for teller in told:
            teller.url = await stack.enter_async_context(served_by(teller.serve))
        backends = [{"name": each.name, "url": each.url} for each in told]
        yield await stack.enter_async_context(gateway_at("", backends=backends)), told


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    frames = stream.decode().split("\n\n")
    return [json.loads(f.removeprefix("data: ")) for f in frames if f.startswith("data: {")]


def text_of(stream: bytes) -> str:
    deltas = [c["choices"][0]["delta"] for c in chunks_of(stream) if c.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)


def resuming(**fields: Any) -> dict[str, Any]:
    return chat(tokens=40, stream=True, resume=True, temperature=0, **fields)


@pytest.mark.parametrize("how", Breaks)
@pytest.mark.parametrize("after", [1, 4, len(WORDS)])
async def test_the_client_sees_one_clean_stream(how: Breaks, after: int) -> None:
    async with tellers("left", "right") as (rig, (left, right)):
        left.breaks.append((how, after))
        answer = await rig.post(CHAT, resuming())
        assert answer.status == 200
        assert text_of(answer.body) == "".join(WORDS)
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert {chunk["id"] for chunk in chunks_of(answer.body)} == {"by-left"}
        assert answer.body.count(b'"role"') == 1
        assert chunks_of(answer.body)[-1]["usage"]["completion_tokens"] == len(WORDS)
        (rest,) = right.asked
        assert rest["messages"][-1] == {"role": "assistant", "content": "".join(WORDS[:after])}
        assert rest["max_tokens"] == 40 - after
        page = (await rig.get("/metrics")).body.decode()
        assert 'slotgate_resumptions_total{backend="left"} 1.0' in page
        assert f'slotgate_output_tokens_total{{backend="right"}} {float(len(WORDS))}' in page


async def test_who_did_not_ask_for_it_gets_the_error() -> None:
    async with tellers("left", "right") as (rig, (left, right)):
        left.breaks.append((Breaks.BY_AN_ERROR, 3))
        answer = await rig.post(CHAT, chat(tokens=40, stream=True))
        assert text_of(answer.body) == "The sea is"
        assert chunks_of(answer.body)[-1]["error"] == ERROR["error"]
        assert not right.asked


async def test_a_lone_backend_goes_on_with_its_own_answer() -> None:
    async with tellers("left") as (rig, (left,)):
        left.breaks.append((Breaks.BY_RESET, 3))
        assert text_of((await rig.post(CHAT, resuming())).body) == "".join(WORDS)
        assert len(left.asked) == 2


async def test_an_answer_that_breaks_again_and_again_ends_with_one_error() -> None:
    async with tellers("left", "right") as (rig, (left, right)):
        left.breaks += [(Breaks.BY_AN_ERROR, 1)] * 3
        right.breaks += [(Breaks.BY_AN_ERROR, 1)] * 3
        answer = await rig.post(CHAT, resuming())
        assert text_of(answer.body) == "The sea is"
        errors = [chunk for chunk in chunks_of(answer.body) if "error" in chunk]
        assert [chunk["error"]["message"] for chunk in errors] == ["Compute error."]
        assert answer.body.endswith(b"\n\n")
        assert len(left.asked) + len(right.asked) == 3
        await rig.wait_until(lambda counts: counts.processing == 0)


async def test_before_its_first_byte_it_is_tried_again_as_ever() -> None:
    async with tellers("left", "right") as (rig, (left, right)):
        left.breaks.append((Breaks.BY_RESET, 0))
        answer = await rig.post(CHAT, resuming())
        assert text_of(answer.body) == "".join(WORDS)
        assert right.asked[0]["messages"][-1]["role"] == "user"


@pytest.mark.parametrize("field", [{"tools": [{"type": "function"}]}, {"n": 2}])
async def test_what_cannot_be_exact_is_refused(field: dict[str, Any]) -> None:
    async with tellers("left") as (rig, (left,)):
        answer = await rig.post(CHAT, resuming(**field))
        assert answer.status == 400
        assert answer.json()["error"]["param"] in field
        assert not left.asked


async def test_a_client_that_leaves_while_the_rest_waits_leaves_nothing_behind() -> None:
    async with tellers("left") as (rig, (left,)):
        left.breaks.append((Breaks.BY_RESET, 3))
        async with rig.open("POST", CHAT, resuming()) as held:
            rig.app.driver.observers.append(_PauseAfterGrant(rig))
            await held.open()
            await rig.wait_until(lambda counts: counts.waiting == 1)
        await rig.wait_until(lambda counts: counts.waiting == 0)
        await rig.wait_until(lambda counts: counts.processing == 0)
        assert len(left.asked) == 1


class _PauseAfterGrant:
    """Pauses the only backend once the first request runs there."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def decided(self, _decision: object) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(self._rig.app.driver._scheduler.pause, "left")


# On real llama.cpps.


@pytest.mark.process
@pytest.mark.llama
async def test_a_killed_llama_cpp_is_gone_on_with_to_the_letter(small_model: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        engines = []
        for name in ("left", "right"):
            options = EngineOptions(
                model=small_model, alias="m", parallel=1, ctx_size=1024, threads=1
            )
            engine = ManagedServer(options)
            stack.push_async_callback(engine.stop, 5)
            await engine.start()
            engines.append((name, engine))
        backends = [{"name": name, "url": engine.url} for name, engine in engines]
        rig = await stack.enter_async_context(gateway_at("", backends=backends))
        body = resuming() | {"max_tokens": 60, "ignore_eos": True, "seed": 1}
        whole = text_of((await rig.post(CHAT, {**body, "resume": False})).body)
        async with rig.open("POST", CHAT, body) as held:
            await held.open()
            stream = b""
            while stream.count(b"\n\n") < 12:
                stream += await held.read()
            running = [n for n, _ in engines if rig.app.driver.books(n).running]
            pid = dict(engines)[running[0]].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while data := await held.read():
                stream += data
        assert text_of(stream) == whole
        assert len({chunk["id"] for chunk in chunks_of(stream)}) == 1
        assert stream.endswith(b"data: [DONE]\n\n")
