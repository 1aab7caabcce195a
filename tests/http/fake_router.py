"""A llama-server in router mode, as far as a gateway sees it, over real sockets.

Its answers are those of build 11434 (`--models-dir --models-max 1`), shortened.  `asked` is every
request line, so a test sees what would have loaded or woken a model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.http.by_hand import served_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NOT_LOADED = {"code": 400, "message": "model is not loaded", "type": "invalid_request_error"}
CHUNK = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}


class FakeRouter:
    """`status` by model id; `failed` models list as such; `url` is where it serves.

    It loads what it is asked for, and unloads for that whichever of its idle models was used least
    recently; a request waits, and is noted in `delayed`, while all that is loaded is busy.
    """

    def __init__(
        self, *models: str, max_instances: int = 1, aliases: dict[str, str] | None = None
    ) -> None:
        self.status = dict.fromkeys(models, "unloaded")
        self.aliases = aliases or {}  # alias -> model
        self.failed: set[str] = set()
        self.max_instances = max_instances
        self.slots = 2
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.loads: list[str] = []
        self.delayed: list[str] = []
        self.role: str | None = "router"
        self.is_ill = False
        self.loads_by_itself = True
        self.url = ""
        # While clear, generations wait before their first byte.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._busy: Counter[str] = Counter()
        self._used: list[str] = []  # the least recently used first
        self._freed = asyncio.Condition()
        self._was_asked = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state that a request brings about."""
        while not condition():
            self._was_asked.clear()
            await self._was_asked.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split("\r\n")[0].split()
            self.asked.append(f"{method} {target}")
            self._was_asked.set()
            length = head.lower().partition("content-length: ")[2].split("\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            if method == "POST":
                await self._post(writer, target, body)
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
            return (500, {"error": {}}) if self.is_ill else (200, {"status": "ok"})
        if url.path == "/v1/models":
            return 200, {"object": "list", "data": [self._entry(name) for name in self.status]}
        if url.path == "/props" and model is None:
            if self.role is None:
                return 200, {"total_slots": 2, "default_generation_settings": {"n_ctx": 512}}
            settings = {"params": None, "n_ctx": 0}
            props = {"role": "router", "max_instances": self.max_instances}
            props |= {"models_autoload": self.loads_by_itself}
            return 200, props | {"default_generation_settings": settings}
        slots = [{"id": n, "n_ctx": 512, "is_processing": False} for n in range(self.slots)]
        if url.path == "/slots" and self.role is None:
            return 200, slots
        refusal = self._refusal(model, query)
        if refusal is not None:
            return 400, {"error": {**NOT_LOADED, "message": refusal}}
        assert model is not None
        if url.path == "/slots":
            self.status[model] = "loaded"  # what asks for its slots wakes it
            return 200, slots
        if url.path == "/props":
            settings = {"n_ctx": 512}
            return 200, {"total_slots": self.slots, "default_generation_settings": settings}
        return 501, {"error": {"code": 501}}

    def _refusal(self, model: str | None, query: dict[str, str]) -> str | None:
        if not model:
            return "model name is missing from the request"
        if model not in self.status and model not in self.aliases:
            return f"model '{model}' not found"
        is_there = self.status[self.aliases.get(model, model)] in {"loaded", "sleeping"}
        return None if is_there or query.get("autoload") != "false" else "model is not loaded"

    def _entry(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = {"value": self.status[name], "args": ["-c", "1024", "-np", "2"]}
        if name in self.failed:
            status |= {"failed": True, "exit_code": 1}
        aliases = [alias for alias, model in self.aliases.items() if model == name]
        return {"id": name, "aliases": aliases, "object": "model", "status": status}

    async def _post(self, writer: asyncio.StreamWriter, target: str, raw: bytes) -> None:
        url, body = urlsplit(target), json.loads(raw)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        refusal = self._refusal(body.get("model"), query)
        if refusal is not None:
            writer.write(_whole(400, {"error": {**NOT_LOADED, "message": refusal}}))
            return
        name = self.aliases.get(body["model"], body["model"])
        if url.path == "/tokenize":
            length = max(3, len(body.get("content", "")) // 4)
            writer.write(_whole(200, {"tokens": list(range(length))}))
            return
        self.bodies.append(body)
        await self._load(name)
        try:
            await self._generate(writer)
        finally:
            async with self._freed:
                self._busy[name] -= 1
                self._freed.notify_all()

    async def _load(self, name: str) -> None:
        """Wait until a model is there; it is busy from then on."""
        async with self._freed:
            if not self._has_room_for(name):
                self.delayed.append(name)
                await self._freed.wait_for(lambda: self._has_room_for(name))
            if self.status[name] not in {"loaded", "sleeping"}:
                self.loads.append(name)
                if self._is_full:
                    self.status[self._idle()[0]] = "unloaded"
            self.status[name] = "loaded"
            self._busy[name] += 1
            self._used = [*(each for each in self._used if each != name), name]

    @property
    def _is_full(self) -> bool:
        held = [name for name, status in self.status.items() if status != "unloaded"]
        return 0 < self.max_instances <= len(held)

    def _idle(self) -> list[str]:
        there = [name for name, status in self.status.items() if status != "unloaded"]
        idle = [name for name in there if not self._busy[name]]
        return sorted(idle, key=lambda name: self._used.index(name) if name in self._used else -1)

    def _has_room_for(self, name: str) -> bool:
        return self.status[name] != "unloaded" or not self._is_full or bool(self._idle())

    async def _generate(self, writer: asyncio.StreamWriter) -> None:
        await self.may_answer.wait()
        frames = b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(CHUNK).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        writer.write(head + frames)


@contextlib.asynccontextmanager
async def fake_router(
    *models: str, max_instances: int = 1, aliases: dict[str, str] | None = None
) -> AsyncIterator[FakeRouter]:
    router = FakeRouter(*models, max_instances=max_instances, aliases=aliases)
    async with served_by(router.serve) as router.url:
        yield router


def _whole(status: int, answer: Any) -> bytes:
    body = json.dumps(answer).encode()
    head = "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return (head % (status, len(body))).encode() + body
