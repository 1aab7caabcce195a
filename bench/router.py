"""A real router that holds fewer models than are asked for: bare, and with Slotgate in front.

Three models (three names of one file), of which the router holds `--room` at once.  Clients ask
without a pause: most of them the first model, a few the second, one the third.  Each gets the same
clients for the same time, on a router started anew.  An answer is in time whose first token comes
within the budget; a client leaves after twice that, and one that is refused comes back when it was
told to.  *Lost* are streams that began and did not end; *loads* is counted in the router's log.

`python -m bench.router BINARY [--model FILE] [--seconds N] [--room N] [--budget N] [--turn N]`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.overhead import free_port
from bench.programs import opened, slotgate
from slotgate.backends.models import resolve_model
from slotgate.errors import BackendError
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLIENTS = {"alpha": 4, "beta": 2, "gamma": 1}
SLOTS = 2
LOADED = b"spawning server instance with name="


@dataclass
class Tally:
    """What the clients of one model have seen."""

    asked: int = 0
    in_time: int = 0
    lost: int = 0
    refused: int = 0
    left: int = 0
    failed: int = 0
    waits: list[float] = field(default_factory=list)


@contextlib.asynccontextmanager
async def router(binary: str, folder: Path, options: argparse.Namespace) -> AsyncIterator[str]:
    port = free_port()
    log = (folder / "router.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        binary, "--models-dir", str(folder / "models"), "--models-max", str(options.room),
        "--host", "127.0.0.1", "--port", str(port), "-np", str(SLOTS), "-c", str(SLOTS * 1024),
        "-t", "1", stdout=log, stderr=log,
    )  # fmt: skip
    try:
        await opened(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()
        log.close()


@contextlib.asynccontextmanager
async def in_front(url: str, folder: Path, options: argparse.Namespace) -> AsyncIterator[str]:
    settings = {
        "backends": [{"name": "router", "url": url}],
        "classes": {"standard": {"budget": f"{options.budget}s"}},
        "scheduling": {"model_turn": f"{options.turn}s"},
    }
    config = folder / "slotgate.yaml"
    config.write_text(json.dumps(settings))
    async with slotgate("serve", "-c", str(config), "--log-level", "error") as front:
        yield front


async def ask(client: Client, model: str, number: int, budget: float, tally: Tally) -> None:
    """One request of a client that watches its stream."""
    loop = asyncio.get_running_loop()
    body = {
        "model": model, "stream": True, "max_tokens": 32, "ignore_eos": True,
        "messages": [{"role": "user", "content": f"Tell me story number {number}."}],
    }  # fmt: skip
    head = [(b"content-type", b"application/json")]
    tally.asked += 1
    sent = loop.time()
    last, wait = b"", 0.0
    exchange = client.exchange(
        "POST", "/v1/chat/completions", head, json.dumps(body).encode(), single_use=True
    )
    try:
        async with asyncio.timeout(2 * budget) as patience:
            await exchange.open()
            if exchange.status == 429:
                tally.refused += 1
                await exchange.read_all(1 << 20)
                fields = dict(exchange.headers)
                pause = float(fields.get(b"retry-after", b"1"))
            elif exchange.status != 200:
                tally.failed += 1
                pause = 1.0
            else:
                pause = 0.0
                while part := await exchange.read():
                    if not last:
                        patience.reschedule(None)
                        wait = loop.time() - sent
                    last = (last + part)[-32:]
                tally.lost += b"[DONE]" not in last
                tally.waits.append(wait)
                tally.in_time += wait <= budget
    except asyncio.CancelledError:
        if last or loop.time() - sent <= budget:
            tally.asked -= 1  # nobody knows how it would have ended
        raise
    except TimeoutError:
        tally.left += 1
        pause = 0.0
    except BackendError:
        tally.lost += bool(last)
        tally.failed += not last
        pause = 1.0
    finally:
        exchange.close()
    await asyncio.sleep(pause)


async def clients(url: str, options: argparse.Namespace) -> dict[str, Tally]:
    client = Client(Address.parse(url), timeouts=Timeouts(first_byte=600.0, idle=600.0))
    tallies = {model: Tally() for model in CLIENTS}

    async def go_on(model: str, seat: int) -> None:
        number = 1000 * seat
        while True:
            number += 1
            await ask(client, model, number, options.budget, tallies[model])

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(go_on(model, seat))
            for model, count in CLIENTS.items()
            for seat in range(count)
        ]
        await asyncio.sleep(options.seconds)
        for task in tasks:
            task.cancel()
    client.close()
    return tallies


def show(name: str, tallies: dict[str, Tally], loads: int) -> None:
    print(f"{name}: {loads} loads")
    columns = ("model", "asked", "in time", "share", "lost", "refused", "left", "failed", "longest")
    print("".join(f"{column:>9}" for column in columns))
    for model, seen in tallies.items():
        longest = max(seen.waits, default=0.0)
        share = seen.in_time / max(1, seen.asked)
        row = (seen.asked, seen.in_time, f"{share:.0%}", seen.lost, seen.refused, seen.left)
        cells = (model, *row, seen.failed, f"{longest:.1f} s")
        print("".join(f"{cell:>9}" for cell in cells))


async def run(options: argparse.Namespace) -> None:
    resolved = options.model or (await resolve_model(None, progress=print)).path
    for name in options.servers.split(","):
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            (folder / "models").mkdir()
            for each in CLIENTS:
                (folder / "models" / f"{each}.gguf").symlink_to(resolved)
            async with router(options.binary, folder, options) as url:
                if name == "bare":
                    tallies = await clients(url, options)
                else:
                    async with in_front(url, folder, options) as front:
                        tallies = await clients(front, options)
            show(name, tallies, (folder / "router.log").read_bytes().count(LOADED))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("binary", help="a llama-server that has router mode")
    parser.add_argument("--model", default="", help="a GGUF file; by default the small model")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--room", type=int, default=1, help="--models-max of the router")
    parser.add_argument("--budget", type=float, default=30.0)
    parser.add_argument("--turn", type=float, default=10.0, help="scheduling.model_turn")
    parser.add_argument("--servers", default="bare,slotgate")
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
