"""How long a slot stays idle between two requests while others wait, on loopback.

One stub server, a backlog in front of it, one-token answers.  The idle time is measured at the
backend: from the moment its slot is free again to the arrival of the next request there.
`python -m bench.handover [--requests N] [--slots N]`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys

from bench.overhead import free_port, process, wait_port
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.stub import StubOptions, StubServer

BODY = b'{"messages":[{"role":"user","content":"hello"}],"max_tokens":%d}'


async def ask(client: Client, tokens: int) -> None:
    head = [(b"content-type", b"application/json")]
    exchange = client.exchange("POST", "/v1/chat/completions", head, BODY % tokens, single_use=True)
    try:
        await exchange.open()
        await exchange.read_all(1 << 20)
        if exchange.status != 200:
            raise SystemExit(f"the gateway answered {exchange.status}")
    finally:
        exchange.close()


def idle_gaps(stub: StubServer) -> list[float]:
    """Pair each end with the next arrival, in milliseconds; only while somebody waited."""
    ends = sorted(r.ended_at for r in stub.observed.records if r.ended_at is not None)
    slots = len(ends) - len(stub.observed.records) + stub.observed.max_in_flight
    arrivals = sorted(r.arrived_at for r in stub.observed.records)[slots:]
    return [1000 * (arrival - end) for end, arrival in zip(ends, arrivals, strict=False)]


async def run(requests: int, slots: int) -> tuple[list[float], int]:
    port = free_port()
    async with StubServer(StubOptions(slots=slots, decode=200)) as stub:
        command = ["-m", "slotgate", "serve", "--backend", stub.url]
        listen = ["--listen", f"127.0.0.1:{port}", "--max-waiting", str(requests)]
        core = min(os.sched_getaffinity(0))
        with process([sys.executable, *command, *listen, "--log-level", "error"], core=core):
            await asyncio.to_thread(wait_port, port)
            # The load has a process of its own, so that it does not delay the stub's clock.
            load = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bench.handover",
                "--requests",
                str(requests),
                "--load",
                str(port),
            )
            if await load.wait() != 0:
                raise SystemExit("the load failed")
            return idle_gaps(stub), stub.observed.max_deferred


async def flood(port: int, requests: int) -> None:
    client = Client(Address.parse(f"http://127.0.0.1:{port}"))
    async with asyncio.TaskGroup() as group:
        for _ in range(requests):
            group.create_task(ask(client, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--load", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        asyncio.run(flood(options.load, options.requests))
        return
    gaps, deferred = asyncio.run(run(options.requests, options.slots))
    p50, p95 = statistics.median(gaps), sorted(gaps)[int(0.95 * len(gaps))]
    print(f"{'handovers':>10}{'median ms':>12}{'p95 ms':>10}{'max ms':>10}{'deferred':>10}")
    print(f"{len(gaps):>10}{p50:>12.2f}{p95:>10.2f}{max(gaps):>10.2f}{deferred:>10}")


if __name__ == "__main__":
    main()
