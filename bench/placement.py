"""Where requests run, in virtual time: `python -m bench.placement`.

Four servers of eight slots of a card, all of whose clients wait as long as it takes, first come
first served, so that only placement differs.  Tables:

1. p99 wait by load, of a mix of chat, code, summaries and reasoning: balancers that give a request
   to a server when it comes, and one queue that gives it to a slot when one is free; among these a
   plain one, which knows nothing but free slots
2. the same mix on machines of speed 1, 1, 0.5 and 0.25
3. sessions of three to seven turns at a load of 0.8, on cards and on processors
4. the same at loads at which servers are full at times, with and without `affinity_patience`: what
   patience changes, run by run

The wait of a balancer's request ends when its server begins with it, between two batches: up to
0.3 s later than one that a queue counts until its grant.  A load of 1 is what the servers could do
if each prompt was read whole.  Servers keep 300,000 tokens of displaced prompts in the host's
memory, as llama-server does by itself; saving and restoring take no time here.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import deque
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

from typing_extensions import override

from slotgate.core import Limits, Policies
from slotgate.load.numbers import estimate, quantile
from slotgate.load.workloads import Plan, make_workload
from slotgate.sim.front import Front
from slotgate.sim.policies import BareServers, Scheduled
from slotgate.sim.rehearsal import rehearse
from slotgate.sim.setting import PACES, Servers, parse_pace
from slotgate.sim.spreads import AtRandom, InTurn, Shortest, Sticky, TwoChoices
from slotgate.slotsim import Pace, ServerSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slotgate.load.numbers import Estimate
    from slotgate.sim.front import Stage
    from slotgate.sim.rehearsal import MakesFront, Rehearsal
    from slotgate.sim.requests import Attempt
    from slotgate.sim.spreads import Spread
    from slotgate.slotsim import Finished

SLOTS, COUNT, CTX, MEMORY = 8, 4, 32768, 300_000
LOADS = (0.70, 0.85, 0.95)
SPEEDS = (1.0, 1.0, 0.5, 0.25)
SESSION_LOAD = 0.8
PATIENCE = 2.0
CROWDED = {"gpu": (0.8, 1.1), "cpu": (0.8, 1.6)}
# A processor takes so many times as long, and so few requests say little.
LONGER = {"gpu": 1.0, "cpu": 4.0}
# p99 waits that the simulation made for the design found.
EXPECTED = {
    "random": (33.3, 55.8, 72.6),
    "round robin": (11.7, 30.5, 85.3),
    "two choices": (1.0, 8.8, 48.4),
    "shortest queue": (0.21, 6.8, 44.4),
    "central, headroom": (0.16, 5.5, 44.5),
}


def early(make: Callable[[random.Random], Spread]) -> Callable[[random.Random], MakesFront]:
    return lambda dice: BareServers(make(dice))


class PlainQueue(Front):
    """First come, first served; whoever is first takes a slot of the server with most of them."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._free = [spec.slots for spec in stage.specs]
        self._waiting: deque[Attempt] = deque()

    @override
    def submit(self, attempt: Attempt) -> None:
        self._waiting.append(attempt)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and any(self._free):
            attempt = self._waiting.popleft()
            server = self._free.index(max(self._free))
            self._free[server] -= 1
            attempt.request.waited = self.clock.now() - attempt.sent_at
            self.start(attempt, server)

    @override
    def on_finished(self, attempt: Attempt, finished: Finished) -> None:
        if attempt.backend is not None:
            self._free[attempt.backend] += 1
        self._hand_out()

    @override
    def on_tokens(self, attempt: Attempt, count: int) -> None: ...

    @override
    def leave(self, attempt: Attempt) -> None: ...  # nobody leaves

    @override
    def on_failed(self, attempt: Attempt) -> None: ...  # nor does anything fail

    @override
    def on_cancelled(self, attempt: Attempt) -> None: ...


def central(placement: str, **more: float) -> Callable[[random.Random], MakesFront]:
    """One queue, first come first served, without deadlines; `more` limits."""

    def make(dice: random.Random) -> MakesFront:
        limits = replace(Limits(max_waiting=10**9, max_waiting_bytes=10**18), **more)
        policies = Policies.named(
            fairness="none", admission="expiry", concurrency="fixed", placement=placement
        )
        return Scheduled(dice=dice, limits=limits, policies=policies)

    return make


FRONTS = {
    "random": early(AtRandom),
    "round robin": early(lambda _: InTurn()),
    "two choices": early(TwoChoices),
    "shortest queue": early(Shortest),
    "sticky": early(Sticky),
    "central, plain": lambda _: PlainQueue,
    "central, headroom": central("headroom"),
    "central, finish": central("predicted_finish"),
    "no gate": central("predicted_finish", long_prefill_tokens=1 << 24),
    "patience": central("predicted_finish", affinity_patience=PATIENCE),
}
WITHOUT_SESSIONS = [name for name in FRONTS if name not in {"sticky", "patience"}]
WITH_SESSIONS = ("shortest queue", "sticky", "central, headroom", "central, finish")


@dataclass(frozen=True)
class Setting:
    """Servers, and the load that is offered to them."""

    specs: Sequence[ServerSpec]
    capacity: Servers
    workload: str
    load: float
    seconds: float

    def play(self, front: str, seed: int) -> Rehearsal:
        plan = Plan(
            capacity=self.capacity,
            dice=random.Random(seed),
            seconds=self.seconds,
            load=self.load,
            patience=inf,
        )
        workload = make_workload(self.workload, plan)
        return rehearse(workload, self.specs, FRONTS[front](random.Random(seed)))


def alike(kind: str, workload: str, load: float, seconds: float) -> Setting:
    pace = parse_pace(kind, SLOTS)
    servers = Servers(ServerSpec(slots=SLOTS, ctx=CTX, pace=pace, memory=MEMORY), COUNT)
    return Setting(servers.specs, servers, workload, load, seconds * LONGER[kind])


def unlike(load: float, seconds: float) -> Setting:
    """Servers of different speeds; the load is a multiple of what they can do together."""
    even = alike("gpu", "steady", load, seconds)
    fixed, each, prefill = PACES["gpu"]
    paces = [
        Pace.linear(fixed / 1000 / s, each / 1000 / s, slots=SLOTS, prefill=prefill * s)
        for s in SPEEDS
    ]
    specs = [replace(even.specs[0], pace=pace) for pace in paces]
    return replace(even, specs=specs, load=load * sum(SPEEDS) / COUNT)


# What is read off a rehearsal.


def wait_p99(played: Rehearsal) -> float:
    waits = sorted(record.waited or 0.0 for record in played.records)
    return quantile(waits, 0.99) or 0.0


def ttft(played: Rehearsal) -> float:
    return fmean(record.ttft or 0.0 for record in played.records)


def ttft_p99(played: Rehearsal) -> float:
    return quantile(sorted(record.ttft or 0.0 for record in played.records), 0.99) or 0.0


def whole(played: Rehearsal) -> float:
    return fmean(record.ended_at - record.arrival.at for record in played.records)


def hit(played: Rehearsal) -> float:
    """The part of all prompt tokens that did not have to be read."""
    asked = sum(record.arrival.input_tokens for record in played.records)
    return 1 - sum(record.input_done for record in played.records) / asked


MEASURES: dict[str, Callable[[Rehearsal], float]] = {
    "wait p99": wait_p99,
    "TTFT mean": ttft,
    "TTFT p99": ttft_p99,
    "whole mean": whole,
    "cached": hit,
}


def row(setting: Setting, front: str, seeds: int, measures: Sequence[str]) -> str:
    """Means over the seeds, with 95 % intervals."""
    played = [setting.play(front, seed) for seed in range(seeds)]
    found = [estimate(MEASURES[name](each) for each in played) for name in measures]
    return "".join(_shown(each) for each in found)


def _shown(found: Estimate | None) -> str:
    return "" if found is None else f"{found.mean:9.3f} +-{found.margin or 0.0:6.3f}"


def table(title: str, setting: Setting, fronts: Sequence[str], seeds: int) -> None:
    measures = list(MEASURES)
    print(f"\n{title}\n{'':20}" + "".join(f"{name:>18}" for name in measures))
    for front in fronts:
        print(f"{front:20}{row(setting, front, seeds, measures)}", flush=True)


def patience(kind: str, load: float, seeds: int, seconds: float) -> None:
    """Without it, with it, and the difference of each pair of runs."""
    setting = alike(kind, "sessions", load, seconds)
    pairs = [
        [setting.play(front, seed) for front in ("central, finish", "patience")]
        for seed in range(seeds)
    ]
    rows: dict[str, Callable[[Callable[[Rehearsal], float]], list[float]]] = {
        "without": lambda measure: [measure(off) for off, _ in pairs],
        "with": lambda measure: [measure(on) for _, on in pairs],
        "difference": lambda measure: [measure(on) - measure(off) for off, on in pairs],
    }
    print(f"\npatience of {PATIENCE:g} s, {kind}, load {load}\n{'':20}", end="")
    print("".join(f"{name:>18}" for name in MEASURES))
    for name, values in rows.items():
        found = [estimate(values(measure)) for measure in MEASURES.values()]
        print(f"{name:20}" + "".join(_shown(each) for each in found), flush=True)


def waits(seeds: int, seconds: float, loads: Sequence[float]) -> None:
    print("wait p99 in seconds, and what was expected")
    print(f"{'':20}" + "".join(f"{load:18.2f}" for load in loads))
    for front in WITHOUT_SESSIONS:
        settings = [alike("gpu", "steady", load, seconds) for load in loads]
        shown = "".join(row(setting, front, seeds, ["wait p99"]) for setting in settings)
        known = dict(zip(LOADS, EXPECTED.get(front, ()), strict=False))
        expected = "  ".join(f"{known[load]:g}" for load in loads if load in known)
        print(f"{front:20}{shown}   {expected}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--tables", nargs="*", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--loads", nargs="*", type=float, default=LOADS, help="of table 1")
    options = parser.parse_args()
    seeds, seconds = options.seeds, options.seconds
    if 1 in options.tables:
        waits(seeds, seconds, options.loads)
    if 2 in options.tables:
        for load in (0.5, 0.85):
            title = f"speeds {SPEEDS}, load {load}"
            table(title, unlike(load, seconds), WITHOUT_SESSIONS[2:], seeds)
    if 3 in options.tables:
        for kind in PACES:
            setting = alike(kind, "sessions", SESSION_LOAD, seconds)
            table(f"sessions, {kind}, load {SESSION_LOAD}", setting, WITH_SESSIONS, seeds)
    if 4 in options.tables:
        for kind, loads in CROWDED.items():
            for load in loads:
                patience(kind, load, seeds, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
