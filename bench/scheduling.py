"""What scheduling is worth, in virtual time: `python -m bench.scheduling`.

Eight slots of a GPU-like server, four tenants that ask for chat, code, summaries and reasoning,
Poisson arrivals, clients that wait 30 s, and 10 s to the first token as the target.  Each cell
is seen / expected, the latter from a simulation that was made for the design.  Differences below
3 % are noise.  The first line of each scenario is what is compared:

    good     requests a second that met the target
    A        share of the first tenant's requests that met it: it is who misbehaves
    others   the worst and the best share of the other tenants
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from time import process_time

from slotgate.load.capacity import gpu_like
from slotgate.load.report import Report, make_report
from slotgate.load.run import Run, Targets
from slotgate.load.workloads import Plan, Workload, make_workload
from slotgate.sim.policies import POLICIES, make_policy
from slotgate.sim.rehearsal import rehearse
from slotgate.slotsim import Pace, ServerSpec

SLOTS = 8
SPEC = ServerSpec(
    slots=SLOTS, ctx=32768, pace=Pace.linear(0.015, 0.0012, slots=SLOTS, prefill=8000)
)
TTFT = 10.0


@dataclass(frozen=True)
class Scenario:
    """A load, and what was expected of it: policy -> (good, A, others)."""

    title: str
    workload: str
    load: float
    hog_share: float = 0.8
    expected: dict[str, str] | None = None


SCENARIOS = (
    Scenario("0.6x", "steady", 0.6, expected=dict.fromkeys(POLICIES, "all 1.00")),
    Scenario(
        "burst 5x by A",
        "burst",
        5.0,
        expected={
            "fifo": "A .42, others .79-.87",
            "fifo-q16": "A .45, others .91-.95",
            "fifo-deadline": "A .55, others .93-.96",
            "slotgate": "A .53, others 1.00",
        },
    ),
    Scenario(
        "2x, equal tenants",
        "overload",
        2.0,
        expected={
            "fifo": "0.00/s",
            "fifo-q16": "0.38/s",
            "fifo-deadline": "1.33/s, worst .50",
            "slotgate": "1.46/s, worst .39",
        },
    ),
    Scenario(
        "5x, hog 80 %",
        "hog",
        5.0,
        0.8,
        {
            "fifo": "0.00/s",
            "fifo-q16": "0.26/s",
            "fifo-deadline": "1.33/s, others .18-.24",
            "slotgate": "1.51/s, A .08, others .61-.82",
        },
    ),
    Scenario(
        "10x, hog 90 %",
        "hog",
        10.0,
        0.9,
        {
            "fifo": "0.00/s",
            "fifo-q16": "0.16/s",
            "fifo-deadline": "1.38/s, others .07-.12",
            "slotgate": "1.51/s, others .70-.80",
        },
    ),
    Scenario(
        "2.4x, hog 2x",
        "hog",
        2.4,
        2.0 / 2.4,
        {
            "fifo": "0.00/s, all 0",
            "fifo-deadline": "1.37/s, all .39-.44",
            "slotgate": "1.41/s, A .31, others .98-1.00",
        },
    ),
)


def draw(scenario: Scenario, seed: int, seconds: float) -> Workload:
    plan = Plan(
        capacity=gpu_like(SLOTS),
        dice=random.Random(seed),
        seconds=seconds,
        load=scenario.load,
        hog_share=scenario.hog_share,
    )
    return make_workload(scenario.workload, plan)


def report(scenario: Scenario, policy: str, seeds: int, seconds: float) -> Report:
    runs: list[Run] = []
    for seed in range(seeds):
        front = make_policy(policy, random.Random(seed), TTFT)
        runs.append(rehearse(draw(scenario, seed, seconds), [SPEC], front).as_run(seed))
    return make_report(runs, title=scenario.title, targets=Targets(ttft=TTFT))


def line(found: Report) -> str:
    shares = {group.name: group.mean("attainment") or 0.0 for group in found.tenants}
    first, *others = (shares[name] for name in sorted(shares))
    good = found.whole.values["goodput_requests"]
    return (
        f"{good.mean:5.2f} +-{good.margin or 0:4.2f}  {first:5.2f}"
        f"   {min(others):4.2f}-{max(others):4.2f}   {min(shares.values()):5.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--scenarios", nargs="*", type=int, default=range(len(SCENARIOS)))
    options = parser.parse_args()
    for scenario in (SCENARIOS[number] for number in options.scenarios):
        print(f"\n{scenario.title}")
        print(f"{'policy':16}{'good/s':>13}      A     others     worst   expected")
        for policy in options.policies:
            began = process_time()
            found = report(scenario, policy, options.seeds, options.seconds)
            expected = (scenario.expected or {}).get(policy, "")
            spent = process_time() - began
            print(f"{policy:16}{line(found)}   {expected:32} [{spent:.0f} s CPU]", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
