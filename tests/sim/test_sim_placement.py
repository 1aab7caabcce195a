"""What placement promises, in virtual time; each claim with a control that must fail it.

Four servers of eight slots, one queue, everybody waits as long as it takes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

from slotgate.core import Limits, Policies
from slotgate.load.numbers import quantile
from slotgate.load.workloads import Plan, make_workload
from slotgate.sim.policies import BareServers, Scheduled
from slotgate.sim.rehearsal import Rehearsal, rehearse
from slotgate.sim.setting import Servers, parse_pace
from slotgate.sim.spreads import InTurn, Sticky
from slotgate.slotsim import Pace, ServerSpec

if TYPE_CHECKING:
    from slotgate.sim.rehearsal import MakesFront

SLOTS = 8
SPEC = ServerSpec(slots=SLOTS, ctx=32768, pace=parse_pace("gpu", SLOTS), memory=300_000)
SERVERS = Servers(SPEC, 4)
SPEEDS = (1.0, 1.0, 0.5, 0.25)


def unlike() -> list[ServerSpec]:
    paces = [Pace.linear(0.015 / s, 0.0012 / s, slots=SLOTS, prefill=8000 * s) for s in SPEEDS]
    return [replace(SPEC, pace=pace) for pace in paces]


@cache
def played(front: str, workload: str, load: float, *, is_even: bool = True) -> Rehearsal:
    dice = random.Random(1)
    plan = Plan(capacity=SERVERS, dice=dice, seconds=300.0, load=load, patience=inf)
    made = make_workload(workload, plan)
    make: MakesFront
    if front == "sticky":
        make = BareServers(Sticky(dice))
    elif front == "in turn":
        make = BareServers(InTurn())
    else:
        policies = Policies.named(
            fairness="none", admission="expiry", concurrency="fixed", placement=front
        )
        limits = Limits(max_waiting=10**9, max_waiting_bytes=10**18)
        make = Scheduled(dice=dice, limits=limits, policies=policies)
    return rehearse(made, SERVERS.specs if is_even else unlike(), make)


def ttft(played: Rehearsal) -> float:
    return fmean(record.ttft or 0.0 for record in played.records)


def whole(played: Rehearsal) -> float:
    return fmean(record.ended_at - record.arrival.at for record in played.records)


def wait_p99(played: Rehearsal) -> float:
    return quantile(sorted(record.waited or 0.0 for record in played.records), 0.99) or 0.0


def test_one_queue_makes_nobody_wait_while_there_are_slots_enough() -> None:
    def holds(front: str) -> bool:
        return wait_p99(played(front, "steady", 0.7)) <= 0.16

    assert holds("predicted_finish")
    assert not holds("in turn")


def test_sessions_have_their_first_token_as_soon_as_if_they_were_bound_to_a_server() -> None:
    def holds(front: str) -> bool:
        return ttft(played(front, "sessions", 0.8)) <= 1.1 * ttft(played("sticky", "sessions", 0.8))

    assert holds("predicted_finish")
    assert not holds("headroom")


def test_sessions_wait_no_longer_for_a_slot_than_anybody_in_one_queue() -> None:
    def holds(front: str) -> bool:
        central = wait_p99(played("headroom", "sessions", 0.8))
        return wait_p99(played(front, "sessions", 0.8)) <= central + 0.05

    assert holds("predicted_finish")
    assert not holds("sticky")


def test_machines_of_different_speeds_are_used_by_what_they_can_do() -> None:
    """A fifth of the time is what even spreading loses, at half of their load."""
    best = whole(played("predicted_finish", "steady", 0.35, is_even=False))
    assert best <= 0.9 * whole(played("headroom", "steady", 0.35, is_even=False))
    # Among equal machines there is nothing to gain.
    even = whole(played("predicted_finish", "steady", 0.35))
    assert even > 0.9 * whole(played("headroom", "steady", 0.35))
