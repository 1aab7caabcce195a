"""Forty chats at once on a real llama.cpp with four slots, through the gateway and without it.

Without the gateway the same chats are sent with never more than four in flight, which is the best
that a bare server can do.  Compared are the total tokens a second of one run, in turns, so that a
change of the machine's pace hits both.  `requests_deferred` is watched through the gateway's own
metrics, and at the engine every 1.2 s.

`python -m bench.real [--chats N] [--tokens N] [--rounds N]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.overhead import free_port
from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.backends.models import resolve_model
from slotgate.net.address import Address
from slotgate.net.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

SLOTS = 4
DEFERRED = re.compile(r"^llamacpp:requests_deferred(?:\{[^}]*\})? ([0-9.]+)", re.MULTILINE)


@dataclass
class Round:
    tokens: int = 0
    statuses: list[int] = field(default_factory=list)
    deferred: float = 0.0
    rate: float = 0.0  # tokens a second


async def chat(client: Client, number: int, tokens: int, result: Round) -> None:
    body = {
        "messages": [{"role": "user", "content": f"Tell me a long story about number {number}."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        "seed": number,
    }
    head = [(b"content-type", b"application/json")]
    data = json.dumps(body).encode()
    exchange = client.exchange("POST", "/v1/chat/completions", head, data, single_use=True)
    try:
        await exchange.open()
        answer = json.loads(await exchange.read_all(1 << 20))
        result.statuses.append(exchange.status)
        result.tokens += answer.get("usage", {}).get("completion_tokens", 0)
    finally:
        exchange.close()


async def watch(client: Client, result: Round) -> None:
    while True:
        exchange = client.exchange("GET", "/metrics")
        try:
            await exchange.open()
            found = DEFERRED.search((await exchange.read_all(1 << 20)).decode())
        finally:
            exchange.close()
        if found is not None:
            result.deferred = max(result.deferred, float(found[1]))
        await asyncio.sleep(1.2)


async def one_round(client: Client, engine: Client, chats: int, tokens: int, width: int) -> Round:
    result = Round()
    gate = asyncio.Semaphore(width)

    async def gated(number: int) -> None:
        async with gate:
            await chat(client, number, tokens, result)

    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(watch(engine, result))
        began = loop.time()
        async with asyncio.TaskGroup() as callers:
            for number in range(chats):
                callers.create_task(gated(number))
        seconds = loop.time() - began
        result.rate = result.tokens / seconds
        watcher.cancel()
    print(
        f"{width:>12}{result.rate:>12.1f}{seconds:>10.1f}"
        f"{result.statuses.count(200):>8}{result.deferred:>10.0f}",
        flush=True,
    )
    return result


async def run(options: argparse.Namespace, announce: Callable[[str], None]) -> None:
    model = await resolve_model(None, progress=announce)
    engine = ManagedServer(
        EngineOptions(
            model=model.path,
            alias=model.name,
            parallel=SLOTS,
            ctx_size=SLOTS * 1024,
            threads=1,
            port=0,
        )
    )
    await engine.start()
    port = free_port()
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slotgate", "serve", "--backend", engine.url,
        "--listen", f"127.0.0.1:{port}", "--log-level", "error",
        stdout=asyncio.subprocess.PIPE,
        env={"SLOTGATE_CLASSES_STANDARD_BUDGET": "600s"},
    )  # fmt: skip
    try:
        assert gateway.stdout is not None
        while b"ready" not in await gateway.stdout.readline():
            pass
        bare, through = (
            Client(Address.parse(engine.url)),
            Client(Address.parse(f"http://127.0.0.1:{port}")),
        )
        await one_round(bare, bare, SLOTS, 16, SLOTS)  # warm up
        print(f"{'in flight':>12}{'tokens/s':>12}{'seconds':>10}{'200s':>8}{'deferred':>10}")
        ratios = []
        for _ in range(options.rounds):
            alone = await one_round(bare, bare, options.chats, options.tokens, SLOTS)
            behind = await one_round(through, bare, options.chats, options.tokens, options.chats)
            ratios.append(behind.rate / alone.rate)
        shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"gateway / bare: {statistics.median(ratios):.3f} (rounds: {shown})")
    finally:
        gateway.terminate()
        await gateway.wait()
        await engine.stop(5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(run(parser.parse_args(), print))


if __name__ == "__main__":
    main()
