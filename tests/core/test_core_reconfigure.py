"""Other numbers and other rules while tickets wait and run: nobody is lost, and all count anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from slotgate.core.decision import Abort
from slotgate.core.fairness import Vtc
from slotgate.core.lengths import Lengths
from slotgate.core.limits import ClassLimits, Limits, TenantCaps
from slotgate.core.policies import Policies, is_same
from slotgate.core.pool import SlotPool
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import Script, ready

# What is foretold has tests of its own.
PLAIN = Policies.named(admission="expiry")


def script(slots: int = 1, *, policies: Policies = PLAIN, **numbers: Any) -> Script:
    return Script(ready("left", slots=slots), limits=Limits(**numbers), policies=policies)


def reconfigure(running: Script, *, policies: Policies = PLAIN, **numbers: Any) -> list[str]:
    """Reconfigure, and return what was decided by it."""
    decisions = running.scheduler.reconfigure(Limits(**numbers), policies)
    outcomes = [decision for decision in decisions if not isinstance(decision, Abort)]
    return [f"{type(outcome).__name__} {outcome.ticket.id}" for outcome in outcomes]


def caps(**of_tenant: int) -> Mapping[str, TenantCaps]:
    return {name: TenantCaps(max_in_flight=most) for name, most in of_tenant.items()}


def weights(**of_tenant: float) -> Mapping[str, TenantCaps]:
    return {name: TenantCaps(weight=weight) for name, weight in of_tenant.items()}


# Bounds of the waiting room.


def test_a_lower_bound_sends_nobody_away_and_lets_in_nobody_until_so_many_have_left() -> None:
    running = script(max_waiting=4).run("""
        0  submit a           -> granted a on left
        0  submit b
        0  submit c
        0  submit d
    """)
    assert reconfigure(running, max_waiting=2) == []
    running.run("""
        1  submit e           -> refused e queue_full by queue.max_waiting
        2  leave a            -> granted b on left
        2  submit f           -> refused f queue_full by queue.max_waiting
        3  leave b            -> granted c on left
        3  submit g
        3  submit h           -> refused h queue_full by queue.max_waiting
    """)


def test_above_a_lowered_bound_one_of_a_tenant_that_has_more_goes_for_a_newcomer() -> None:
    running = script(max_waiting=9).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=hog
        0  submit d tenant=hog
        0  submit e tenant=hog
    """)
    reconfigure(running, max_waiting=1)
    running.run("""
        1  submit f tenant=chat  -> refused e queue_full
        1  submit g tenant=chat  -> refused d queue_full
        1  submit h tenant=chat  -> refused h queue_full
    """)


def test_a_lower_bound_of_bytes_counts_only_for_newcomers_too() -> None:
    running = script(max_waiting_bytes=100).run("""
        0  submit a                      -> granted a on left
        0  submit b tenant=hog bytes=60
        0  submit c tenant=hog bytes=30
    """)
    assert reconfigure(running, max_waiting_bytes=20) == []
    running.run("""
        1  submit d tenant=hog bytes=1   -> refused d queue_full by queue.max_waiting_bytes
        1  submit e bytes=10             -> refused c queue_full
        2  submit f tenant=hog bytes=20  -> refused f queue_full
        3  leave a                       -> granted b on left
        4  submit g tenant=hog bytes=10
    """)


def test_who_tries_in_vain_to_take_a_place_changes_nothing() -> None:
    running = script(max_waiting=9, max_waiting_bytes=100).run("""
        0  submit a                      -> granted a on left
        0  submit b tenant=hog bytes=25
        0  submit c tenant=hog bytes=25
        0  submit d tenant=hog bytes=25
        0  submit e tenant=hog bytes=25
    """)
    reconfigure(running, max_waiting=1, max_waiting_bytes=100)
    # Two would have to go for it, and even so there would be no room.
    running.run("""
        1  submit f bytes=60             -> refused f queue_full by queue.max_waiting_bytes
        2  submit g bytes=1              -> refused e queue_full by queue.max_waiting
    """)
    assert running.scheduler.counts().waiting == 4


def test_once_so_many_have_left_the_lower_bound_is_as_if_it_had_always_been() -> None:
    running = script(slots=2, max_waiting=9).run("""
        0  submit r1 tenant=hog   -> granted r1 on left
        0  submit r2 tenant=hog   -> granted r2 on left
        0  submit h1 tenant=hog
        0  submit h2 tenant=hog
        0  submit h3 tenant=hog
    """)
    reconfigure(running, max_waiting=1)
    # Who comes back is not refused for want of room, but counts: too many would have to go.
    running.run("""
        1  leave h1 abandoned
        1  leave h2 abandoned
        2  requeue r1 busy
        2  requeue r2 busy
        3  submit a               -> refused a queue_full by queue.max_waiting
    """)


def test_a_higher_bound_lets_newcomers_in() -> None:
    running = script(max_waiting=1).run("""
        0  submit a   -> granted a on left
        0  submit b
        0  submit c   -> refused c queue_full
    """)
    reconfigure(running, max_waiting=2)
    running.run("1 submit c")


# Tenants.


def test_a_higher_cap_grants_at_once_what_waited_for_it() -> None:
    running = script(slots=3, tenants=caps(hog=1)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=hog
    """)
    assert reconfigure(running, tenants=caps(hog=2)) == ["Granted b"]
    assert reconfigure(running) == ["Granted c"]


def test_a_lower_cap_takes_nothing_away_and_grants_nothing_until_there_is_room() -> None:
    running = script(slots=3).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog   -> granted b on left
    """)
    assert reconfigure(running, tenants=caps(hog=1)) == []
    running.run("""
        1  submit c tenant=hog
        2  leave a
        3  submit d              -> granted d on left
        4  leave b               -> granted c on left
    """)


def test_a_tenant_whose_cap_is_lifted_goes_first_but_has_saved_up_nothing() -> None:
    running = script(slots=2, tenants=caps(hog=1)).run("""
        0  submit a0 tenant=hog              -> granted a0 on left
        0  submit b0 tenant=chat             -> granted b0 on left
        0  submit a1 tenant=hog tokens=100
        0  submit a2 tenant=hog tokens=100
        0  submit b1 tenant=chat tokens=100
        1  charge b0 output=50
    """)
    reconfigure(running)
    running.run("""
        2  leave b0                          -> granted a1 on left
        3  leave a0                          -> granted b1 on left
        4  leave a1                          -> granted a2 on left
    """)


def test_a_tenant_whose_cap_comes_while_it_waits_takes_no_turn() -> None:
    running = script(slots=1, tenants=caps(hog=5)).run("""
        0  submit a tenant=hog    -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=chat
    """)
    reconfigure(running, tenants=caps(hog=1))
    fairness = running.scheduler._fleet.models["m"].queue._fairness
    assert isinstance(fairness, Vtc)
    assert list(fairness._waiting) == ["chat"], "nobody is lifted to who cannot take a turn"
    running.run("""
        1  deployment left slots=2   -> granted c on left
        2  leave a                   -> granted b on left
    """)


def test_a_tenant_that_is_not_configured_any_more_waits_and_runs_on() -> None:
    running = script(tenants=caps(gone=1)).run("""
        0  submit a tenant=gone   -> granted a on left
        0  submit b tenant=gone
    """)
    reconfigure(running)
    running.run("1 leave a   -> granted b on left")


def test_the_turns_of_those_that_wait_are_weighted_anew() -> None:
    """Each grant costs 100 tokens over the weight; with equal weights the turns alternate."""
    running = script(tenants=weights(heavy=1, light=1)).run("""
        0  submit a0 tenant=heavy tokens=100   -> granted a0 on left
        0  submit a1 tenant=heavy tokens=100
        0  submit a2 tenant=heavy tokens=100
        0  submit a3 tenant=heavy tokens=100
        0  submit b1 tenant=light tokens=100
        0  submit b2 tenant=light tokens=100
    """)
    reconfigure(running, tenants=weights(heavy=100, light=1))
    running.run("""
        1  leave a0   -> granted a1 on left
        2  leave a1   -> granted b1 on left
        3  leave b1   -> granted a2 on left
        4  leave a2   -> granted a3 on left
        5  leave a3   -> granted b2 on left
    """)


def test_what_a_tenant_has_had_is_remembered() -> None:
    running = script(slots=2).run("""
        0  submit a0 tenant=hog      -> granted a0 on left
        0  submit b0 tenant=chat     -> granted b0 on left
        0  submit a1 tenant=hog
        0  submit b1 tenant=chat
        0  submit b2 tenant=chat
        1  charge a0 output=50
    """)
    reconfigure(running, tenants=weights(other=2))
    running.run("""
        2  leave b0   -> granted b1 on left
        3  leave b1   -> granted b2 on left
    """)


def test_what_runs_is_charged_by_the_weight_with_which_it_came() -> None:
    running = script(tenants=weights(chat=4)).run("""
        0  submit a tenant=chat tokens=400 class=x   -> granted a on left
        0  submit b tenant=chat class=x
    """)
    reconfigure(running, tenants=weights(chat=1))
    running.run("1 requeue a free -> granted a on left")
    model = running.scheduler._fleet.models["m"]
    assert model.queue.key("chat") == 400  # 100 was given back, and 400 taken


def test_a_part_of_a_full_room_is_measured_by_the_new_weight() -> None:
    running = script(max_waiting=4, tenants=weights(big=9)).run("""
        0  submit a tenant=big     -> granted a on left
        0  submit b tenant=big
        0  submit c tenant=big
        0  submit d tenant=big
        0  submit e tenant=small
        0  submit f tenant=small   -> refused f queue_full
    """)
    reconfigure(running, max_waiting=4, tenants=weights(big=1))
    running.run("1 submit g tenant=small   -> refused d queue_full")


# Classes.


def classes(holdback: float) -> dict[str, ClassLimits]:
    return {
        "interactive": ClassLimits(budget=10),
        "batch": ClassLimits(budget=300, holdback=holdback),
    }


def test_a_class_that_leaves_slots_free_does_so_from_now_on() -> None:
    running = script(slots=4, classes=classes(0)).run("""
        0  submit i class=interactive   -> granted i on left
        0  leave i
        0  submit a class=batch         -> granted a on left
        0  submit b class=batch         -> granted b on left
    """)
    reconfigure(running, classes=classes(0.5))
    # What runs does not count: it came when nothing was to be left.
    running.run("""
        1  submit c class=batch         -> granted c on left
        1  submit d class=batch         -> granted d on left
        1  leave a
        1  leave b
        2  submit e class=batch
        2  submit f class=interactive   -> granted f on left
    """)


def test_who_waits_because_its_class_left_slots_runs_once_it_need_not() -> None:
    running = script(slots=2, classes=classes(0.5)).run("""
        0  submit i class=interactive   -> granted i on left
        0  submit a class=batch         -> granted a on left
        0  leave i
        0  submit b class=batch
    """)
    assert reconfigure(running, classes=classes(0)) == ["Granted b"]
    running.run("""
        1  leave a
        1  leave b
    """)
    # Nothing is left in the books of what is held back.
    (pool,) = running.scheduler._fleet.pools.values()
    assert pool.held_back == 0


def test_what_is_held_back_is_given_back_as_it_was_taken() -> None:
    running = script(slots=2, classes=classes(0.5)).run("""
        0  submit a class=batch   -> granted a on left
    """)
    reconfigure(running, classes=classes(0))
    running.run("""
        1  requeue a busy         -> granted a on left
        2  settled a 1
        3  leave a
    """)
    (pool,) = running.scheduler._fleet.pools.values()
    assert pool.held_back == 0


def test_who_comes_to_leave_slots_while_it_waits_is_waited_for_by_the_clock() -> None:
    running = script(slots=2, classes=classes(0)).run("""
        0  submit i class=interactive       -> granted i on left
        0  submit a class=batch             -> granted a on left
        0  submit b class=batch within=200
    """)
    reconfigure(running, classes=classes(1))
    running.run("1 leave i")
    assert running.scheduler.next_deadline() == 60
    running.run("60 tick   -> granted b on left")


# Other numbers.


def test_a_lease_settles_by_the_bound_in_force_when_it_began_to() -> None:
    running = script(settle_bound_seconds=30).run("""
        0  submit a             -> granted a on left
        0  submit b
        1  leave a abandoned
    """)
    reconfigure(running, settle_bound_seconds=2)
    assert running.scheduler.next_deadline() == 30
    running.run("""
        5   settled a           -> granted b on left
        5   submit c
        6   leave b abandoned
        8   tick                -> granted c on left
    """)


def test_slots_are_held_sooner_for_a_wide_one_if_fewer_may_overtake_it() -> None:
    running = script(slots=2, max_bypass=9, bypass_seconds=99).run("""
        0  submit a             -> granted a on left
        0  submit b             -> granted b on left
        0  submit w width=2
        0  submit c
        0  submit d
        1  leave a              -> granted c on left
    """)
    reconfigure(running, max_bypass=1, bypass_seconds=99)
    running.run("""
        2  leave c
        3  leave b              -> granted w on left
    """)


def test_a_refusal_names_the_budget_of_now() -> None:
    running = script(max_waiting=0)
    budget = {"standard": ClassLimits(budget=5)}
    reconfigure(running, max_waiting=0, classes=budget)
    running.run("""
        0  submit a            -> granted a on left
        0  submit b within=5   -> refused b queue_full by queue.max_waiting
    """)
    assert running.scheduler._refusals.limits.classes is budget


def test_a_model_that_comes_later_goes_by_the_new_numbers() -> None:
    running = script(max_waiting=9)
    reconfigure(running, policies=Policies.named(fairness="none", admission="expiry"))
    running.run("""
        1  deployment far model=n
        1  submit a model=n tenant=hog tokens=900  -> granted a on far
        1  submit b model=n tenant=hog
        1  submit c model=n tenant=chat
        2  leave a                                 -> granted b on far
    """)


# Rules.


def test_another_order_ranks_who_waits_anew_and_who_comes_back_too() -> None:
    running = script().run("""
        0  submit a within=90  -> granted a on left
        0  submit b within=60
        0  submit c within=30
        0  submit d within=95
    """)
    reconfigure(running, policies=Policies.named(order="edf", admission="expiry"))
    running.run("""
        1  requeue a free      -> granted c on left
        2  leave c             -> granted b on left
        3  leave b             -> granted a on left
    """)


def test_another_fairness_begins_afresh_with_those_that_wait() -> None:
    running = script(slots=2, tenants=caps(capped=1)).run("""
        0  submit a0 tenant=hog tokens=400    -> granted a0 on left
        0  submit c0 tenant=capped            -> granted c0 on left
        0  submit c1 tenant=capped
        0  submit a1 tenant=hog
        0  submit b1 tenant=chat
    """)
    policies = Policies.named(fairness="none", admission="expiry")
    reconfigure(running, tenants=caps(capped=1), policies=policies)
    running.run("""
        1  leave a0   -> granted a1 on left
        2  leave c0   -> granted c1 on left
    """)
    reconfigure(running, tenants=caps(capped=1))
    running.run("3 leave a1   -> granted b1 on left")


def test_who_comes_after_another_fairness_is_lifted_to_those_that_wait() -> None:
    running = script(policies=Policies.named(fairness="none", admission="expiry")).run("""
        0  submit a0 tenant=hog    -> granted a0 on left
        0  submit a1 tenant=hog
    """)
    reconfigure(running)
    running.run("""
        1  charge a0 output=50
        2  submit b0 tenant=chat
        3  leave a0                -> granted a1 on left
    """)


def test_another_admission_holds_for_newcomers() -> None:
    running = Script(ready("left"), policies=PLAIN)
    for number in range(6):
        running.run(f"""
            {10 * number}      submit a{number}   -> granted a{number} on left
            {10 * number}      charge a{number} output=1
            {10 * number + 9}  charge a{number} output=99
            {10 * number + 9}  leave a{number}
        """)
    running.run("""
        60  submit b           -> granted b on left
        60  submit c within=1
    """)
    running.scheduler.reconfigure(Limits(), Policies.named(admission="deadline"))
    running.run("60 submit d within=1   -> refused d wait_too_long")


def test_a_calendar_is_kept_unless_it_is_another() -> None:
    running = script(max_waiting=0)
    running.run("""
        0  submit a   -> granted a on left
        0  submit b   -> refused b queue_full
    """)
    model = running.scheduler._fleet.models["m"]
    calendar = model.calendar
    reconfigure(running)
    assert model.calendar is calendar
    reconfigure(running, policies=Policies.named(retry_after="constant", admission="expiry"))
    assert model.calendar is not calendar


def test_another_limit_on_concurrency_begins_afresh_on_every_deployment() -> None:
    running = script(slots=4)
    (pool,) = running.scheduler._fleet.pools.values()
    before = pool.concurrency
    reconfigure(running)
    assert pool.concurrency is before
    pool.limit = 1
    reconfigure(running, policies=Policies.named(concurrency="fixed", admission="expiry"))
    assert running.scheduler.snapshot().deployment("left").limit == 4


class Last:
    """The deployment that was added last."""

    def choose(self, ticket: Ticket, pools: Sequence[SlotPool], lengths: Lengths) -> SlotPool:
        return pools[-1]


def test_another_placement_holds_for_the_next_grant() -> None:
    running = Script(ready("left", slots=4), ready("right", slots=3), policies=PLAIN)
    running.scheduler.reconfigure(Limits(), replace(PLAIN, placement=Last))
    running.run("0 submit a   -> granted a on right")


def test_another_kv_budget_holds_for_the_next_grant() -> None:
    report = ready("left", slots=4, ctx_per_slot=1000, kv_pool_tokens=1000)
    running = Script(report, policies=Policies.named(kv="max", admission="expiry")).run("""
        0  submit a tokens=600 output=300   -> granted a on left
        0  submit b tokens=600 output=300
    """)
    off = Policies.named(kv="off", admission="expiry")
    assert reconfigure(running, policies=off) == ["Granted b"]


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, True),
        ({"kv_watermark": 0.2}, False),
        ({"kv": "max"}, False),
        ({"concurrency": "fixed"}, True),
    ],
)
def test_a_rule_is_the_same_with_the_same_options(options: dict[str, Any], same: bool) -> None:
    assert is_same(Policies.named().kv_budget, Policies.named(**options).kv_budget) is same


def test_what_is_due_is_decided_before() -> None:
    running = script(slots=0).run("0 submit a within=5")
    running.clock.advance(6)
    assert reconfigure(running) == ["Refused a"]


def test_states_are_those_of_what_is_not_removed() -> None:
    scheduler: Scheduler = (
        Script(ready("left"), ready("right"))
        .run("""
        0  submit a     -> granted a on left
        0  remove left
        0  pause right
    """)
        .scheduler
    )
    assert scheduler.states() == {"right": "paused"}
    assert scheduler.held() == {"right"}
