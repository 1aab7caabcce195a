"""Who waits, in which order, how many and for how long."""

from __future__ import annotations

import pytest

from slotgate.core.decision import Granted, Reason, Refused
from slotgate.core.limits import Limits
from slotgate.core.ticket import Ticket
from slotgate.testing import Script, ready


def last_refusal(script: Script) -> Refused:
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    return refusal


def test_a_free_slot_is_granted_at_once() -> None:
    script = Script(ready("left")).run("0 submit a -> granted a on left")
    (granted,) = script.decisions
    assert isinstance(granted, Granted)
    assert granted.waited == 0
    assert granted.output_clamp is None
    assert script.scheduler.has_lease("a")
    assert not script.scheduler.is_waiting("a")


def test_tickets_are_served_in_order_of_arrival() -> None:
    Script(ready("left")).run("""
        0  submit a   -> granted a on left
        1  submit b
        2  submit c
        3  leave a    -> granted b on left
        4  leave b    -> granted c on left
    """)


def test_a_grant_tells_how_long_its_ticket_waited() -> None:
    script = Script(ready("left")).run("""
        0    submit a  -> granted a on left
        1.5  submit b
        4    leave a   -> granted b on left
    """)
    granted = script.decisions[-1]
    assert isinstance(granted, Granted)
    assert granted.waited == 2.5


def test_one_event_may_serve_many() -> None:
    Script(ready("left")).run("""
        0  submit a                -> granted a on left
        0  submit b
        0  submit c
        0  submit d
        1  deployment left slots=3 -> granted b on left, granted c on left
    """)


def test_a_ticket_that_leaves_the_middle_of_the_queue_is_not_served() -> None:
    Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b
        0  submit c
        1  leave b abandoned
        2  leave a             -> granted c on left
    """)


def test_models_have_queues_of_their_own() -> None:
    Script(ready("left", model="m"), ready("right", model="n")).run("""
        0  submit a model=m   -> granted a on left
        0  submit b model=m
        0  submit c model=n   -> granted c on right
        1  leave c
        2  leave a            -> granted b on left
    """)


def test_an_unknown_model_is_refused_for_good() -> None:
    script = Script(ready("left")).run("0 submit a model=other -> refused a model_not_found")
    assert last_refusal(script).retry_after is None


def test_an_id_that_waits_or_runs_cannot_be_submitted_again() -> None:
    script = Script(ready("left")).run("""
        0  submit a  -> granted a on left
        0  submit b
    """)
    for ticket_id in ("a", "b"):
        with pytest.raises(ValueError, match="is here already"):
            script.run(f"1 submit {ticket_id}")
    script.run("2 leave a -> granted b on left")
    script.run("2 submit a")


def test_a_ticket_is_at_least_one_slot_wide() -> None:
    script = Script(ready("left"))
    with pytest.raises(ValueError, match="0 slots wide"):
        script.scheduler.submit(Ticket(id="a", arrival=0, deadline=1, model="m", width=0))


# The waiting room's bounds.


def test_the_waiting_room_is_bounded_in_number() -> None:
    script = Script(ready("left"), limits=Limits(max_waiting=2)).run("""
        0  submit a   -> granted a on left
        0  submit b
        0  submit c
        0  submit d   -> refused d queue_full by queue.max_waiting
        1  leave c abandoned
        1  submit e
        1  submit f   -> refused f queue_full
    """)
    refusal = last_refusal(script)
    assert (refusal.limit, refusal.value) == (2, 2)
    assert refusal.retry_after is not None
    assert refusal.retry_after >= 1


def test_without_a_waiting_room_only_free_slots_are_given() -> None:
    Script(ready("left"), limits=Limits(max_waiting=0)).run("""
        0  submit a   -> granted a on left
        0  submit b   -> refused b queue_full
        1  leave a
        1  submit c   -> granted c on left
    """)


def test_a_full_waiting_room_does_not_refuse_whom_a_slot_fits() -> None:
    Script(ready("left", slots=2), limits=Limits(max_waiting=1)).run("""
        0  submit a          -> granted a on left
        0  submit b width=2
        0  submit c          -> granted c on left
        0  submit d          -> refused d queue_full
    """)


def test_the_waiting_room_is_bounded_in_bytes() -> None:
    script = Script(ready("left"), limits=Limits(max_waiting_bytes=100)).run("""
        0  submit a bytes=90   -> granted a on left
        0  submit b bytes=60
        0  submit c bytes=40
        0  submit d bytes=1    -> refused d queue_full by queue.max_waiting_bytes
        0  submit e bytes=0
        1  leave b abandoned
        1  submit f bytes=60
        1  submit g bytes=1    -> refused g queue_full by queue.max_waiting_bytes
    """)
    assert (last_refusal(script).limit, last_refusal(script).value) == (100, 101)
    assert script.scheduler.snapshot().waiting_bytes == 100


def test_a_granted_ticket_gives_its_bytes_back() -> None:
    Script(ready("left"), limits=Limits(max_waiting_bytes=100)).run("""
        0  submit a           -> granted a on left
        0  submit b bytes=90
        1  leave a            -> granted b on left
        1  submit c bytes=90
    """)


def test_a_ticket_larger_than_the_waiting_room_cannot_wait_alone() -> None:
    Script(ready("left"), limits=Limits(max_waiting_bytes=100)).run("""
        0  submit a             -> granted a on left
        0  submit b bytes=101   -> refused b queue_full by queue.max_waiting_bytes
    """)


def test_the_bounds_hold_over_all_models() -> None:
    script = Script(
        ready("left", model="m"), ready("right", model="n"), limits=Limits(max_waiting=1)
    )
    script.run("""
        0  submit a model=m   -> granted a on left
        0  submit b model=n   -> granted b on right
        0  submit c model=m
        0  submit d model=n   -> refused d queue_full
    """)


# Deadlines.


def test_a_ticket_expires_exactly_at_its_deadline() -> None:
    script = Script(ready("left")).run("""
        0      submit a            -> granted a on left
        0      submit b within=5
        4.999  tick
        5      tick                -> refused b queue_timeout
    """)
    assert last_refusal(script).waited == 5
    assert not script.scheduler.is_waiting("b")


def test_a_slot_that_comes_free_at_the_deadline_comes_too_late() -> None:
    Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b within=5
        0  submit c within=6
        5  leave a             -> refused b queue_timeout, granted c on left
    """)


def test_deadlines_are_kept_whoever_came_first() -> None:
    Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b within=9
        0  submit c within=3
        0  submit d within=6
        7  tick                -> refused c queue_timeout, refused d queue_timeout
        9  tick                -> refused b queue_timeout
    """)


def test_who_leaves_at_its_deadline_is_told_nothing() -> None:
    Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b within=5
        0  submit c within=5
        5  leave b abandoned   -> refused c queue_timeout
    """)


def test_a_ticket_that_is_late_already_is_refused() -> None:
    Script(ready("left")).run("0 submit a within=0 -> refused a queue_timeout")


def test_any_event_expires_what_is_due() -> None:
    for event in ("deployment left", "leave a busy", "charge a", "begin_draining", "pause left"):
        Script(ready("left")).run(f"""
            0  submit a            -> granted a on left
            0  submit b within=5
            6  {event}             -> refused b queue_timeout
        """)
    Script(ready("left")).run("""
        0  submit a            -> granted a on left
        0  submit b within=5
        6  submit c            -> refused b queue_timeout
    """)


def test_who_expires_makes_room_for_a_newcomer() -> None:
    Script(ready("left"), limits=Limits(max_waiting=1)).run("""
        0  submit a            -> granted a on left
        0  submit b within=5
        5  submit c            -> refused b queue_timeout
        6  submit d            -> refused d queue_full
    """)


def test_the_next_deadline_is_the_first_thing_that_time_makes_due() -> None:
    script = Script(ready("left", slots=2), limits=Limits(settle_bound_seconds=4))
    assert script.scheduler.next_deadline() is None
    script.run("""
        0  submit a            -> granted a on left
        0  submit b            -> granted b on left
        0  submit c within=20
        0  submit d within=10
    """)
    assert script.scheduler.next_deadline() == 10
    script.run("1 leave a abandoned")
    assert script.scheduler.next_deadline() == 5
    script.run("2 leave d abandoned")
    script.run("5 tick -> granted c on left")
    assert script.scheduler.next_deadline() is None


@pytest.mark.parametrize(
    ("options", "limit", "setting"),
    [
        ("within=30", 30, "classes.standard.budget"),
        ("within=8", 8, "x-slotgate-deadline-ms"),
        ("within=10 class=interactive", 10, "classes.interactive.budget"),
        ("within=8 class=interactive", 8, "x-slotgate-deadline-ms"),
        ("within=300 class=batch", 300, "classes.batch.budget"),
        ("within=7 class=unheard-of", 7, "classes.unheard-of.budget"),
    ],
)
def test_a_timeout_names_what_set_the_deadline(options: str, limit: float, setting: str) -> None:
    script = Script(ready("left")).run(f"""
        0.3   submit a            -> granted a on left
        0.3   submit b {options}
        400   tick                -> refused b queue_timeout by {setting}
    """)
    assert last_refusal(script).limit == pytest.approx(limit)
    assert last_refusal(script).value == pytest.approx(399.7)


# Draining the gateway.


def test_a_draining_gateway_serves_who_waits_and_refuses_newcomers() -> None:
    script = Script(ready("left")).run("""
        0  submit a         -> granted a on left
        0  submit b
        1  begin_draining
        1  submit c         -> refused c draining
        1  submit d model=other -> refused d draining
        2  leave a          -> granted b on left
        3  requeue b free   -> granted b on left
        4  leave b
    """)
    assert script.scheduler.is_draining
    snapshot = script.scheduler.snapshot()
    assert snapshot.is_draining
    assert snapshot.waiting == ()


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("deployment left state=down", "no_backend by backends"),
        ("deployment left state=draining", "draining by backends"),
        ("drain left", "draining by backends"),
        ("disable left", "no_backend by backends"),
    ],
)
def test_a_draining_gateway_keeps_nobody_for_what_will_not_come(event: str, reason: str) -> None:
    before = Script(ready("left")).run(f"""
        0  submit a   -> granted a on left
        0  submit b
        0  submit c
        1  {event}
        2  begin_draining -> refused b {reason}, refused c {reason}
        3  leave a
    """)
    after = Script(ready("left")).run(f"""
        0  submit a   -> granted a on left
        0  submit b
        1  begin_draining
        3  {event}    -> refused b {reason}
        4  requeue a  -> refused a {reason}
    """)
    for script in (before, after):
        refusal = last_refusal(script)
        assert refusal.waited == pytest.approx(2 if script is before else 4)
        assert refusal.retry_after is not None
        assert 1 <= refusal.retry_after < 3
        assert script.scheduler.counts().waiting == 0


@pytest.mark.parametrize(
    "event", ["deployment left state=starting", "deployment left state=loading"]
)
def test_a_draining_gateway_waits_for_what_comes_back(event: str) -> None:
    Script(ready("left")).run(f"""
        0  submit a                     -> granted a on left
        0  submit b
        1  begin_draining
        2  {event}
        3  requeue a free
        4  deployment left state=ready  -> granted a on left
        5  leave a                      -> granted b on left
    """)


def test_a_draining_gateway_waits_for_what_the_operator_may_resume() -> None:
    Script(ready("left")).run("""
        0  submit a        -> granted a on left
        0  submit b
        1  pause left
        2  begin_draining
        3  leave a
        4  resume left     -> granted b on left
    """)


def test_a_draining_gateway_keeps_who_another_deployment_can_serve() -> None:
    Script(ready("left"), ready("right", slots=3), ready("far", model="n")).run("""
        0  submit a                      -> granted a on right
        0  submit b                      -> granted b on right
        0  submit c                      -> granted c on left
        0  submit wide width=3
        0  submit d                      -> granted d on right
        0  submit e
        0  submit f model=n              -> granted f on far
        0  submit g model=n
        1  begin_draining
        2  deployment right state=down   -> refused wide no_backend
        3  leave c                       -> granted e on left
        4  leave f                       -> granted g on far
    """)


def test_a_draining_gateway_believes_in_slots_that_nobody_has_counted() -> None:
    Script().run("""
        0  deployment right state=loading slots=1
        0  submit wide width=2
        1  begin_draining
        2  deployment right state=ready slots=2  -> granted wide on right
    """)


def test_a_backend_that_is_gone_for_a_moment_sheds_nobody_outside_a_drain() -> None:
    Script(ready("left")).run("""
        0  submit a                     -> granted a on left
        0  submit b
        1  deployment left state=down
        2  requeue a free
        3  deployment left state=ready  -> granted a on left
        4  leave a                      -> granted b on left
    """)


def test_reasons_that_pass_soon_have_a_short_and_spread_time_to_come_back() -> None:
    script = Script(ready("left")).run("""
        0  begin_draining
        0  submit a   -> refused a draining
    """)
    refusal = last_refusal(script)
    assert refusal.reason is Reason.DRAINING
    assert refusal.retry_after is not None
    assert 1 <= refusal.retry_after < 3
