"""Long random lives of a mostly healthy scheduler, before the same judges as the machine's."""

from __future__ import annotations

import random

import pytest

from slotgate.core.decision import Ending
from slotgate.core.deployment import State
from tests.core.test_core_machine import SchedulerMachine


def step(life: SchedulerMachine, dice: random.Random) -> None:
    """One event of a mostly healthy gateway, more likely the more often it happens in one."""
    choose, ending = dice.choice, dice.choice(list(Ending))
    act = dice.random()
    if act < 0.35:
        life.submit(
            width=choose([1, 1, 1, 1, 2, 3, 4, 5]),
            tenant=choose(["chat", "agent", "hog"]),
            tokens=choose([0, 0, 999, 1000, 1500, 2000]),
            size=choose([0, 1, 20, 40]),
            within=choose([1.0, 3.0, 10.0, 10.0]),
            model=choose(["m", "m", "m", "m", "n"]),
        )
    elif act < 0.60:
        if life.running:
            life.stop_running(dice.randrange(1000), choose([Ending.SERVED, ending]), None)
    elif act < 0.66 and life.running:
        life.requeue(dice.randrange(1000), slot_free=choose([True, False]))
    elif act < 0.68 and life.running:
        life.stream(dice.randrange(1000), choose([1, 16, 200]))
    elif act < 0.70 and life.waiting:
        life.leave_the_queue(dice.randrange(1000))
    elif act < 0.78 and life.leases:
        life.settle(dice.randrange(1000))
    elif act < 0.84:
        life.report(
            name=choose(["left", "right", "far"]),
            slots=choose([2, 3, 4, 4]),
            state=choose([State.READY] * 8 + list(State)),
            ctx=choose([None, 1000, 2000, 2000]),
            outside=choose([0, 0, 1]),
            ejected=choose([True, False]),
        )
    elif act < 0.86:
        life.operate(choose(["left", "right"]), choose(["pause", "drain", "disable", "remove"]))
    elif act < 0.89:
        life.recover()
    elif act < 0.91 and life.gone:
        life.leave_again(dice.randrange(1000))
    elif act < 0.94:
        life.wait_until_something_is_due()
    else:
        life.wait(choose([0.1] * 4 + [0.5, 0.5, 1.0, 1000.0]))


@pytest.mark.parametrize("seed", range(20))
def test_a_long_life_keeps_all_the_rules(seed: int) -> None:
    dice = random.Random(seed)
    life = SchedulerMachine()
    life.start((3, 4), (None, 2000))
    for _ in range(400):
        step(life, dice)
    life.teardown()
