"""Prompts that fit some deployments, or none."""

from __future__ import annotations

from slotgate.core.decision import Refused
from slotgate.core.limits import Limits
from slotgate.testing import Script, ready


def test_a_long_prompt_goes_only_where_it_fits() -> None:
    Script(ready("small", slots=3, ctx_per_slot=1000), ready("big", ctx_per_slot=8000)).run("""
        0  submit a tokens=5000   -> granted a on big
        0  submit b tokens=5000
        0  submit c tokens=10     -> granted c on small
        1  leave a                -> granted b on big
    """)


def test_a_prompt_fits_if_there_is_room_for_one_token_more() -> None:
    Script(ready("left", slots=2, ctx_per_slot=1000)).run("""
        0  submit a tokens=999    -> granted a on left
        0  submit b tokens=1000   -> refused b context_length_exceeded by ctx_per_slot
    """)


def test_a_prompt_that_fits_nowhere_is_refused_for_good() -> None:
    script = Script(ready("left", ctx_per_slot=1000), ready("right", ctx_per_slot=2000)).run("""
        0  submit a tokens=2500   -> refused a context_length_exceeded
    """)
    refusal = script.decisions[0]
    assert isinstance(refusal, Refused)
    assert (refusal.limit, refusal.value, refusal.retry_after) == (2000, 2500, None)


def test_an_unknown_context_may_be_enough() -> None:
    Script(ready("left", ctx_per_slot=1000)).run("""
        0  submit z                                   -> granted z on left
        0  deployment right state=loading
        0  submit a tokens=2500
        0  submit b tokens=1500
        1  deployment right state=ready ctx=2000
           -> refused a context_length_exceeded, granted b on right
    """)


def test_a_ready_deployment_of_unknown_context_takes_any_prompt() -> None:
    Script(ready("left")).run("0 submit a tokens=1000000 -> granted a on left")


def test_a_context_that_grew_lets_waiting_prompts_in() -> None:
    Script(ready("big", ctx_per_slot=8000), ready("small", ctx_per_slot=1000)).run("""
        0  submit a tokens=5000          -> granted a on big
        0  submit b tokens=5000
        0  submit c tokens=10            -> granted c on small
        0  submit d tokens=10
        1  deployment small ctx=6000
        2  leave c                       -> granted b on small
        3  leave b                       -> granted d on small
    """)


def test_prompts_that_fit_nowhere_any_more_are_refused() -> None:
    Script(ready("big", ctx_per_slot=8000), ready("small", ctx_per_slot=1000)).run("""
        0  submit a tokens=5000   -> granted a on big
        0  submit b tokens=5000
        0  submit c tokens=10     -> granted c on small
        0  submit d tokens=10
        1  remove big             -> refused b context_length_exceeded by ctx_per_slot
        2  leave a
        3  leave c                -> granted d on small
    """)


def test_a_deployment_that_is_down_still_says_what_may_fit() -> None:
    Script(ready("big", ctx_per_slot=8000), ready("small", ctx_per_slot=1000)).run("""
        0  deployment big state=down
        0  submit a tokens=5000
        1  deployment big state=ready  -> granted a on big
    """)


def test_shapes_that_changed_are_dropped_from_the_queue() -> None:
    Script(ready("left", ctx_per_slot=1000)).run("""
        0  submit a tokens=10          -> granted a on left
        0  submit b tokens=10
        0  submit c tokens=500
        1  deployment left ctx=400     -> refused c context_length_exceeded
        2  deployment left ctx=2000
        3  leave b abandoned
        3  leave a
        3  submit d tokens=1500        -> granted d on left
    """)


def test_no_slots_are_held_for_a_prompt_that_is_too_long_for_them() -> None:
    deployments = ready("left", ctx_per_slot=1000), ready("right", ctx_per_slot=5000)
    Script(*deployments, limits=Limits(max_bypass=0)).run("""
        0  submit a tokens=2000   -> granted a on right
        0  submit b tokens=2000
        0  submit c tokens=10     -> granted c on left
    """)
