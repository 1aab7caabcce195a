"""What each budget of a shared KV cache is worth: `python -m bench.kv_budget`.

A simulated server with 8 slots, and clients who always want more of it: chat, code, summaries and
reasoning, all with `max_tokens` 4096.  Goodput counts the output tokens of whole answers; wasted is
the part of all output tokens whose answer ended in an error, as the pool had overflowed; cut is the
part of the answers that the budget made shorter than they would have been.
"""

from __future__ import annotations

import sys

from slotgate.core.policies import KV, Policies
from tests.core.backlog import Backlog, Outcome

POOLS = (8_192, 12_288, 16_384, 24_576)
WARM_UP_SECONDS = 600
SECONDS = 900
SEEDS = (1, 2)


def measure(kv: str, pool: int) -> list[Outcome]:
    outcomes = []
    for seed in SEEDS:
        policies = Policies.named(kv=kv, fairness="none", admission="expiry")
        clients = Backlog(policies, pool=pool, seed=seed)
        clients.run(WARM_UP_SECONDS)
        clients.outcome = Outcome()
        outcomes.append(clients.run(SECONDS))
    return outcomes


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> int:
    print(f"{'pool':>7}  {'kv':<9} {'tokens/s':>8} {'wasted':>7} {'killed/h':>8} {'cut':>6}  slots")
    overflowed = False
    for pool in POOLS:
        for kv in ("off", *(name for name in KV if name != "off")):
            outcomes = measure(kv, pool)
            killed = mean([o.kills / o.seconds * 3600 for o in outcomes])
            overflowed = overflowed or (kv != "off" and killed > 0)
            print(
                f"{pool:>7}  {kv:<9} {mean([o.goodput for o in outcomes]):>8.0f}"
                f" {mean([o.wasted_part for o in outcomes]):>7.1%} {killed:>8.0f}"
                f" {mean([o.cut_part for o in outcomes]):>6.1%}"
                f"  {mean([mean([float(n) for n in o.running]) for o in outcomes]):.1f}",
                flush=True,
            )
    return int(overflowed)


if __name__ == "__main__":
    sys.exit(main())
