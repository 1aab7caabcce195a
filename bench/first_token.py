"""How much later a client sees its first token through the gateway than the backend sent it.

A stub server and the client share one process and clock; the gateway is another process, idle but
for this stream.  Held against it: the same client at the stub directly.
`python -m bench.first_token [--streams N]`
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

BODY = b'{"messages":[{"role":"user","content":"hello"}],"max_tokens":3,"stream":true}'


async def delays(client: Client, stub: StubServer, streams: int) -> list[float]:
    """Milliseconds from the backend's first token to the client's first byte of data."""
    loop = asyncio.get_running_loop()
    found = []
    for _ in range(streams):
        head = [(b"content-type", b"application/json")]
        exchange = client.exchange("POST", "/v1/chat/completions", head, BODY, single_use=True)
        try:
            await exchange.open()
            while b'"content":"' not in await exchange.read():
                pass
            seen = loop.time()
            sent = stub.observed.records[-1].first_token_at
            assert sent is not None
            found.append(1000 * (seen - sent))
            await exchange.read_all(1 << 20)
        finally:
            exchange.close()
    return found


async def run(streams: int) -> None:
    port = free_port()
    async with StubServer(StubOptions(slots=1, decode=100, prefill=2000)) as stub:
        command = ["-m", "slotgate", "serve", "--backend", stub.url, "--log-level", "error"]
        listen = ["--listen", f"127.0.0.1:{port}"]
        core = min(os.sched_getaffinity(0))
        with process([sys.executable, *command, *listen], core=core):
            await asyncio.to_thread(wait_port, port)
            print(f"{'':<10}{'streams':>8}{'median ms':>12}{'p95 ms':>10}{'max ms':>10}")
            gateway = f"http://127.0.0.1:{port}"
            for name, url in (("direct", stub.url), ("slotgate", gateway)):
                took = sorted(await delays(Client(Address.parse(url)), stub, streams))
                p95 = took[int(0.95 * len(took))]
                row = f"{statistics.median(took):>12.2f}{p95:>10.2f}{took[-1]:>10.2f}"
                print(f"{name:<10}{len(took):>8}{row}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    asyncio.run(run(parser.parse_args().streams))


if __name__ == "__main__":
    main()
