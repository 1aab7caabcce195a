"""Who must go when the waiting room is full."""

from __future__ import annotations

from random import Random

import pytest

from slotgate.core.decision import Reason, Refused
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.room import WaitingRoom
from slotgate.core.ticket import Ticket
from slotgate.core.waiter import Shape, Waiter
from slotgate.testing import Script, ready

SHAPE = Shape(1, 1000)


def refusals(script: Script) -> list[Refused]:
    return [decision for decision in script.decisions if isinstance(decision, Refused)]


def test_a_hog_that_fills_the_room_makes_room_for_a_light_newcomer() -> None:
    script = Script(ready("left"), limits=Limits(max_waiting=3)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=hog
        0  submit d tenant=hog
        1  submit e tenant=hog   -> refused e queue_full by queue.max_waiting
        2  submit x tenant=light -> refused d queue_full by queue.max_waiting
        3  submit f tenant=hog   -> refused f queue_full by queue.max_waiting
        4  charge a output=1
        4  leave a               -> granted x on left
    """)
    pushed = refusals(script)[1]
    assert (pushed.waited, pushed.limit, pushed.value) == (2, 3, 3)
    assert pushed.retry_after is not None
    assert 1 <= pushed.retry_after <= 50


def test_the_room_is_shared_until_the_newcomer_has_as_much_as_the_largest() -> None:
    Script(ready("left"), limits=Limits(max_waiting=4)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=hog
        0  submit d tenant=hog
        0  submit e tenant=hog
        1  submit x tenant=light -> refused e queue_full
        1  submit y tenant=light -> refused d queue_full
        1  submit z tenant=light -> refused z queue_full
        1  submit f tenant=hog   -> refused f queue_full
        1  submit u tenant=third -> refused c queue_full
    """)


def test_the_room_is_shared_by_weight() -> None:
    limits = Limits(max_waiting=4, tenants={"heavy": TenantCaps(weight=3)})
    Script(ready("left"), limits=limits).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=heavy
        0  submit c tenant=heavy
        0  submit d tenant=heavy
        0  submit e tenant=hog
        1  submit f tenant=hog   -> refused f queue_full
        1  submit g tenant=light -> refused g queue_full
        1  submit h tenant=heavy -> refused h queue_full
    """)


def test_who_had_most_once_does_not_go_for_that() -> None:
    Script(ready("left"), limits=Limits(max_waiting=4)).run("""
        0  submit a tenant=early   -> granted a on left
        0  submit b tenant=early
        0  submit c tenant=early
        0  submit d tenant=early
        0  submit e tenant=now
        1  leave b abandoned
        1  leave c abandoned
        2  submit f tenant=now
        2  submit g tenant=now
        3  submit x tenant=light  -> refused g queue_full
    """)


def test_where_bytes_are_short_who_has_most_bytes_must_go() -> None:
    limits = Limits(max_waiting=9, max_waiting_bytes=100)
    Script(ready("left"), limits=limits).run("""
        0  submit a tenant=many          -> granted a on left
        0  submit b tenant=many bytes=1
        0  submit c tenant=many bytes=1
        0  submit d tenant=many bytes=1
        0  submit e tenant=large bytes=40
        0  submit f tenant=large bytes=40
        1  submit x tenant=light bytes=20  -> refused f queue_full by queue.max_waiting_bytes
    """)


def test_where_places_are_short_who_has_most_places_must_go() -> None:
    limits = Limits(max_waiting=4, max_waiting_bytes=100)
    Script(ready("left"), limits=limits).run("""
        0  submit a tenant=many          -> granted a on left
        0  submit b tenant=many bytes=1
        0  submit c tenant=many bytes=1
        0  submit d tenant=many bytes=1
        0  submit e tenant=large bytes=90
        1  submit x tenant=light bytes=1  -> refused d queue_full by queue.max_waiting
    """)


def test_one_newcomer_may_need_the_room_of_several() -> None:
    limits = Limits(max_waiting_bytes=100)
    Script(ready("left"), limits=limits).run("""
        0  submit a tenant=hog           -> granted a on left
        0  submit b tenant=hog bytes=50
        0  submit c tenant=hog bytes=25
        0  submit d tenant=hog bytes=25
        1  submit x tenant=light bytes=45 -> refused d queue_full, refused c queue_full
    """)


def test_nobody_goes_for_a_newcomer_that_has_no_room_even_so() -> None:
    limits = Limits(max_waiting_bytes=100)
    script = Script(ready("left"), limits=limits).run("""
        0  submit a tenant=hog              -> granted a on left
        0  submit b tenant=hog bytes=50
        0  submit c tenant=hog bytes=10
        1  submit x tenant=light bytes=101  -> refused x queue_full by queue.max_waiting_bytes
        1  submit y tenant=light bytes=55   -> refused y queue_full by queue.max_waiting_bytes
        2  submit z tenant=light bytes=50   -> refused c queue_full
    """)
    assert script.scheduler.snapshot().waiting_bytes == 100


def test_one_that_came_back_after_a_failure_is_not_the_last_of_its_tenant() -> None:
    Script(ready("left"), limits=Limits(max_waiting=3)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=hog
        1  pause left
        2  requeue a
        3  submit x tenant=light  -> refused c queue_full
    """)


def test_one_that_came_back_may_overfill_the_room_but_is_no_reason_to_empty_it() -> None:
    Script(ready("left", slots=3), limits=Limits(max_waiting=0)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog   -> granted b on left
        1  pause left
        2  requeue a
        2  requeue b
        3  submit x tenant=light  -> refused x queue_full by queue.max_waiting
        4  resume left            -> granted a on left
        5  settled a              -> granted b on left
    """)


def test_a_tenant_at_its_own_bound_pushes_nobody_out() -> None:
    limits = Limits(max_waiting=3, tenants={"light": TenantCaps(max_waiting=1)})
    Script(ready("left"), limits=limits).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=hog
        0  submit x tenant=light
        0  submit y tenant=light -> refused y tenant_limit by tenants.light.max_waiting
    """)


def test_who_goes_may_wait_for_another_model() -> None:
    models = ready("left", model="m"), ready("right", model="n")
    Script(*models, limits=Limits(max_waiting=2)).run("""
        0  submit a tenant=hog model=m    -> granted a on left
        0  submit b tenant=hog model=m
        0  submit c tenant=hog model=m
        0  submit x tenant=light model=n  -> granted x on right
        0  submit y tenant=light model=n  -> refused c queue_full
        1  leave a                        -> granted b on left
    """)


def test_slots_that_were_held_for_whoever_goes_are_handed_out_at_once() -> None:
    limits = Limits(max_waiting_bytes=100, max_bypass=0)
    Script(ready("left", slots=2), limits=limits).run("""
        0  submit a tenant=one                 -> granted a on left
        0  submit w tenant=hog width=2 bytes=90
        0  submit y tenant=third bytes=5
        1  submit x tenant=light bytes=10      -> refused w queue_full, granted y on left
    """)


def test_slots_that_were_held_for_a_refused_newcomer_are_handed_out_at_once() -> None:
    limits = Limits(max_waiting=1, max_bypass=0)
    policies = Policies.named(order="edf")
    Script(ready("left", slots=2), limits=limits, policies=policies).run("""
        0   submit a tenant=one                 -> granted a on left
        0   submit b tenant=one                 -> granted b on left
        0   submit c tenant=one within=90
        1   leave b abandoned
        # The lease of b is over, and the newcomer is first, but too wide.
        31  submit x tenant=two width=2 within=5  -> refused x queue_full, granted c on left
    """)


class PlainRoom:
    """The room as a list."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.inside: list[Waiter] = []

    def of(self, tenant: str) -> list[Waiter]:
        return [each for each in self.inside if each.ticket.tenant == tenant]

    def is_overfull(self) -> bool:
        size = sum(each.ticket.size_bytes for each in self.inside)
        return len(self.inside) > self.limits.max_waiting or size > self.limits.max_waiting_bytes


@pytest.mark.parametrize("seed", range(6))
def test_whoever_must_go_is_enough_and_not_in_vain(seed: int) -> None:
    dice = Random(seed)
    limits = Limits(
        max_waiting=dice.randint(0, 8),
        max_waiting_bytes=100,
        tenants={"b": TenantCaps(weight=2), "c": TenantCaps(max_waiting=2)},
    )
    room, plain = WaitingRoom(limits), PlainRoom(limits)
    for number in range(1, 250):
        ticket = Ticket(
            id=f"t{number}",
            arrival=0,
            deadline=dice.randint(1, 99),
            tenant=dice.choice("abbcd"),
            size_bytes=dice.choice([0, 1, 10, 20, 40, 120]),
        )
        newcomer = Waiter(
            ticket=ticket, number=number, since=0.0, shape=SHAPE, start_by=ticket.deadline
        )
        room.enter(newcomer)
        plain.inside.append(newcomer)
        going = [waiter for waiter, _ in room.who_must_go(newcomer)]
        assert going == [newcomer] or newcomer not in going
        for waiter in going:
            assert plain.of(waiter.ticket.tenant)[-1] is waiter, "the last of its tenant"
            plain.inside.remove(waiter)
            assert room.leave(waiter.ticket.id) is waiter
        assert not plain.is_overfull()
        assert len(plain.of("c")) <= 2
        if plain.inside and dice.random() < 0.4:
            waiter = plain.inside.pop(dice.randrange(len(plain.inside)))
            assert room.leave(waiter.ticket.id) is waiter
        assert len(room) == len(plain.inside)
        assert room.bytes == sum(each.ticket.size_bytes for each in plain.inside)
        assert room.next_deadline() == min((w.start_by for w in plain.inside), default=None)
    assert room.leave("nobody") is None


def test_an_overflow_says_what_was_found() -> None:
    room = WaitingRoom(Limits(max_waiting=1))
    for number in (1, 2):
        ticket = Ticket(id=f"t{number}", arrival=0, deadline=1)
        waiter = Waiter(
            ticket=ticket, number=number, since=0.0, shape=SHAPE, start_by=ticket.deadline
        )
        room.enter(waiter)
    ((refused, overflow),) = room.who_must_go(waiter)
    assert refused is waiter
    assert overflow == (Reason.QUEUE_FULL, 1, 1, "queue.max_waiting")
