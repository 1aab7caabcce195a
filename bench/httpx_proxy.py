"""What one writes first: Starlette and httpx, and a generator.  `UPSTREAM` is its URL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import httpx2 as httpx
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

client = httpx.AsyncClient(
    base_url=os.environ["UPSTREAM"],
    timeout=None,
    limits=httpx.Limits(max_connections=None),
)


async def forward(request: Request) -> Response:
    body = await request.body()
    sent = client.build_request(
        "POST", request.url.path, content=body, headers={"content-type": "application/json"}
    )
    answer = await client.send(sent, stream=True)
    kind = answer.headers["content-type"]
    if not kind.startswith("text/event-stream"):
        return Response(await answer.aread(), answer.status_code, media_type=kind)

    async def chunks() -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        finally:
            await answer.aclose()

    return StreamingResponse(chunks(), answer.status_code, media_type=kind)


app = Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])
