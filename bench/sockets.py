"""The same arrivals in virtual time and over real sockets, policy by policy.

The stub plays eight slots of a GPU-like server ten times as fast as the simulation's, and `slotgate
serve` stands in front of it with each policy; arrivals, patience, budgets and the target are ten
times shorter too.  Both columns should tell the same: the same order of the policies, and the
figures within 10 %.

`python -m bench.sockets [--seconds N] [--speed N] [--seed N] [--policies a,b] [--scenarios a,b]`;
seconds are of virtual time.  A busy machine needs a lower speed: a note says when it was too slow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.programs import key_of, slotgate
from slotgate.load.asking import Asking
from slotgate.load.backoff import ClientKind
from slotgate.load.capacity import gpu_like
from slotgate.load.generate import Bounds, Generator
from slotgate.load.render_table import summary
from slotgate.load.report import Report, make_report
from slotgate.load.run import Run, Targets
from slotgate.load.visit import Visiting
from slotgate.load.workloads import TENANTS, Plan, Workload, make_workload
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts
from slotgate.sim.policies import make_policy
from slotgate.sim.rehearsal import rehearse
from slotgate.slotsim import Pace, ServerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SLOTS = 8
CTX = 32768
TTFT = 10.0
FIXED, EACH, PREFILL = 0.015, 0.0012, 8000.0
SPEC = ServerSpec(slots=SLOTS, ctx=CTX, pace=Pace.linear(FIXED, EACH, slots=SLOTS, prefill=PREFILL))
CURVE = ",".join(f"{busy}:{1 / (FIXED + EACH * busy):.6f}" for busy in range(1, SLOTS + 1))


@dataclass(frozen=True)
class Scenario:
    workload: str
    load: float
    hog_share: float = 0.8


SCENARIOS = {
    "steady": Scenario("steady", 0.6),
    "overload": Scenario("overload", 2.0),
    "hog": Scenario("hog", 5.0, 0.8),
}
# The simulator's policies, as a configuration says them; budgets in seconds of virtual time.
POLICIES: dict[str, dict[str, Any] | None] = {
    "bare": None,
    "fifo": {
        "scheduling": {"fairness": "none", "admission": "expiry", "concurrency": "fixed"},
        "queue": {"max_waiting": 100_000},
        "budget": 36_000.0,
    },
    "fifo-q16": {
        "scheduling": {"fairness": "none", "admission": "expiry", "concurrency": "fixed"},
        "queue": {"max_waiting": 16},
        "budget": 36_000.0,
    },
    "fifo-deadline": {
        "scheduling": {"fairness": "none", "admission": "expiry", "concurrency": "fixed"},
        "budget": TTFT - 1.0,
    },
    "slotgate": {"budget": TTFT},
}


@contextlib.asynccontextmanager
async def served(policy: str, speed: float) -> AsyncIterator[str]:
    stub = (
        "stub", "--slots", str(SLOTS), "--ctx", str(CTX), "--curve", CURVE,
        "--prefill", str(PREFILL), "--speed", str(speed), "--output-tokens", "0",
    )  # fmt: skip
    rules = POLICIES[policy]
    async with slotgate(*stub) as backend:
        if rules is None:
            yield backend
            return
        settings = {name: value for name, value in rules.items() if name != "budget"} | {
            "backends": [{"name": "stub", "url": backend}],
            "classes": {"standard": {"budget": f"{rules['budget'] / speed}s"}},
            "tenants": [{"name": name, "key_env": f"KEY_{name}"} for name in TENANTS],
        }
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "slotgate.yaml"
            config.write_text(json.dumps(settings))
            keys = {f"KEY_{name}": key_of(name) for name in TENANTS}
            words = ("serve", "-c", str(config), "--log-level", "error")
            async with slotgate(*words, **keys) as front:
                yield front


async def over_sockets(policy: str, workload: Workload, speed: float) -> Report:
    """Send it so many times as fast as the simulation."""
    quick = [
        replace(arrival, at=arrival.at / speed, patience=arrival.patience / speed)
        for arrival in workload.arrivals
    ]
    async with served(policy, speed) as url:
        shared = Visiting(
            client=Client(Address.parse(url), timeouts=Timeouts(first_byte=600.0, idle=600.0)),
            target="/v1/chat/completions",
            headers=lambda tenant: [(b"authorization", b"Bearer " + key_of(tenant).encode())],
            body=Asking(exact_lengths=True, template_tokens=14).body,
            kind=ClientKind.NONE,
            dice=random.Random(1),
        )
        # Probes have seen the stub's slots a moment after the gateway is ready.
        await asyncio.sleep(2)
        generator = Generator(shared, Bounds(drain_seconds=60))
        gathered = await generator.run(quick, workload.seconds / speed)
    run = Run(
        records=tuple(gathered.records), seconds=workload.seconds / speed, heavy=workload.heavy
    )
    for note in gathered.notes:
        print(f"note: {policy}: {note}")
    return make_report([run], title=policy, targets=Targets(ttft=TTFT / speed))


def in_virtual_time(policy: str, workload: Workload) -> Report:
    made = rehearse(workload, [SPEC], make_policy(policy, random.Random(1), TTFT))
    return make_report([made.as_run()], title=policy, targets=Targets(ttft=TTFT))


def numbers(report: Report, speed: float) -> list[float]:
    """Good requests a second of virtual time; shares in target, of all and of each tenant."""
    whole = report.whole
    good = (whole.mean("goodput_requests") or 0.0) / speed
    tenants = [group.mean("attainment") or 0.0 for group in report.tenants]
    return [good, whole.mean("attainment") or 0.0, *tenants]


def show_detail(simulated: Report, measured: Report) -> None:
    """Every number of both, in each one's own seconds."""
    left, right = ({row[0]: row[1] for row in summary(each)} for each in (simulated, measured))
    for name in left | right:
        print(f"{name:>34}  {left.get(name, '-'):<34}{right.get(name, '-')}")


async def run(options: argparse.Namespace) -> None:
    for name in options.scenarios.split(","):
        scenario = SCENARIOS[name]
        plan = Plan(
            capacity=gpu_like(SLOTS), dice=random.Random(options.seed), seconds=options.seconds,
            load=scenario.load, hog_share=scenario.hog_share, patience=30.0,
        )  # fmt: skip
        workload = make_workload(scenario.workload, plan)
        heads = "".join(f"{head:>16}" for head in ("good/s", "in target", *TENANTS))
        print(f"\n{name} {scenario.load:g}x, {len(workload.arrivals)} requests: virtual / sockets")
        print(f"{'':>14}{heads}", flush=True)
        for policy in options.policies.split(","):
            simulated = in_virtual_time(policy, workload)
            measured = await over_sockets(policy, workload, options.speed)
            virtual, real = numbers(simulated, 1.0), numbers(measured, options.speed)
            cells = (f"{v:.2f} / {r:.2f}" for v, r in zip(virtual, real, strict=True))
            print(f"{policy:>14}{''.join(f'{cell:>16}' for cell in cells)}", flush=True)
            if options.detail:
                show_detail(simulated, measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--speed", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--detail", action="store_true", help="every number of each")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
