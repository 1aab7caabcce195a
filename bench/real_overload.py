"""Three times too much for a real llama.cpp: the bare server, HAProxy in front of it, and Slotgate.

Each gets the same arrivals on a fresh server of two slots and one thread, first of four tenants
alike, then of a hog that asks for 80 %.  A request is good whose first token comes within 5 s;
clients leave after 15 s without one.  What the server could do is measured first, in the same run.
Tokens are those that llama.cpp counts itself, so work for clients that had left is seen.

`python -m bench.real_overload [--seconds N] [--load N] [--budget N] [--seeds N] [--servers a,b]`;
needs haproxy on the PATH, and leaves its rows out and says so where it is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.overhead import free_port
from bench.programs import key_of, opened, slotgate
from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.backends.models import resolve_model
from slotgate.load.arrival import Arrival
from slotgate.load.asking import Asking
from slotgate.load.backoff import ClientKind
from slotgate.load.capacity import Rate
from slotgate.load.generate import Bounds, Generator
from slotgate.load.lengths import SMALL
from slotgate.load.measure import measure_capacity
from slotgate.load.report import make_report
from slotgate.load.run import Run, Targets
from slotgate.load.visit import Visiting
from slotgate.load.workloads import TENANTS, Plan, make_workload
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from slotgate.backends.models import ResolvedModel
    from slotgate.load.record import Record
    from slotgate.load.workloads import Workload

SLOTS = 2
TARGETS = Targets(ttft=5.0)
PATIENCE = 15.0
KINDS = dict.fromkeys(TENANTS, SMALL)
COUNTED = re.compile(
    r"^llamacpp:(prompt_tokens_total|tokens_predicted_total|requests_processing|requests_deferred)"
    r"(?:\{[^}]*\})? ([0-9.e+]+)",
    re.MULTILINE,
)
HAPROXY = """
global
  maxconn 4000
  nbthread 1
defaults
  mode http
  http-reuse never
  timeout connect 5s
  timeout client 120s
  timeout server 120s
  timeout queue {queue}s
  option abortonclose
listen proxy
  bind 127.0.0.1:{port}
  server engine 127.0.0.1:{backend} maxconn {slots}
"""


@dataclass(frozen=True)
class Row:
    """One server under one load."""

    server: str
    good: float
    light: float | None
    wasted: float
    refused: int
    named: int
    refused_after: float | None
    left: int
    failed: int
    pace: float  # output tokens a second: how fast the machine let the engine be


async def counters(client: Client) -> dict[str, float]:
    with client.exchange("GET", "/metrics") as exchange:
        await exchange.open()
        text = (await exchange.read_all(1 << 20)).decode()
    return {name: float(value) for name, value in COUNTED.findall(text)}


async def idle_counters(client: Client) -> dict[str, float]:
    """The counters when nothing runs any more: a bare server works on for clients that left."""
    for _ in range(120):
        found = await counters(client)
        if not found["requests_processing"] and not found["requests_deferred"]:
            return found
        await asyncio.sleep(1)
    return found


@contextlib.asynccontextmanager
async def engine(model: ResolvedModel) -> AsyncIterator[str]:
    server = ManagedServer(
        EngineOptions(
            model=model.path, alias=model.name, parallel=SLOTS, ctx_size=SLOTS * 1024, threads=1,
            port=free_port(),
        )
    )  # fmt: skip
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop(5)


@contextlib.asynccontextmanager
async def bare(url: str, _: argparse.Namespace) -> AsyncIterator[str]:
    yield url


@contextlib.asynccontextmanager
async def haproxy(url: str, options: argparse.Namespace) -> AsyncIterator[str]:
    port = free_port()
    text = HAPROXY.format(
        port=port, backend=Address.parse(url).port, slots=SLOTS, queue=options.queue
    )
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "haproxy.cfg"
        config.write_text(text)
        process = await asyncio.create_subprocess_exec(
            "haproxy", "-q", "-db", "-f", str(config), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await opened(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            await process.wait()


@contextlib.asynccontextmanager
async def gateway(url: str, options: argparse.Namespace) -> AsyncIterator[str]:
    settings = {
        "backends": [{"name": "engine", "url": url}],
        "classes": {"standard": {"budget": f"{options.budget}s"}},
        "tenants": [{"name": name, "key_env": f"KEY_{name}"} for name in TENANTS],
    }
    keys = {f"KEY_{name}": key_of(name) for name in TENANTS}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "slotgate.yaml"
        config.write_text(json.dumps(settings))
        words = ("serve", "-c", str(config), "--log-level", "error")
        async with slotgate(*words, **keys) as front:
            yield front


def visiting(url: str, seed: int) -> Visiting:
    return Visiting(
        client=Client(Address.parse(url), timeouts=Timeouts(first_byte=600.0, idle=600.0)),
        target="/v1/chat/completions",
        headers=lambda tenant: [(b"authorization", b"Bearer " + key_of(tenant).encode())],
        body=Asking(exact_lengths=True, template_tokens=30).body,
        kind=ClientKind.NONE,
        dice=random.Random(seed),
    )


async def warm_up(url: str) -> None:
    """A few whole answers: what fronts learn from, and nothing that is counted."""
    asked = [Arrival(at=0.0, tenant=name, input_tokens=60, output_tokens=20) for name in TENANTS]
    gathered = await Generator(visiting(url, 0), Bounds(drain_seconds=60)).run(asked, 0.0)
    if not any(record.outcome == "served" for record in gathered.records):
        raise SystemExit(f"{url} answers nobody: {gathered.records[0].reason}")


async def measured(model: ResolvedModel, seconds: float) -> float:
    async with engine(model) as url:
        shared = visiting(url, 0)
        await warm_up(url)
        return await measure_capacity(shared, KINDS, at_once=SLOTS, seconds=seconds)


async def loaded(
    name: str, front: Callable[..., contextlib.AbstractAsyncContextManager[str]],
    model: ResolvedModel, workload: Workload, options: argparse.Namespace,
) -> Row:  # fmt: skip
    async with engine(model) as url, front(url, options) as served:
        direct = Client(Address.parse(url))
        await warm_up(served)
        before = await idle_counters(direct)
        generator = Generator(visiting(served, 1), Bounds(drain_seconds=60))
        gathered = await generator.run(workload.arrivals, workload.seconds)
        after = await idle_counters(direct)
    worked = sum(
        after[key] - before[key] for key in ("prompt_tokens_total", "tokens_predicted_total")
    )
    for note in gathered.notes:
        print(f"note: {name}: {note}")
    written = after["tokens_predicted_total"] - before["tokens_predicted_total"]
    seconds = max(record.ended_at for record in gathered.records)
    return row(name, gathered.records, workload, worked=worked, pace=written / seconds)


def row(
    name: str, records: Sequence[Record], workload: Workload, *, worked: float, pace: float
) -> Row:
    run = Run(records=tuple(records), seconds=workload.seconds, heavy=workload.heavy)
    whole = make_report([run], title=name, targets=TARGETS).whole
    good = [record for record in records if TARGETS.are_met_by(record)]
    useful = sum(record.input_done + record.output_done for record in good)
    refused = [record for record in records if record.outcome in ("refused", "expired")]
    return Row(
        server=name,
        good=whole.mean("attainment") or 0.0,
        light=whole.mean("light_attainment") if workload.heavy else None,
        wasted=max(0.0, 1 - useful / worked) if worked else 0.0,
        refused=len(refused),
        named=sum(record.retry_after is not None for record in refused),
        refused_after=whole.mean("refusal_p50"),
        left=sum(record.outcome == "abandoned" for record in records),
        failed=sum(record.outcome == "failed" for record in records),
        pace=pace,
    )


def show_head(requests: int) -> None:
    print(
        f"{'':>10}{'in SLO':>9}{'light':>8}{'wasted':>9}{'refused':>9}{'Retry-After':>13}"
        f"{'refused after':>15}{'left':>7}{'failed':>8}{'tokens/s':>10}   of {requests}"
    )


def show(each: Row) -> None:
    light = "-" if each.light is None else f"{each.light:.0%}"
    after = "-" if each.refused_after is None else f"{each.refused_after * 1000:.0f} ms"
    print(
        f"{each.server:>10}{each.good:>9.1%}{light:>8}{each.wasted:>9.1%}{each.refused:>9}"
        f"{each.named:>13}{after:>15}{each.left:>7}{each.failed:>8}{each.pace:>10.1f}",
        flush=True,
    )


async def run(options: argparse.Namespace) -> None:
    model = await resolve_model(None, progress=lambda line: print(line, file=sys.stderr))
    fronts = {"bare": bare, "haproxy": haproxy, "slotgate": gateway}
    fronts = {name: front for name, front in fronts.items() if name in options.servers}
    if "haproxy" in fronts and shutil.which("haproxy") is None:
        print("haproxy is not installed: its rows are missing")
        del fronts["haproxy"]
    capacity = await measured(model, options.measure)
    print(
        f"{model.name}, {SLOTS} slots, 1 thread: {capacity:.2f} requests/s of "
        f"{SMALL.input.mean:.0f} + {SMALL.output.mean:.0f} tokens; load {options.load:g}x for "
        f"{options.seconds:g} s; in SLO: first token within {TARGETS.ttft:g} s; clients leave "
        f"after {PATIENCE:g} s; HAProxy's queue {options.queue:g} s, Slotgate's budget "
        f"{options.budget:g} s",
        flush=True,
    )
    for seed in range(1, options.seeds + 1):
        for name in ("overload", "hog"):
            plan = Plan(
                capacity=Rate(capacity), dice=random.Random(seed), seconds=options.seconds,
                load=options.load, hog_share=0.8, patience=PATIENCE, kinds=KINDS,
            )  # fmt: skip
            workload = make_workload(name, plan)
            print(f"\n{name}, seed {seed}")
            show_head(len(workload.arrivals))
            for server, front in fronts.items():
                show(await loaded(server, front, model, workload, options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--load", type=float, default=3)
    parser.add_argument("--measure", type=float, default=20)
    # HAProxy's bounds the wait alone, Slotgate's budget the prompt too.
    parser.add_argument("--queue", type=float, default=4, help="HAProxy's timeout queue")
    parser.add_argument("--budget", type=float, default=4.5, help="Slotgate's class budget")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--servers", default="bare,haproxy,slotgate")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
