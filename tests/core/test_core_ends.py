"""When slots come free, and what goes before a turn: the parts of a forecast by themselves."""

from __future__ import annotations

import random
from math import exp

import pytest

from slotgate.core.ends import End, Ends
from slotgate.core.fairness import Vtc
from slotgate.core.queue import FairQueue
from slotgate.core.ticket import Ticket
from slotgate.core.turns import Ahead, Turns
from slotgate.core.waiter import Shape, Waiter

# With so many slots no wait is long.
MANY = 1_000_000


def freed(ends: list[End], time: float, ahead: Ahead) -> float:
    """Slots that came free by then, by the formula."""
    once = sum(end.slots * (1 - exp(-((time / end.scale) ** end.shape))) for end in ends)
    again = sum(end.slots * max(0.0, time - end.mean) for end in ends)
    return once + min(again * ahead.number / ahead.service, ahead.number)


@pytest.mark.parametrize("number", [0.1, 1, 3, 10, 40, 200, 5000])
def test_at_the_time_that_is_found_as_many_slots_came_free_as_are_wanted(number: float) -> None:
    dice = random.Random(int(number))
    for _ in range(50):
        ends = [
            End.of(dice.uniform(0.0, 20), dice.uniform(0.0, 20), dice.randrange(1, 20))
            for _ in range(dice.randrange(1, 5))
        ]
        ahead, width = Ahead(number, number * dice.uniform(0.5, 20)), dice.randrange(1, 4)
        found = Ends(ends)
        time = found.time_of(ahead, width, 5.0)
        wanted = number + min(width, found.slots) - 1 + 0.69
        # Wide ones may need the last slot of all, of which nobody knows when it comes.
        tolerance = 0.04 * (number + 0.69) + (0.5 if width >= found.slots else 0.0)
        assert freed(ends, time, ahead) == pytest.approx(wanted, abs=tolerance)


def test_the_turnover_is_that_of_all_slots_together() -> None:
    assert Ends([End.of(2.0, 1.0, 4), End.of(1.0, 1.0, 2)]).turnover == pytest.approx(1 / 4)
    assert Ends([]).turnover == pytest.approx(0.001)


def some_waiter(number: int, tenant: str, dice: random.Random) -> Waiter:
    return Waiter(
        ticket=Ticket(id=f"t{number}", arrival=0, deadline=9, tenant=tenant),
        number=number,
        since=0,
        shape=Shape(1, 0),
        start_by=9,
        rank=(0.0, number),
        toll=dice.uniform(1, 100),
        service=dice.uniform(1, 10),
    )


def before(queue: FairQueue, turn: float, tenant: str) -> Ahead:
    """What goes before a turn, tenant by tenant."""
    number = service = 0.0
    for other, backlog in queue.backlogs.items():
        first, last = queue.key_after(other, 0.0), queue.key_after(other, backlog.toll)
        if other == tenant or first > turn:
            continue
        part = float(backlog.count)
        if last > turn:
            part *= (turn - first) / (last - first)
            part += 1.0 if turn == first else 0.5
        number, service = number + part, service + part * backlog.service / backlog.count
    return Ahead(number, service)


@pytest.mark.parametrize("seed", range(5))
def test_sums_that_are_kept_are_those_over_all_tenants(seed: int) -> None:
    """Through arrivals, departures, charges and refunds; asked so late that all is looked at."""
    dice = random.Random(seed)
    queue = FairQueue(Vtc(), set())
    turns = Turns(queue)
    waiting: list[Waiter] = []
    for number in range(400):
        tenant = f"tenant{dice.randrange(8)}"
        if waiting and dice.random() < 0.5:
            queue.leave(waiting.pop(dice.randrange(len(waiting))))
        else:
            waiting.append(some_waiter(number, tenant, dice))
            queue.join(waiting[-1])
        queue.charge(f"tenant{dice.randrange(8)}", dice.choice((20.0, 3.0, -1.0)), 0.0)
        turn = dice.choice((queue.key(tenant), queue.key(tenant) + dice.uniform(0, 200)))
        found, exact = (
            turns.before(turn, tenant, float(number), slots=MANY),
            before(queue, turn, tenant),
        )
        assert found.number == pytest.approx(exact.number, abs=1e-6)
        assert found.service == pytest.approx(exact.service, abs=1e-6)


def test_a_picture_of_the_turns_is_kept_for_a_moment() -> None:
    """And made anew once an eighth has changed."""
    dice = random.Random(1)
    queue = FairQueue(Vtc(), set())
    turns = Turns(queue)
    for number in range(40):
        queue.join(some_waiter(number, "a", dice))
    assert turns.before(1e9, "b", 0.0, slots=MANY).number == 40
    for number in range(40, 45):
        queue.join(some_waiter(number, "a", dice))
    assert turns.before(1e9, "b", 0.2, slots=MANY).number == 40
    assert turns.before(1e9, "b", 0.3, slots=MANY).number == 45
    for number in range(45, 52):
        queue.join(some_waiter(number, "a", dice))
    assert turns.before(1e9, "b", 0.3, slots=MANY).number == 52


@pytest.mark.parametrize("slots", [1, 8, 64])
def test_an_old_picture_is_no_older_than_a_hundredth_of_the_wait(slots: int) -> None:
    """Nobody comes or goes, but tenants are charged, so that others' turns come sooner."""
    dice = random.Random(slots)
    queue = FairQueue(Vtc(), set())
    turns = Turns(queue)
    for number in range(400):
        queue.join(some_waiter(number, f"tenant{number % 20}", dice))
    now = looked_at = 0.0
    kept = before(queue, 900.0, "")
    for _ in range(400):
        now += 0.1
        queue.charge(f"tenant{dice.randrange(20)}", 40.0, now)
        found, exact = turns.before(900.0, "", now, slots=slots), before(queue, 900.0, "")
        if found.service != pytest.approx(kept.service, abs=1e-6):
            kept, looked_at = exact, now
        assert found.service == pytest.approx(kept.service, abs=1e-6)
        assert now - looked_at <= max(0.25, 0.01 * found.service / slots) + 1e-9


def test_who_has_nobody_before_it_is_told_so_at_once() -> None:
    dice = random.Random(1)
    queue = FairQueue(Vtc(), set())
    turns = Turns(queue)
    waiters = [some_waiter(number, tenant, dice) for number, tenant in enumerate("ab")]
    for waiter in waiters:
        queue.join(waiter)
    assert turns.before(1e9, "b", 0.0, slots=MANY).number == 1
    queue.leave(waiters[0])
    assert turns.before(1e9, "b", 0.0, slots=MANY) == Ahead(0.0, 0.0)
