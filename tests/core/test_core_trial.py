"""Deployments that have failed: on trial, out, or used all the same because nothing else serves."""

from __future__ import annotations

from slotgate.core.deployment import State
from slotgate.testing import Script, ready


def states(script: Script) -> dict[str, str]:
    return {name: str(state) for name, state in script.scheduler.states().items()}


def test_one_on_trial_gets_one_request_and_only_when_the_others_are_full() -> None:
    Script(ready("left", slots=1), ready("right", slots=4)).run("""
        0  deployment right state=degraded
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on right
        0  submit c
        1  leave a                          -> granted c on left
        1  submit d
        2  leave b                          -> granted d on right
    """)


def test_one_that_is_trusted_again_has_all_its_slots() -> None:
    Script(ready("left", slots=1), ready("right", slots=3)).run("""
        0  deployment right state=degraded
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on right
        0  submit c
        0  submit d
        1  deployment right state=ready     -> granted c on right, granted d on right
    """)


def test_one_on_trial_whose_slots_others_use_gets_nothing() -> None:
    Script(ready("left", slots=1), ready("right", slots=2)).run("""
        0  deployment right state=degraded outside=2
        0  submit a                         -> granted a on left
        0  submit b
        1  deployment right state=degraded outside=1  -> granted b on right
    """)


def test_who_was_ejected_gets_nothing_while_anything_else_serves() -> None:
    script = Script(ready("left", slots=1), ready("right", slots=4)).run("""
        0  deployment right state=down ejected
        0  submit a                         -> granted a on left
        0  submit b
        0  deployment left state=degraded
    """)
    assert states(script) == {"left": "degraded", "right": "down"}


def test_the_last_one_that_serves_is_used_to_its_limit_though_it_fails() -> None:
    script = Script(ready("left", slots=2), ready("right", slots=2)).run("""
        0  deployment right state=down
        0  deployment left state=down ejected
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on left
        0  submit c
        1  deployment left state=degraded
        1  leave a                          -> granted c on left
        2  deployment right state=ready
        2  submit d                         -> granted d on right
    """)
    assert states(script) == {"left": "degraded", "right": "ready"}
    assert script.scheduler.counts().idle == 1


def test_who_was_ejected_is_out_again_once_something_better_is_back() -> None:
    script = Script(ready("left"), ready("right")).run("""
        0  deployment right state=down
        0  deployment left state=down ejected
        1  deployment right state=ready
        1  submit a                         -> granted a on right
        1  submit b
        2  deployment left state=down
    """)
    assert states(script) == {"left": "down", "right": "ready"}


def test_all_that_were_ejected_are_used_when_nothing_else_is() -> None:
    script = Script(ready("left"), ready("right")).run("""
        0  deployment left state=down ejected
        0  deployment right state=down ejected
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on right
    """)
    assert states(script) == {"left": "degraded", "right": "degraded"}


def test_who_waits_is_served_by_the_last_one_at_once() -> None:
    Script(ready("left"), ready("right")).run("""
        0  deployment right state=down ejected
        0  submit a                         -> granted a on left
        0  submit b
        1  deployment left state=down       -> granted b on right
    """)


def test_another_model_does_not_count_as_something_better() -> None:
    Script(ready("left"), ready("other", model="n")).run("""
        0  deployment left state=down ejected
        0  submit a                         -> granted a on left
    """)


def test_what_the_operator_holds_is_held_and_is_nothing_better() -> None:
    Script(ready("left"), ready("right")).run("""
        0  pause right
        0  deployment left state=down ejected
        0  submit a                         -> granted a on left
        1  resume right
        1  submit b                         -> granted b on right
        1  submit c
        2  leave a
        3  leave b                          -> granted c on right
        4  disable left
        4  leave c
        4  pause right
        4  submit d
    """)


def test_one_that_is_taken_away_is_nothing_better() -> None:
    Script(ready("left"), ready("right")).run("""
        0  deployment left state=down ejected
        1  remove right
        1  submit a                         -> granted a on left
    """)


def test_a_loading_one_is_nothing_better() -> None:
    Script(ready("left"), ready("right")).run("""
        0  deployment left state=down ejected
        0  deployment right state=loading
        1  submit a                         -> granted a on left
    """)


def test_one_that_never_was_ready_may_be_on_trial_and_its_slots_are_known() -> None:
    script = Script(ready("left")).run("0 deployment left state=degraded slots=2")
    script.run("1 submit a width=3 -> refused a invalid_request_error by slots")


def test_who_failed_waits_for_a_slot_elsewhere_and_others_take_those_that_it_shuns() -> None:
    Script(ready("left", slots=2), ready("right", slots=1)).run("""
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on left
        0  submit c                         -> granted c on right
        1  requeue a free
        1  submit d                         -> granted d on left
        2  leave c                          -> granted a on right
    """)


def test_who_failed_goes_back_there_if_there_is_nothing_else() -> None:
    Script(ready("left", slots=2), ready("right", slots=1)).run("""
        0  deployment right state=down
        0  submit a                         -> granted a on left
        1  requeue a free                   -> granted a on left
    """)


def test_who_waits_for_a_slot_elsewhere_goes_back_when_there_is_no_elsewhere_any_more() -> None:
    Script(ready("left", slots=1), ready("right", slots=1)).run("""
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on right
        1  requeue a free
        2  deployment right state=down      -> granted a on left
    """)


def test_one_that_was_down_since_is_another_for_who_failed_there() -> None:
    Script(ready("left", slots=1), ready("right", slots=1)).run("""
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on right
        1  requeue a free
        2  deployment left state=down
        3  deployment left state=ready      -> granted a on left
    """)


def test_slots_are_not_held_where_the_first_in_line_has_failed() -> None:
    overtaking = "\n".join(
        f"{n} submit n{n} -> granted n{n} on left\n{n} leave n{n}" for n in range(2, 20)
    )
    script = Script(ready("left", slots=1), ready("right", slots=1)).run(f"""
        0  submit a                         -> granted a on left
        0  submit b                         -> granted b on right
        1  requeue a free
        {overtaking}
    """)
    assert all(view.held_for is None for view in script.scheduler.snapshot().deployments)
    assert [view.bypassed for view in script.scheduler.snapshot().waiting] == [0]


def test_it_is_known_whether_a_running_ticket_might_run_elsewhere() -> None:
    script = Script(ready("left", slots=2), ready("right", slots=1)).run("""
        0  submit a width=2                 -> granted a on left
        0  submit b                         -> granted b on right
        0  submit c
    """)
    scheduler = script.scheduler
    found = [scheduler.may_run_elsewhere(ticket) for ticket in "abcz"]
    # Nothing else is wide enough for a; c waits; z is not there.
    assert found == [False, True, False, False]
    script.run("""
        1  leave c abandoned
        2  remove left
        2  remove right
    """)
    assert not scheduler.may_run_elsewhere("b"), "its model is gone"


def test_states_are_shown_as_they_can_be_used() -> None:
    script = Script(ready("left"), ready("right")).run("""
        0  drain right
        0  remove right
        0  pause left
    """)
    assert script.scheduler.states() == {"left": State.PAUSED}
