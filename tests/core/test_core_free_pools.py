"""Deployments with free slots: of many, some are offered, and a session's own."""

from __future__ import annotations

import random

from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.free_pools import FreePools
from slotgate.core.limit import FixedLimit
from slotgate.core.pool import SlotPool
from slotgate.testing import Script, ready


def make_pools(count: int) -> list[SlotPool]:
    return [
        SlotPool(DeploymentReport(id=f"d{n}", model="m", slots=4, state=State.READY), FixedLimit())
        for n in range(count)
    ]


def test_they_are_those_that_came_and_did_not_go() -> None:
    dice, free, there = random.Random(1), FreePools(), set[SlotPool]()
    pools = make_pools(20)
    for _ in range(500):
        pool = dice.choice(pools)
        if dice.random() < 0.5:
            free.add(pool)
            there.add(pool)
        else:
            free.discard(pool)
            there.discard(pool)
        assert set(free) == there
        assert len(free) == len(there)


def test_few_are_all_offered() -> None:
    free, pools = FreePools(), make_pools(64)
    for pool in pools:
        free.add(pool)
    assert not free.are_many
    assert set(free.some(None)) == set(pools)


def test_of_many_some_are_offered_by_turns() -> None:
    free, pools = FreePools(), make_pools(200)
    for pool in pools:
        free.add(pool)
    assert free.are_many
    offered = [free.some(None) for _ in range(4)]
    assert all(len(set(some)) == 64 for some in offered)
    assert set().union(*offered) == set(pools)


def test_of_many_a_session_s_own_is_offered_too() -> None:
    free, pools = FreePools(), make_pools(200)
    for pool in pools:
        free.add(pool)
    free.served("s", pools[0])
    free.served("s", pools[150])
    assert all(pools[150] in free.some("s") for _ in range(10))
    free.discard(pools[150])
    assert not any(pools[150] in free.some("s") for _ in range(10))


def test_who_fits_on_one_of_many_only_gets_that_one() -> None:
    narrow = [ready(f"d{n}", slots=1) for n in range(150)]
    Script(*narrow, ready("wide", slots=4)).run("""
        0  submit a width=4   -> granted a on wide
        1  leave a
        2  submit b width=4   -> granted b on wide
        3  leave b
        4  submit c width=4   -> granted c on wide
    """)


def test_they_are_quiet_again_once_a_long_prompt_is_read_or_given_up() -> None:
    Script(ready("left", slots=4)).run("""
        0  submit a tokens=3000   -> granted a on left
        0  submit b tokens=3000
        1  charge a output=1      -> granted b on left
        1  submit c tokens=3000
        2  leave b abandoned      -> granted c on left
    """)
