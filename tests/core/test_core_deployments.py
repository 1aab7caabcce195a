"""Deployments come, change, are held by the operator, and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotgate.core.decision import Refused
from slotgate.core.deployment import State
from slotgate.testing import Script, ready


def test_a_ticket_goes_where_most_slots_are_free() -> None:
    Script(ready("left", slots=2), ready("right", slots=3)).run("""
        0  submit a   -> granted a on right
        0  submit b   -> granted b on left
        0  submit c   -> granted c on right
        0  submit d   -> granted d on left
        0  submit e   -> granted e on right
        0  submit f
    """)


def test_who_waits_gets_the_first_slot_of_any_deployment() -> None:
    Script(ready("left"), ready("right")).run("""
        0  submit a   -> granted a on left
        0  submit b   -> granted b on right
        0  submit c
        0  submit d
        1  leave b    -> granted c on right
        2  leave a    -> granted d on left
    """)


def test_more_slots_serve_more_at_once() -> None:
    Script(ready("left")).run("""
        0  submit a                 -> granted a on left
        0  submit b
        0  submit c
        1  deployment left slots=2  -> granted b on left
    """)


def test_fewer_slots_revoke_nothing_and_start_nothing() -> None:
    Script(ready("left", slots=3)).run("""
        0  submit a                 -> granted a on left
        0  submit b                 -> granted b on left
        0  submit c                 -> granted c on left
        1  deployment left slots=1
        1  submit d
        2  leave a
        3  leave b
        4  leave c                  -> granted d on left
    """)


def test_slots_that_others_use_are_not_handed_out() -> None:
    script = Script(ready("left", slots=3)).run("""
        0  deployment left outside=2
        0  submit a                    -> granted a on left
        0  submit b
        1  deployment left outside=1   -> granted b on left
        2  deployment left outside=3
        2  submit c
        3  leave a
        4  leave b
        5  deployment left outside=0   -> granted c on left
    """)
    assert script.scheduler.counts().processing == 1


def test_settling_leases_hold_their_slots_against_a_resize() -> None:
    Script(ready("left", slots=2)).run("""
        0  submit a                 -> granted a on left
        0  submit b                 -> granted b on left
        0  submit c
        1  leave a abandoned
        1  leave b abandoned
        2  deployment left slots=3  -> granted c on left
        2  submit d
        3  settled a                -> granted d on left
    """)


# States.


@pytest.mark.parametrize("state", ["starting", "loading", "paused"])
def test_newcomers_wait_for_what_will_be_ready(state: str) -> None:
    Script(ready("left")).run(f"""
        0  deployment left state={state}
        0  submit a
        1  deployment left state=ready   -> granted a on left
    """)


@pytest.mark.parametrize(("state", "reason"), [("down", "no_backend"), ("draining", "draining")])
def test_newcomers_are_refused_what_will_not_be_ready(state: str, reason: str) -> None:
    script = Script(ready("left"), ready("right")).run(f"""
        0  deployment left state={state}
        0  deployment right state={state}
        0  submit a                        -> refused a {reason}
    """)
    refusal = script.decisions[0]
    assert isinstance(refusal, Refused)
    assert refusal.retry_after is not None
    assert 1 <= refusal.retry_after < 3


def test_who_waits_already_may_see_the_backend_come_back() -> None:
    Script(ready("left")).run("""
        0  submit a                       -> granted a on left
        0  submit b
        1  deployment left state=down
        1  leave a failed free
        2  deployment left state=ready    -> granted b on left
    """)


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ("loading", "starting", "loading by backends"),
        ("loading", "down", "loading by backends"),
        ("down", "down", "no_backend by backends"),
        ("draining", "down", "draining"),
        ("paused", "down", "queue_timeout by classes.standard.budget"),
        ("ready", "loading", "queue_timeout by classes.standard.budget"),
    ],
)
def test_who_waits_in_vain_is_told_why(left: str, right: str, reason: str) -> None:
    Script(ready("left"), ready("right")).run(f"""
        0   submit a                        -> granted a on left
        0   submit b                        -> granted b on right
        0   submit c
        1   deployment left state={left}
        1   deployment right state={right}
        30  tick                            -> refused c {reason}
    """)


def test_one_deployment_that_is_ready_is_enough() -> None:
    Script(ready("left"), ready("right")).run("""
        0  deployment left state=down
        0  submit a                     -> granted a on right
        0  submit b
        1  deployment right state=down
        1  deployment left state=ready  -> granted b on left
    """)


# The operator's verbs.


def test_a_paused_deployment_lets_newcomers_wait() -> None:
    Script(ready("left")).run("""
        0  submit a     -> granted a on left
        0  pause left
        1  leave a
        1  submit b
        2  resume left  -> granted b on left
    """)


def test_a_drained_deployment_hands_its_queue_to_the_other() -> None:
    Script(ready("left"), ready("right")).run("""
        0    submit a    -> granted a on left
        0    submit b    -> granted b on right
        0.5  submit c
        1    drain left
        2    leave b     -> granted c on right
        3    leave a
        3    submit d
        4    leave c     -> granted d on right
    """)


def test_a_drained_deployment_refuses_newcomers_if_it_is_alone() -> None:
    Script(ready("left")).run("""
        0  drain left
        0  submit a     -> refused a draining
        1  resume left
        1  submit b     -> granted b on left
    """)


def test_a_disabled_deployment_counts_as_down() -> None:
    Script(ready("left")).run("""
        0  disable left
        0  submit a      -> refused a no_backend
        1  resume left
        1  submit b      -> refused b no_backend
        2  enable left
        2  submit c      -> granted c on left
    """)


def test_the_operators_hold_survives_what_the_backend_reports() -> None:
    script = Script(ready("left")).run("""
        0  pause left
        1  deployment left state=loading
        1  submit a
        2  deployment left state=ready
        3  enable left                    -> granted a on left
        4  pause left
        4  deployment left state=down
        4  submit b                       -> refused b no_backend
    """)
    (view,) = script.scheduler.snapshot().deployments
    assert (view.state, view.reported, view.hold) == (State.DOWN, State.DOWN, State.PAUSED)


def test_an_unknown_deployment_is_an_error() -> None:
    scheduler = Script(ready("left")).scheduler
    for event in (
        scheduler.pause,
        scheduler.resume,
        scheduler.drain,
        scheduler.disable,
        scheduler.enable,
        scheduler.remove_deployment,
    ):
        with pytest.raises(KeyError):
            event("nowhere")


# Coming back.


GRACE = replace(ready("left"), restart_grace=10.0)


def test_newcomers_wait_for_a_backend_that_went_away_a_moment_ago() -> None:
    Script(GRACE).run("""
        0   submit a within=99            -> granted a on left
        1   deployment left state=down
        2   requeue a free
        3   submit b within=99
        10  submit c within=99
        11  submit d                      -> refused d no_backend by backends
        12  deployment left state=ready   -> granted a on left
        13  leave a                       -> granted b on left
    """)


def test_who_waited_in_vain_for_it_is_told_that_it_is_not_there() -> None:
    Script(GRACE).run("""
        1  deployment left state=down
        2  submit a within=3
        5  tick                           -> refused a no_backend by backends
    """)


@pytest.mark.parametrize("verb", ["drain", "disable"])
def test_what_the_operator_has_taken_away_is_not_expected_back(verb: str) -> None:
    reason = {"drain": "draining", "disable": "no_backend"}[verb]
    Script(GRACE).run(f"""
        1  {verb} left
        1  submit a                        -> refused a {reason}
        2  deployment left state=down
        2  submit b                        -> refused b no_backend
    """)


def test_a_paused_one_that_went_away_is_expected_back() -> None:
    Script(GRACE).run("""
        1  pause left
        2  deployment left state=down
        3  submit a
    """)


def test_one_that_loads_and_goes_away_again_is_not_expected_for_longer() -> None:
    """It was last ready when it first went away."""
    script = Script(GRACE).run("""
        1   deployment left state=down
        9   deployment left state=loading
        10  deployment left state=down
        10  submit a
        11  submit b                       -> refused b no_backend
    """)
    assert script.scheduler.snapshot().deployment("left").expected_until == 11


def test_one_that_never_was_ready_or_was_removed_is_not_expected() -> None:
    Script(replace(GRACE, state=State.DOWN), ready("right")).run("""
        0  remove right
        0  submit a                        -> refused a no_backend
    """)
    script = Script(GRACE, ready("right")).run("""
        1  deployment left state=down
        2  remove left
        3  deployment left state=down
        3  remove right
        3  submit a                        -> refused a no_backend
    """)
    assert script.scheduler.snapshot().deployment("left").expected_until is None


def test_a_gateway_that_drains_expects_nobody_back() -> None:
    Script(GRACE).run("""
        1  deployment left state=down
        2  submit a
        3  begin_draining                  -> refused a no_backend
    """)


# Coming and going.


def test_a_new_deployment_serves_who_waits() -> None:
    Script(ready("left")).run("""
        0  submit a           -> granted a on left
        0  submit b
        1  deployment right   -> granted b on right
    """)


def test_a_removed_deployment_takes_no_one_and_remembers_its_leases() -> None:
    script = Script(ready("left"), ready("right")).run("""
        0  submit a      -> granted a on left
        0  submit b      -> granted b on right
        0  submit c
        1  remove left
        1  remove left
    """)
    assert script.scheduler.snapshot().deployment("left").is_removed
    assert script.scheduler.counts().slots == 1
    script.run("2 leave a")
    with pytest.raises(KeyError):
        script.scheduler.snapshot().deployment("left")
    script.run("3 leave b -> granted c on right")


def test_a_deployment_that_comes_back_still_counts_its_old_leases() -> None:
    Script(ready("left")).run("""
        0  submit a          -> granted a on left
        1  pause left
        1  remove left
        2  deployment left
        2  submit b
        3  leave a           -> granted b on left
    """)


def test_a_model_without_deployments_is_unknown() -> None:
    script = Script(ready("left")).run("""
        0   submit a            -> granted a on left
        0   submit b
        1   remove left         -> refused b model_not_found
        1   submit c            -> refused c model_not_found
        1   pause left
        2   leave a
        31  deployment left
        31  submit d            -> granted d on left
    """)
    assert script.scheduler.counts().waiting == 0


def test_a_removed_deployment_may_be_held_until_it_is_gone() -> None:
    script = Script(ready("left")).run("""
        0  submit a      -> granted a on left
        1  remove left
        1  pause left
        1  remove left
        2  leave a
    """)
    assert script.scheduler.snapshot().deployments == ()


def test_a_backend_may_change_its_model() -> None:
    Script(ready("left", model="m"), ready("right", model="m")).run("""
        0  submit a model=m          -> granted a on left
        0  submit b model=m          -> granted b on right
        0  submit c model=m
        1  deployment left model=n
        1  submit d model=n
        2  leave a abandoned
        3  settled a                 -> granted d on left
        4  leave b                   -> granted c on right
    """)


def test_who_waits_for_a_model_that_goes_waits_for_another_backend_of_it() -> None:
    Script(ready("left"), ready("right")).run("""
        0  submit a      -> granted a on left
        0  submit b      -> granted b on right
        0  submit c
        1  remove left
        2  leave a
        3  leave b       -> granted c on right
    """)


def test_who_waits_for_a_model_that_the_last_backend_has_left_is_told() -> None:
    Script(ready("left", model="m")).run("""
        0  submit a model=m          -> granted a on left
        0  submit b model=m
        1  deployment left model=n   -> refused b model_not_found
    """)


def test_the_last_backend_may_change_its_model() -> None:
    Script(ready("left", model="m")).run("""
        0  submit a model=m          -> granted a on left
        1  remove left
        2  deployment left model=n
        2  submit b model=m          -> refused b model_not_found
        2  submit c model=n
        3  leave a                   -> granted c on left
    """)


# Counting.


def test_counts_tell_slots_from_waiting() -> None:
    script = Script(ready("left", slots=4), ready("right")).run("""
        0  submit a                    -> granted a on left
        0  submit b                    -> granted b on left
        0  submit c                    -> granted c on left
        0  submit d                    -> granted d on left
        0  submit e                    -> granted e on right
        0  submit f
        1  leave a abandoned
        1  deployment right outside=1
        2  leave b                     -> granted f on left
        3  leave c
    """)
    counts = script.scheduler.counts()
    assert (counts.slots, counts.idle, counts.processing, counts.waiting) == (5, 1, 4, 0)
    script.run("4 pause left")
    script.run("4 submit g bytes=70")
    counts = script.scheduler.counts()
    assert counts.waiting_bytes == 70
    assert (counts.slots, counts.idle, counts.processing, counts.waiting) == (5, 0, 4, 1)
