"""Servers of other makes behind the gateway, as they were seen to answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.rig import CHAT, chat, gateway_at
from tests.http.test_odd_backends import plain, stream
from tests.wire import other_makes as seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

# Of OpenAI's fields, those that are used here.
KNOWN = {"model", "messages", "max_tokens", "stream", "stream_options", "input"}


@dataclass
class OtherMake:
    """Takes what `transformers serve` takes, and answers as it does; some have no `/health`."""

    has_health: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[OtherMake]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, path = head.decode().split(" ")[:2]
            self.paths.append(path)
            if method == "POST":
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                writer.write(self._answer(path, json.loads(await reader.readexactly(length))))
            elif path == "/health" and self.has_health:
                writer.write(plain(b'{"status":"ok"}'))
            elif path == "/v1/models":
                writer.write(plain(seen.MODELS))
            else:
                writer.write(plain(seen.NOT_FOUND, b"404 Not Found"))
            await writer.drain()
        writer.close()

    def _answer(self, path: str, fields: dict[str, Any]) -> bytes:
        self.asked.append(fields)
        if set(fields) - KNOWN:
            return plain(seen.UNEXPECTED, b"422 Unprocessable Entity")
        if fields.get("model") != seen.MODEL:
            return plain(seen.OTHER_MODEL, b"400 Bad Request")
        answer = stream(seen.RESPONSES if path == "/v1/responses" else seen.CHAT)
        return answer.replace(b"\r\n\r\n", b"\r\nx-request-id: theirs\r\n\r\n", 1)


@pytest.mark.parametrize("wants_stream", [True, False])
@pytest.mark.parametrize("named", [None, "gpt-4o", seen.MODEL])
async def test_a_chat_is_served(named: str | None, wants_stream: bool) -> None:
    body = chat(stream=wants_stream) if named is None else chat(stream=wants_stream, model=named)
    async with OtherMake().running() as server, gateway_at(server.url) as rig:
        answer = await rig.post(CHAT, body)
        assert answer.status == 200
        if wants_stream:
            assert answer.body == seen.CHAT
        else:
            assert answer.json()["choices"][0]["message"]["content"] == "O\ufffdO"
        assert answer.headers["x-request-id"] != "theirs"
        assert rig.counts.processing == 0


async def test_responses_are_served() -> None:
    async with OtherMake().running() as server, gateway_at(server.url) as rig:
        answer = await rig.post("/v1/responses", {"input": "hello"})
        assert answer.json()["output"][0]["content"][0]["text"] == "OO"


async def test_what_it_refuses_is_told_as_it_tells_it() -> None:
    async with OtherMake().running() as server, gateway_at(server.url) as rig:
        answer = await rig.post(CHAT, chat(stream=True, top_k=3))
        assert (answer.status, answer.body) == (422, seen.UNEXPECTED)
        assert rig.counts.processing == 0


async def test_an_alias_is_not_told_to_it() -> None:
    backend = {"alias": "fast", "slots": 2}
    async with OtherMake().running() as server, gateway_at(server.url, backend=backend) as rig:
        assert (await rig.post(CHAT, chat(model="fast"))).status == 200
        assert [fields["model"] for fields in server.asked] == [seen.MODEL]
        assert rig.counts.slots == 2


async def test_a_server_without_health_is_up_while_it_lists_its_models() -> None:
    async with OtherMake(has_health=False).running() as server, gateway_at(server.url) as rig:
        assert (await rig.get("/ready")).status == 200
        assert (await rig.post(CHAT, chat())).status == 200


async def test_it_is_not_asked_for_slots() -> None:
    async with OtherMake().running() as server, gateway_at(server.url) as rig:
        await rig.post(CHAT, chat())
        assert "/slots" not in server.paths
