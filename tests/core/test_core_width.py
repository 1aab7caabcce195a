"""Requests that take several slots at once, and who may overtake them."""

from __future__ import annotations

from slotgate.core.decision import Refused
from slotgate.core.limits import Limits
from slotgate.testing import Script, ready


def test_a_wide_ticket_waits_until_all_its_slots_are_free() -> None:
    script = Script(ready("left", slots=3)).run("""
        0  submit a           -> granted a on left
        0  submit b           -> granted b on left
        0  submit w width=3
        1  leave a
        2  leave b            -> granted w on left
    """)
    assert script.scheduler.counts().idle == 0
    script.run("3 leave w")
    assert script.scheduler.counts().idle == 3


def test_slots_of_two_deployments_do_not_add_up() -> None:
    Script(ready("left", slots=2), ready("right", slots=2)).run("""
        0  submit a            -> granted a on left
        0  submit b            -> granted b on right
        0  submit w width=2
        1  leave b             -> granted w on right
    """)


def test_a_settling_wide_lease_holds_all_its_slots() -> None:
    Script(ready("left", slots=3)).run("""
        0  submit w width=2     -> granted w on left
        0  submit a             -> granted a on left
        0  submit b
        0  submit c
        1  leave w abandoned
        2  settled w            -> granted b on left, granted c on left
    """)


def test_a_ticket_wider_than_any_deployment_is_refused_for_good() -> None:
    script = Script(ready("left", slots=2), ready("right", slots=3)).run("""
        0  submit a width=3   -> granted a on right
        0  submit b width=4   -> refused b invalid_request_error by slots
    """)
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert (refusal.limit, refusal.value, refusal.retry_after) == (3, 4, None)


def test_a_wide_ticket_waits_for_a_deployment_of_unknown_size() -> None:
    Script().run("""
        0  deployment left slots=1 state=starting
        0  submit a width=4
        0  submit b width=2
        1  deployment left slots=2 state=ready
           -> refused a invalid_request_error by slots, granted b on left
        2  deployment left slots=2 state=loading
        2  submit c width=3  -> refused c invalid_request_error
    """)


def test_a_ready_deployment_that_names_no_slots_is_of_unknown_size() -> None:
    Script(ready("left", slots=0)).run("""
        0  submit a width=2
        1  deployment left slots=2  -> granted a on left
    """)


def test_a_ticket_that_became_too_wide_is_refused() -> None:
    Script(ready("left", slots=4)).run("""
        0  submit a                 -> granted a on left
        0  submit b width=4
        0  submit c width=2         -> granted c on left
        1  deployment left slots=2  -> refused b invalid_request_error by slots
        2  leave c
    """)


def test_width_and_context_must_fit_the_same_deployment() -> None:
    many, long = ready("many", slots=8, ctx_per_slot=1000), ready("long", ctx_per_slot=9000)
    script = Script(many, long).run("""
        0  submit a width=2 tokens=100   -> granted a on many
        0  submit b width=1 tokens=5000  -> granted b on long
        0  submit c width=2 tokens=5000  -> refused c invalid_request_error by slots
    """)
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert refusal.limit == 1


# Overtaking.


def test_narrow_tickets_overtake_a_wide_one_that_does_not_fit() -> None:
    Script(ready("left", slots=2)).run("""
        0  submit a          -> granted a on left
        0  submit w width=2
        0  submit b          -> granted b on left
        0  submit c
        1  leave a           -> granted c on left
    """)


def test_a_wide_ticket_is_overtaken_a_bounded_number_of_times() -> None:
    script = Script(ready("left", slots=2), limits=Limits(max_bypass=2)).run("""
        0    submit a          -> granted a on left
        0    submit w width=2
        0    submit b          -> granted b on left
        0    submit c
        0    submit d
        0.1  leave a           -> granted c on left
        0.2  leave b
    """)
    snapshot = script.scheduler.snapshot()
    assert snapshot.deployment("left").held_for == "w"
    assert [waiting.bypassed for waiting in snapshot.waiting] == [2, 0]
    script.run("""
        0.3  submit e
        0.4  leave c           -> granted w on left
        0.5  leave w           -> granted d on left, granted e on left
    """)
    assert script.scheduler.snapshot().deployment("left").held_for is None


def test_a_wide_ticket_is_overtaken_for_a_bounded_time() -> None:
    Script(ready("left", slots=2), limits=Limits(bypass_seconds=2)).run("""
        0    submit a          -> granted a on left
        1    submit w width=2
        5    submit b          -> granted b on left
        5    submit c
        5    submit d
        5    submit e
        6.9  leave a           -> granted c on left
        7    leave b
        8    leave c           -> granted w on left
    """)


def test_overtaking_may_be_forbidden() -> None:
    Script(ready("left", slots=2), limits=Limits(max_bypass=0)).run("""
        0  submit a          -> granted a on left
        0  submit w width=2
        0  submit b
        1  leave a           -> granted w on left
    """)


def test_slots_are_held_only_on_the_deployment_that_is_nearest_to_fit() -> None:
    Script(ready("left", slots=4), ready("right", slots=4), limits=Limits(max_bypass=1)).run("""
        0  submit a width=2   -> granted a on left
        0  submit b width=3   -> granted b on right
        0  submit w width=4
        0  submit c           -> granted c on left
        0  submit d           -> granted d on right
        0  submit e
        1  leave d            -> granted e on right
        2  leave a
        2  submit f
        3  leave c            -> granted w on left
        4  leave b            -> granted f on right
    """)


def test_who_takes_what_a_wide_ticket_cannot_use_does_not_overtake_it() -> None:
    big, small = ready("big", slots=2, ctx_per_slot=1000), ready("small")
    Script(big, small, limits=Limits(max_bypass=1)).run("""
        0  submit a               -> granted a on big
        0  submit w width=2
        0  submit b tokens=2000   -> granted b on small
        0  submit c               -> granted c on big
        0  submit d tokens=2000
        0  submit e
        1  leave b                -> granted d on small
        2  leave a
        3  leave d                -> granted e on small
        4  leave c                -> granted w on big
    """)


def test_slots_are_not_held_for_a_ticket_that_left() -> None:
    for end, decisions in (
        ("0.4 leave w abandoned", "granted d on left"),
        ("5 tick", "refused w queue_timeout, granted d on left"),
    ):
        Script(ready("left", slots=2), limits=Limits(max_bypass=1)).run(f"""
            0    submit a                   -> granted a on left
            0    submit w width=2 within=5
            0    submit b                   -> granted b on left
            0    submit d
            0.3  leave a
            {end} -> {decisions}
        """)


def test_slots_are_not_held_where_others_use_too_many() -> None:
    Script(ready("left", slots=3), limits=Limits(max_bypass=1)).run("""
        0  submit a                   -> granted a on left
        0  submit w width=3
        0  submit b                   -> granted b on left
        0  submit c
        0  submit d
        1  deployment left outside=1
        2  leave a                    -> granted c on left
        3  leave c                    -> granted d on left
    """)


def test_a_wide_ticket_that_comes_back_may_be_overtaken_anew() -> None:
    Script(ready("left", slots=2), limits=Limits(max_bypass=1)).run("""
        0  submit a            -> granted a on left
        0  submit w width=2
        0  submit b            -> granted b on left
        1  leave a
        2  leave b             -> granted w on left
        2  submit c
        2  submit d
        3  deployment left outside=1
        3  requeue w free      -> granted c on left
        4  deployment left outside=0
           -> granted d on left
        5  submit e
        6  leave c
        7  leave d             -> granted w on left
    """)
