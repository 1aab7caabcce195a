"""How fast a load is rehearsed: `python -m bench.simulation`.

Requests a minute of CPU, by the number of servers with 32 slots each, below and above what they
can bear; and what of it the scheduler takes.  The bar is 50,000 a minute at 1,000 servers.

A request counts once, whatever came of it: refused clients do not come back here.  The time is that
of the whole rehearsal: to set up the servers, and to serve to its end what has come.
"""

from __future__ import annotations

import random
import sys
from math import inf
from time import process_time

from slotgate.load.workloads import Plan, make_workload
from slotgate.sim.policies import make_policy
from slotgate.sim.rehearsal import rehearse
from slotgate.sim.setting import Servers, parse_pace
from slotgate.slotsim import ServerSpec

SLOTS = 32
# Servers -> seconds of load.
SIZES = {1: 600.0, 100: 60.0, 1000: 15.0}
LOADS = {"steady": 0.9, "overload": 2.0}
BAR = 50_000


def main() -> int:
    print(f"{'servers':>8}{'load':>6}{'requests':>10}{'a minute':>10}  scheduler  an event")
    slowest = inf
    for count, seconds in SIZES.items():
        servers = Servers(ServerSpec(slots=SLOTS, ctx=32768, pace=parse_pace("gpu", SLOTS)), count)
        for name, load in LOADS.items():
            plan = Plan(capacity=servers, dice=random.Random(1), seconds=seconds, load=load)
            workload = make_workload(name, plan)
            began = process_time()
            found = rehearse(
                workload,
                servers.specs,
                make_policy("slotgate", random.Random(1), 10.0),
                stopwatch=process_time,
            )
            spent = process_time() - began
            rate = len(found.records) / spent * 60
            if count == max(SIZES):
                slowest = min(slowest, rate)
            print(
                f"{count:8}{load:6.1f}{len(found.records):10}{rate:10,.0f}"
                f"{found.core_seconds / spent:11.0%}"
                f"{found.core_seconds / found.core_events * 1e6:7.1f} us",
                flush=True,
            )
    return slowest < BAR


if __name__ == "__main__":
    sys.exit(main())
