"""Large windows kept for long prompts, in virtual time: `python -m bench.windows`.

Four servers, of which one alone has windows that hold long prompts (32,768 tokens; the others have
8,192), and one queue, first come first served.  Long prompts are 15 % of the load, or 4 to 5 % of
the requests.  Two fleets: all machines alike, eight slots each; and a large one with four slots
that is twice as fast, so that short requests like it best.  Four rules for short requests:

- none      where they are complete first, as `predicted_finish` has it
- tie       the smallest window of those where they are complete at most a tenth later
- last      likewise `none`, but the last free large slot is kept while a small one is free
- small     large windows only while no small one is free

Each is compared with `none`, run by run; waits and times in seconds.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

from typing_extensions import override

from bench.placement import SLOTS, alike
from slotgate.core import Limits, Policies
from slotgate.core.placement import PredictedFinish
from slotgate.load.lengths import CHAT, CODE, LengthClass, Lognormal
from slotgate.load.numbers import estimate, quantile
from slotgate.load.workloads import Plan, Workload
from slotgate.sim.policies import Scheduled
from slotgate.sim.rehearsal import rehearse
from slotgate.sim.setting import PACES
from slotgate.slotsim import Pace, ServerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket
    from slotgate.sim.rehearsal import Rehearsal

SMALL, PART = 8192, 0.15
LONG = LengthClass("long", "a long text", Lognormal(10_000, 0.2, 14_000), Lognormal(250, 0.4, 1000))
LOADS = (0.5, 0.7, 0.85)


def window(pool: SlotPool) -> float:
    return pool.ctx_per_slot or inf


class Tie(PredictedFinish):
    """Takes a smaller window where that costs at most a tenth."""

    @override
    def choose(self, ticket: Ticket, pools: Sequence[SlotPool], lengths: Lengths) -> SlotPool:
        def seconds(pool: SlotPool) -> float:
            read, gap = pool.pace
            tokens = pool.unread + stalled * pool.unread_of(ticket)
            return tokens * (read or 0.0) + lengths.mean(ticket) * (gap or 0.0)

        stalled = 1 + fmean(pool.busy for pool in pools)
        best = super().choose(ticket, pools, lengths)
        smaller = [pool for pool in pools if window(pool) < window(best)]
        if not smaller:
            return best
        second = super().choose(ticket, smaller, lengths)
        return second if seconds(second) <= 1.1 * seconds(best) else best


class Last(PredictedFinish):
    """Keeps so many large slots while small ones are free."""

    KEPT = 1.0

    @override
    def choose(self, ticket: Ticket, pools: Sequence[SlotPool], lengths: Lengths) -> SlotPool:
        least = min(map(window, pools))
        large = [pool for pool in pools if window(pool) > least]
        if large and sum(pool.headroom for pool in large) <= self.KEPT:
            pools = [pool for pool in pools if window(pool) == least]
        return super().choose(ticket, pools, lengths)


class Small(Last):
    """Keeps all of them."""

    KEPT = inf


RULES = {"none": PredictedFinish, "tie": Tie, "last": Last, "small": Small}


def fleet(kind: str) -> list[ServerSpec]:
    large = alike("gpu", "steady", 1.0, 1.0).specs[0]
    small = replace(large, ctx=SMALL)
    if kind == "large is fast":
        fixed, each, prefill = PACES["gpu"]
        slots = SLOTS // 2
        pace = Pace.linear(fixed / 2000, each / 2000, slots=slots, prefill=prefill * 2)
        large = replace(large, slots=slots, pace=pace)
    return [small, small, small, large]


def workload(load: float, seconds: float, seed: int) -> Workload:
    dice = random.Random(seed)
    capacity = alike("gpu", "steady", load, seconds).capacity
    plan = Plan(capacity=capacity, dice=dice, seconds=seconds, load=load, patience=inf)
    short = load * (1 - PART)
    streams = (
        plan.stream("long", load * PART, kind=LONG),
        plan.stream("chat", 0.6 * short, kind=CHAT),
        plan.stream("code", 0.4 * short, kind=CODE),
    )
    drawn = [arrival for stream in streams for arrival in stream.arrivals(dice)]
    arrivals = tuple(sorted(drawn, key=lambda arrival: arrival.at))
    return Workload(name="windows", seconds=seconds, arrivals=arrivals)


def play(rule: str, kind: str, load: float, seconds: float, seed: int) -> list[float]:
    policies = Policies.named(fairness="none", admission="expiry", concurrency="fixed")
    front = Scheduled(
        dice=random.Random(seed),
        limits=Limits(max_waiting=10**9, max_waiting_bytes=10**18),
        policies=replace(policies, placement=RULES[rule]),
    )
    played = rehearse(workload(load, seconds, seed), fleet(kind), front)
    return figures(played)


def figures(played: Rehearsal) -> list[float]:
    """What COLUMNS says."""
    long = [record for record in played.records if record.arrival.tenant == "long"]
    short = [record for record in played.records if record.arrival.tenant != "long"]
    waits = sorted(record.waited or 0.0 for record in long)
    return [
        fmean(waits),
        quantile(waits, 0.99) or 0.0,
        fmean(record.ttft or 0.0 for record in long),
        fmean(record.waited or 0.0 for record in short),
        fmean(record.ttft or 0.0 for record in short),
        fmean(record.ended_at - record.arrival.at for record in short),
    ]


COLUMNS = ("long: wait", "wait p99", "TTFT", "short: wait", "TTFT", "whole")


def compare(kind: str, load: float, seeds: int, seconds: float) -> None:
    print(f"\n{kind}, load {load}\n{'':8}" + "".join(f"{name:>18}" for name in COLUMNS))
    base: list[list[float]] = []
    for rule in RULES:
        runs = [play(rule, kind, load, seconds, seed) for seed in range(seeds)]
        shown = ""
        for place in range(len(COLUMNS)):
            pairs = zip(runs, base or [[0.0] * len(COLUMNS)] * seeds, strict=True)
            found = estimate(run[place] - none[place] for run, none in pairs)
            shown += "" if found is None else f"{found.mean:9.3f} +-{found.margin or 0.0:6.3f}"
        base = base or runs
        print(f"{rule:8}{shown}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--loads", nargs="*", type=float, default=LOADS)
    options = parser.parse_args()
    for kind in ("alike", "large is fast"):
        for load in options.loads:
            compare(kind, load, options.seeds, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
