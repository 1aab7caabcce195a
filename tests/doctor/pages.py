"""Servers of other makes: what they answer, by path."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.net.scripted import Peer, Script, ScriptedServer, plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from ssl import SSLContext


def pages(**answers: tuple[int, Any]) -> Script:
    """Answer `/health`, `/props`, ... with a status and JSON; 404 where nothing is given."""
    known = {"models": "/v1/models"}
    by_path = {known.get(name, f"/{name}"): answer for name, answer in answers.items()}

    async def play(peer: Peer) -> None:
        while True:
            request = await peer.read_request()
            path = request.split(b" ")[1].decode()
            status, body = by_path.get(path, (404, {"error": {"message": "not here"}}))
            await peer.send(plain(json.dumps(body).encode(), status=b"%d X" % status))

    return play


@asynccontextmanager
async def serving(
    script: Script, *, tls: SSLContext | None = None
) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer((script,))
    await server.start(tls=tls)
    try:
        yield server
    finally:
        await server.stop()
