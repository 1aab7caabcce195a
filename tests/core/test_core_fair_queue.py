"""The queue of one model against a plain list, and what else is asked of it."""

from __future__ import annotations

from operator import attrgetter
from random import Random

import pytest

from slotgate.core.fairness import DeficitRoundRobin, FairPolicy, NoFairness, Vtc
from slotgate.core.policies import FAIRNESS
from slotgate.core.queue import FairQueue
from slotgate.core.ticket import Ticket
from slotgate.core.waiter import Shape, Waiter

SHAPES = (Shape(1, 1000), Shape(1, 2000), Shape(2, 1000), Shape(1, 1000, size=11))
TENANTS = ("a", "b", "c", "d", "e")


def waiter(
    number: int,
    tenant: str = "a",
    *,
    shape: Shape = SHAPES[0],
    rank: float | None = None,
    toll: float = 0.0,
    service: float = 0.0,
) -> Waiter:
    return Waiter(
        ticket=Ticket(id=f"t{number}", arrival=0, deadline=9, tenant=tenant),
        number=number,
        since=0.0,
        shape=shape,
        start_by=9.0,
        rank=(float(number) if rank is None else rank, number),
        toll=toll,
        service=service,
    )


class PlainQueue:
    """A queue and the list that it must agree with."""

    def __init__(self, policy: FairPolicy, seed: int) -> None:
        self.dice = Random(seed)
        self.policy = policy
        self.closed: set[str] = set()
        self.queue = FairQueue(policy, self.closed)
        self.waiting: list[Waiter] = []
        self.count = 0
        self.now = 0.0

    def step(self) -> None:
        choose = self.dice.choice
        act, tenant = self.dice.random(), choose(TENANTS)
        if act < 0.35 or not self.waiting:
            self.join(tenant)
        elif act < 0.5:
            self.leave(choose(self.waiting))
        elif act < 0.6 and (front := self.queue.front()):
            self.leave(front[0])
            self.queue.grant(front[0])
            self.queue.charge(front[0].ticket.tenant, self.dice.uniform(0, 50), self.now)
        elif act < 0.75:
            self.queue.charge(tenant, self.dice.uniform(0, 100), self.now)
        elif act < 0.8:
            self.queue.charge(tenant, -self.dice.uniform(0, 50), self.now)
        elif act < 0.85:
            self.queue.move(choose(self.waiting), choose(SHAPES))
        elif act < 0.95:
            self.open_or_close(tenant)
        else:
            self.now += self.dice.uniform(0, 30)

    def join(self, tenant: str) -> None:
        self.count += 1
        dice = self.dice
        newcomer = waiter(
            self.count,
            tenant,
            shape=dice.choice(SHAPES),
            rank=dice.choice([float(self.count), dice.uniform(0, 100)]),
            toll=dice.uniform(0, 1000),
            service=dice.uniform(0, 10),
        )
        if not self.waiting:
            self.queue.pass_by(newcomer)
        self.waiting.append(newcomer)
        self.queue.join(newcomer)

    def leave(self, who: Waiter) -> None:
        self.waiting.remove(who)
        self.queue.leave(who)

    def open_or_close(self, tenant: str) -> None:
        if tenant in self.closed:
            self.closed.remove(tenant)
            assert self.queue.reopen(tenant) == (tenant in self.tenants())
        else:
            self.closed.add(tenant)
            self.queue.step_aside(tenant)

    def place(self, who: Waiter) -> tuple[float, tuple[float, int]]:
        return self.policy.key(who.ticket.tenant), who.rank

    def tenants(self) -> set[str]:
        return {each.ticket.tenant for each in self.waiting}

    def front(self) -> list[Waiter]:
        able = sorted(
            (w for w in self.waiting if w.ticket.tenant not in self.closed), key=self.place
        )
        firsts: dict[Shape, Waiter] = {}
        for each in able:
            firsts.setdefault(each.shape, each)
        return list(firsts.values())

    def check(self) -> None:
        queue = self.queue
        assert len(queue) == len(self.waiting)
        assert set(queue.shapes()) == {each.shape for each in self.waiting}
        assert set(queue.backlogs) == self.tenants()
        for tenant, backlog in queue.backlogs.items():
            own = sorted(
                (w for w in self.waiting if w.ticket.tenant == tenant), key=attrgetter("rank")
            )
            assert queue.of_tenant(tenant) == own
            assert backlog.count == len(own)
            assert backlog.toll == pytest.approx(sum(w.toll for w in own), abs=1e-6)
            assert backlog.service == pytest.approx(sum(w.service for w in own), abs=1e-6)
        if isinstance(self.policy, Vtc):
            able = self.tenants() - self.closed
            assert {each for each in TENANTS if each in self.policy._waiting} == able


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", sorted(FAIRNESS))
def test_the_front_is_the_first_of_each_shape_below_the_caps(name: str, seed: int) -> None:
    plain = PlainQueue(FAIRNESS[name](), seed)
    for _ in range(200):
        plain.step()
        # Not after each step, so that many changes add up unseen.
        if plain.dice.random() < 0.5:
            assert plain.queue.front() == plain.front()
            plain.check()
    for each in list(plain.waiting):
        plain.leave(each)
    assert plain.queue.front() == list(plain.queue) == []
    assert plain.queue.shapes() == []
    assert plain.queue.backlogs == {}
    assert len(plain.queue) == 0


def test_a_queue_tells_its_order_with_the_turn_of_each() -> None:
    vtc = Vtc()
    queue = FairQueue(vtc, set())
    for number, tenant, toll in ((1, "a", 10.0), (2, "a", 20.0), (3, "a", 5.0), (4, "b", 25.0)):
        queue.join(waiter(number, tenant, toll=toll))
    queue.charge("b", 15.0, 0.0)
    assert [(place, each.number) for each, place in queue.places("a")] == [
        ((0.0, 0, 0.0), 1),
        ((10.0, 1, 0.0), 2),
        ((30.0, 2, 0.0), 3),
    ]
    assert [each.number for each in queue] == [1, 2, 4, 3]
    assert queue.key("b") == 15.0
    assert queue.last_place("newcomer") == (0.0, 0, 0.0)
    assert queue.key_after("b", 5.0) == 20.0


def test_without_fairness_everybody_is_one_line() -> None:
    queue = FairQueue(NoFairness(), set())
    for number, tenant, service in ((1, "a", 2.0), (2, "b", 4.0), (3, "a", 6.0)):
        queue.join(waiter(number, tenant, service=service))
    assert [place[1:] for _, place in queue.places("a")] == [(0, 0.0), (2, 6.0)]
    assert queue.last_place("newcomer")[1:] == queue.last_place("a")[1:] == (3, 12.0)
    queue.leave(queue.front()[0])
    assert queue.last_place("b")[1:] == (2, 10.0)


def test_within_a_quantum_a_newcomer_goes_after_those_that_wait() -> None:
    queue = FairQueue(DeficitRoundRobin(quantum=100.0), set())
    for number, tenant in ((1, "a"), (2, "b"), (3, "b"), (4, "c")):
        queue.join(waiter(number, tenant, toll=60.0))
    turns = [place.turn for tenant in "abc" for _, place in queue.places(tenant)]
    assert turns == [0.0, 25.0, 50.0, 75.0]
    assert queue.last_place("newcomer").turn == 100.0
    assert queue.last_place("b").turn == 200.0


def test_a_wait_without_end_leaves_no_dust_in_the_sums() -> None:
    """A tenant that never stops waiting: sums of what came and went stay what they are."""
    queue = FairQueue(Vtc(), set())
    stays = waiter(0, toll=0.1, service=0.1)
    queue.join(stays)
    dice = Random(1)
    inside: list[Waiter] = []
    for number in range(1, 4000):
        inside.append(waiter(number, toll=dice.uniform(0, 1e6), service=dice.uniform(0, 1e3)))
        queue.join(inside[-1])
        if len(inside) > 20:
            queue.leave(inside.pop(dice.randrange(20)))
    for each in inside:
        queue.leave(each)
    backlog = queue.backlogs["a"]
    assert backlog.toll == pytest.approx(0.1, abs=1e-6)
    assert backlog.service == pytest.approx(0.1, abs=1e-9)
    queue.leave(stays)
    assert queue.backlogs == {}


def test_changes_are_counted() -> None:
    queue = FairQueue(Vtc(), set())
    first = waiter(1)
    queue.join(first)
    queue.leave(first)
    assert queue.changes == 2


def test_a_tenant_at_its_cap_is_looked_at_once() -> None:
    closed = {"a"}
    queue = FairQueue(Vtc(), closed)
    for number in range(1, 4):
        queue.join(waiter(number))
    queue.join(waiter(4, "b"))
    assert [each.number for each in queue.front()] == [4]
    closed.clear()
    # Nobody has said so.
    assert [each.number for each in queue.front()] == [4]
    assert queue.reopen("a")
    assert [each.number for each in queue.front()] == [1]
    assert not queue.reopen("nobody")
