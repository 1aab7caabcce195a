"""A llama-server in router mode, as far as a gateway sees it, over real sockets.

Its answers are those of build 11434 (`--models-dir --models-max 1`), shortened.  `asked` is every
request line, so a test sees what would have loaded or woken a model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.http.by_hand import served_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOT_LOADED = {"code": 400, "message": "model is not loaded", "type": "invalid_request_error"}
CHUNK = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}


class FakeRouter:
    """`status` by model id; `failed` models list as such; `url` is where it serves."""

    def __init__(self, *models: str, max_instances: int = 1) -> None:
        self.status = dict.fromkeys(models, "unloaded")
        self.failed: set[str] = set()
        self.max_instances = max_instances
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        # While clear, generations wait before their first byte.
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split("\r\n")[0].split()
            self.asked.append(f"{method} {target}")
            length = head.lower().partition("content-length: ")[2].split("\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            if method == "POST":
                await self._generate(writer, json.loads(body))
            else:
                status, answer = self._get(target)
                writer.write(_whole(status, answer))
            await writer.drain()
        writer.close()

    def _get(self, target: str) -> tuple[int, Any]:
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        model = query.get("model")
        if url.path == "/health":
            return 200, {"status": "ok"}
        if url.path == "/v1/models":
            return 200, {"object": "list", "data": [self._entry(name) for name in self.status]}
        if url.path == "/props" and model is None:
            settings = {"params": None, "n_ctx": 0}
            props = {"role": "router", "max_instances": self.max_instances}
            return 200, props | {"models_autoload": True, "default_generation_settings": settings}
        if model is None:
            words = "model name is missing from the request"
            return 400, {"error": {**NOT_LOADED, "message": words}}
        if self.status.get(model) not in {"loaded", "sleeping"}:
            return 400, {"error": NOT_LOADED}
        self.status[model] = "loaded"  # what asks for its slots wakes it
        if url.path == "/props":
            settings = {"n_ctx": 512}
            return 200, {"total_slots": 2, "default_generation_settings": settings}
        slots = [{"id": n, "n_ctx": 512, "is_processing": False} for n in range(2)]
        return (200, slots) if url.path == "/slots" else (501, {"error": {"code": 501}})

    def _entry(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = {"value": self.status[name], "args": ["-c", "1024", "-np", "2"]}
        if name in self.failed:
            status |= {"failed": True, "exit_code": 1}
        return {"id": name, "aliases": [], "object": "model", "status": status}

    async def _generate(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        self.bodies.append(body)
        for name in self.status:
            self.status[name] = "unloaded" if self.max_instances == 1 else self.status[name]
        self.status[body["model"]] = "loaded"
        await self.may_answer.wait()
        frames = b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(CHUNK).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        writer.write(head + frames)


@contextlib.asynccontextmanager
async def fake_router(*models: str, max_instances: int = 1) -> AsyncIterator[FakeRouter]:
    router = FakeRouter(*models, max_instances=max_instances)
    async with served_by(router.serve) as router.url:
        yield router


def _whole(status: int, answer: Any) -> bytes:
    body = json.dumps(answer).encode()
    head = "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return (head % (status, len(body))).encode() + body
