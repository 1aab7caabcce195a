"""Ten thousand requests that wait at once: memory for each, and that all are answered.

`python -m bench.waiting [--waiters N]`: one stub server with instant answers behind one slow
request that holds its only slot until all wait.  Memory is the gateway's resident set, measured
from outside, and what of it an idle connection takes already.  What an event of the scheduler
costs is `python -m bench.core_events`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
from pathlib import Path

from bench.handover import BODY, ask
from bench.overhead import free_port, process, wait_port
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.stub import StubOptions, StubServer

PATIENCE_SECONDS = 240.0


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit(f"process {pid} has gone")


async def waiting(client: Client) -> int:
    exchange = client.exchange("GET", "/queue")
    try:
        await exchange.open()
        return int(json.loads(await exchange.read_all(1 << 16))["waiting"])
    finally:
        exchange.close()


async def idle_connection_kib(port: int, pid: int, count: int = 2000) -> float:
    """What a connection costs on which nothing is asked."""
    before = resident_kib(pid)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            if number % 100 == 0:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        return (resident_kib(pid) - before) / count


async def run(waiters: int) -> None:
    port = free_port()
    async with StubServer(StubOptions(slots=1, decode=0, ctx=1 << 20)) as stub:
        command = ["-m", "slotgate", "serve", "--backend", stub.url, "--max-waiting", str(waiters)]
        listen = ["--listen", f"127.0.0.1:{port}", "--log-level", "error"]
        env = {"SLOTGATE_CLASSES_STANDARD_BUDGET": f"{PATIENCE_SECONDS:.0f}s"}
        core = min(os.sched_getaffinity(0))
        with process([sys.executable, *command, *listen], core=core, **env) as gateway:
            await asyncio.to_thread(wait_port, port)
            client = Client(Address.parse(f"http://127.0.0.1:{port}"))
            await ask(client, 1)
            before = resident_kib(gateway.pid)
            connection = await idle_connection_kib(port, gateway.pid)
            stub.set_fault("silent")
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
                holder = group.create_task(ask(client, 1))
                for number in range(waiters):
                    group.create_task(ask(client, 1))
                    if number % 100 == 0:
                        await asyncio.sleep(0.01)  # not more than the listener's backlog
                while await waiting(client) < waiters:
                    await asyncio.sleep(0.05)
                during = resident_kib(gateway.pid)
                stub.clear_faults()
                holder.cancel()
            answered = stub.observed.completed - 1
    each = (during - before) / waiters
    print(
        f"{'waiters':>8}{'answered':>10}{'KiB each':>10}{'connection':>12}{'waiter':>8}{'body':>7}"
    )
    row = f"{waiters:>8}{answered:>10}{each:>10.1f}{connection:>12.1f}{each - connection:>8.1f}"
    print(f"{row}{len(BODY) / 1024:>7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiters", type=int, default=10_000)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(run(options.waiters))


if __name__ == "__main__":
    main()
