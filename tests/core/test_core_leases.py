"""How a lease ends, and when its slots may be handed out again."""

from __future__ import annotations

import pytest

from slotgate.core.decision import Granted, Refused
from slotgate.core.limits import Limits
from slotgate.core.ticket import Ticket
from slotgate.testing import Script, ready


def test_a_served_request_frees_its_slot_at_once() -> None:
    Script(ready("left")).run("""
        0  submit a         -> granted a on left
        0  submit b
        1  leave a served   -> granted b on left
    """)


def test_a_request_that_was_cut_short_settles_first() -> None:
    for ending in ("failed", "abandoned", "killed"):
        script = Script(ready("left")).run(f"""
            0  submit a          -> granted a on left
            0  submit b
            1  leave a {ending}
        """)
        (deployment,) = script.scheduler.snapshot().deployments
        assert [lease.ticket.id for lease in deployment.settling] == ["a"]
        assert deployment.running == ()
        script.run("2 settled a -> granted b on left")


def test_what_the_caller_knows_of_the_slot_counts_more_than_the_ending() -> None:
    Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b
        1  leave a failed free -> granted b on left
        1  submit c
        2  leave b served busy
        3  settled b           -> granted c on left
    """)


def test_a_lease_that_never_settles_counts_as_free_after_a_bound() -> None:
    script = Script(ready("left"), limits=Limits(settle_bound_seconds=12)).run("""
        0       submit a          -> granted a on left
        0       submit b
        1       leave a abandoned
        12.999  tick
    """)
    assert script.scheduler.next_deadline() == 13
    script.run("13 tick -> granted b on left")
    script.run("14 settled a")


def test_leases_settle_each_by_its_own_bound() -> None:
    Script(ready("left", slots=2), limits=Limits(settle_bound_seconds=10)).run("""
        0   submit a           -> granted a on left
        0   submit b           -> granted b on left
        0   submit c
        0   submit d
        1   leave a abandoned
        2   leave b abandoned
        11  tick               -> granted c on left
        12  tick               -> granted d on left
    """)


def test_leaving_again_changes_nothing() -> None:
    Script(ready("left")).run("""
        0  submit a   -> granted a on left
        0  submit b
        0  submit c
        1  leave a    -> granted b on left
        1  leave a
        1  leave a abandoned
        2  leave b abandoned
        2  leave b served
        2  leave nobody
        3  settled b  -> granted c on left
    """)


def test_settling_again_changes_nothing() -> None:
    script = Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b
        0  submit c
        1  settled a
        1  leave a abandoned
        2  settled a           -> granted b on left
        2  settled a
    """)
    assert script.scheduler.settled("no such lease") == []
    assert script.scheduler.counts().processing == 1


def test_a_waiting_ticket_leaves_without_a_decision() -> None:
    script = Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b
        1  leave b abandoned
        2  leave a
    """)
    assert len(script.decisions) == 1
    assert script.scheduler.counts().idle == 1


# Requeue.


def test_a_requeued_ticket_is_in_front_of_those_that_came_later() -> None:
    script = Script(ready("left")).run("""
        0  submit a         -> granted a on left
        1  submit b
        2  submit c
        3  requeue a
        4  settled a        -> granted a on left
        5  leave a          -> granted b on left
    """)
    again = script.decisions[1]
    assert isinstance(again, Granted)
    assert again.waited == 4


def test_requeued_tickets_keep_their_order() -> None:
    Script(ready("left", slots=3)).run("""
        0  submit a                 -> granted a on left
        0  submit b                 -> granted b on left
        0  submit c                 -> granted c on left
        0  submit d
        1  deployment left slots=1
        2  requeue b free
        2  requeue a free
        2  requeue c free           -> granted a on left
        3  leave a                  -> granted b on left
        4  leave b                  -> granted c on left
        5  leave c                  -> granted d on left
    """)


def test_a_ticket_runs_elsewhere_while_its_old_lease_settles() -> None:
    script = Script(ready("left"), ready("right")).run("""
        0  submit a    -> granted a on left
        1  requeue a   -> granted a on right
    """)
    left, right = script.scheduler.snapshot().deployments
    assert [lease.ticket.id for lease in left.settling] == ["a"]
    assert [lease.ticket.id for lease in right.running] == ["a"]
    assert left.settling[0].id != right.running[0].id
    script.run("""
        2  settled a 1
        3  leave a
    """)
    assert script.scheduler.counts().idle == 2


def test_a_requeued_ticket_prefers_another_deployment() -> None:
    Script(ready("left", slots=3), ready("right", slots=1)).run("""
        0  submit a          -> granted a on left
        1  requeue a free    -> granted a on right
        2  submit b          -> granted b on left
        3  requeue b free
        4  leave a           -> granted b on right
    """)


def test_a_requeued_ticket_keeps_its_deadline() -> None:
    Script(ready("left")).run("""
        0   submit a within=10   -> granted a on left
        5   requeue a
        10  tick                 -> refused a queue_timeout
    """)
    script = Script(ready("left")).run("""
        0   submit a within=10   -> granted a on left
        12  requeue a free       -> refused a queue_timeout
    """)
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert refusal.waited == 12


def test_a_requeued_ticket_is_not_refused_for_want_of_room() -> None:
    Script(ready("left"), limits=Limits(max_waiting=1)).run("""
        0  submit a    -> granted a on left
        0  submit b
        1  requeue a
        1  submit c    -> refused c queue_full
        2  settled a   -> granted a on left
        3  leave a     -> granted b on left
    """)


def test_only_a_running_ticket_can_be_requeued() -> None:
    Script(ready("left")).run("""
        0  submit a          -> granted a on left
        0  submit b
        1  requeue b
        1  requeue nobody
        2  leave a abandoned
        2  requeue a
        3  settled a         -> granted b on left
    """)


def test_a_requeued_ticket_may_leave_while_its_lease_settles() -> None:
    script = Script(ready("left")).run("""
        0  submit a           -> granted a on left
        1  requeue a
        2  leave a abandoned
    """)
    assert script.scheduler.counts().waiting == 0
    assert script.scheduler.is_settling("a#1")
    script.run("3 settled a")
    assert script.scheduler.counts().idle == 1
    assert not script.scheduler.is_settling("a#1")


def test_the_rest_of_a_broken_answer_goes_to_the_front_with_a_deadline_of_its_own() -> None:
    Script(ready("left"), ready("right")).run("""
        0   submit a within=5               -> granted a on left
        0   submit b                        -> granted b on right
        1   submit c
        # Long after it should have begun, which it had.
        20  charge a output=9
        # What failed there waits for a slot elsewhere, and others do not wait for it.
        21  requeue a free rest within=5    -> granted c on left
        22  submit d
        23  leave b                         -> granted a on right
        24  deployment left state=down
        25  requeue a free rest within=1    -> granted a on right
        26  pause right
        27  requeue a rest within=1
        28  tick                            -> refused a queue_timeout
    """)


def test_the_rest_of_an_answer_must_still_fit() -> None:
    Script(ready("left", ctx_per_slot=100)).run("""
        0  submit a tokens=90               -> granted a on left
        1  charge a output=9
        2  requeue a free rest tokens=100   -> refused a context_length_exceeded
    """)


def test_the_rest_is_of_the_same_ticket() -> None:
    script = Script(ready("left")).run("0 submit a -> granted a on left")
    other = Ticket(id="b", arrival=0.0, deadline=9.0, model="m")
    with pytest.raises(ValueError, match="no rest of 'a'"):
        script.scheduler.requeue("a", rest=other)
    assert script.scheduler.has_lease("a")


def test_a_requeued_ticket_that_fits_nowhere_any_more_is_refused() -> None:
    Script(ready("big", ctx_per_slot=8000), ready("small", ctx_per_slot=1000)).run("""
        0  submit a tokens=5000   -> granted a on big
        1  remove big
        2  requeue a free         -> refused a context_length_exceeded by ctx_per_slot
    """)


def test_a_requeued_ticket_does_not_wait_for_a_model_that_went_away() -> None:
    Script(ready("left")).run("""
        0   submit a          -> granted a on left
        1   remove left
        2   requeue a free    -> refused a model_not_found
    """)


# Charges.


def test_charges_add_up_on_the_lease() -> None:
    script = Script(ready("left")).run("""
        0  submit a                     -> granted a on left
        1  charge a input=10 cached=4
        2  charge a output=3
        3  charge a output=2
        3  charge nobody output=9
    """)
    (lease,) = script.scheduler.snapshot().deployments[0].running
    assert (lease.input_tokens, lease.cached_tokens, lease.output_tokens) == (10, 4, 5)
