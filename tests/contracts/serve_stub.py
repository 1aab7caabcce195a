"""Run the stub until standard input ends: `python serve_stub.py LAUNCH PORT`."""

from __future__ import annotations

import asyncio
import json
import sys

from slotgate.stub import StubOptions, StubServer


async def main() -> None:
    launch, port = json.loads(sys.argv[1]), int(sys.argv[2])
    options = StubOptions(
        port=port,
        slots=launch["slots"],
        ctx=launch["ctx"],
        unified=launch["unified"],
        batch=launch["batch"],
        has_slots=launch["has_slots"],
        has_metrics=launch["has_metrics"],
        api_keys=tuple(launch["api_keys"]),
        api_prefix=launch["api_prefix"],
        embeddings=launch["embeddings"],
        sleep_idle_seconds=None
        if launch["sleep_idle_seconds"] < 0
        else launch["sleep_idle_seconds"],
        output_tokens=None,
        decode=80.0,
        prefill=200.0,
        load_seconds=0.3,
    )
    async with StubServer(options) as server:
        await asyncio.sleep(options.load_seconds)
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
