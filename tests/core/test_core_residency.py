"""Models of a router that do not fit together: each has its turn, and none is cut short."""

from __future__ import annotations

import pytest

from slotgate.core.decision import Granted
from slotgate.core.deployment import Residence
from slotgate.core.limits import Limits, TenantCaps
from slotgate.testing import Script, ready, routed

LIMITS = Limits(model_turn_seconds=10)
TWO = routed("alpha", "beta")


def script(*, room: int = 1, slots: int = 1, models: str = "alpha beta") -> Script:
    return Script(*routed(*models.split(), room=room, slots=slots), limits=LIMITS)


def test_a_model_that_is_not_loaded_is_asked_for_where_there_is_room() -> None:
    script().run("""
        0  submit a model=alpha     -> granted a on alpha
    """)


def test_a_model_waits_until_nothing_runs_on_the_one_that_must_go_for_it() -> None:
    script(slots=2).run("""
        0  submit a model=alpha     -> granted a on alpha
        0  submit b model=beta
        1  submit c model=alpha     -> granted c on alpha
        2  leave a
        3  leave c                  -> granted b on beta
    """)


def test_what_was_closed_early_keeps_its_model_until_its_slot_is_known_free() -> None:
    script().run("""
        0  submit a model=alpha     -> granted a on alpha
        0  submit b model=beta
        1  leave a abandoned
        2  settled a                -> granted b on beta
    """)


def test_a_turn_ends_though_more_wait_and_what_runs_may_end() -> None:
    script(slots=2).run("""
        0   submit a model=alpha    -> granted a on alpha
        0   submit b model=beta
        0   charge a output=1
        9   submit c model=alpha    -> granted c on alpha
        10  tick
        11  leave a
        11  submit d model=alpha
        12  leave c                 -> granted b on beta
        13  leave b                 -> granted d on alpha
    """)


def test_a_turn_begins_with_the_first_answer_and_lasts_as_long_as_loading_took() -> None:
    script(slots=2).run("""
        0   submit a model=alpha    -> granted a on alpha
        0   submit b model=beta within=99
        25  charge a output=1
        48  tick
        49  submit c model=alpha    -> granted c on alpha
        50  tick
        51  submit d model=alpha
        51  leave a
        52  leave c                 -> granted b on beta
    """)


def test_the_scheduler_says_when_a_turn_is_over() -> None:
    turn = script().run("""
        0  submit a model=alpha     -> granted a on alpha
        0  charge a output=1
        1  submit b model=beta
    """)
    assert turn.scheduler.next_deadline() == 10


def test_nobody_gives_up_a_seat_that_nobody_needs() -> None:
    alone = script().run("""
        0   submit a model=alpha    -> granted a on alpha
        0   charge a output=1
        1   leave a
        99  submit b model=alpha    -> granted b on alpha
        99  submit c model=alpha
        120 leave b                 -> granted c on alpha
    """)
    assert alone.scheduler.next_deadline() is None


def test_who_waits_longest_gets_the_next_turn() -> None:
    script(models="alpha beta gamma").run("""
        0  submit a model=alpha     -> granted a on alpha
        1  submit c model=gamma
        2  submit b model=beta
        3  submit d model=gamma
        4  leave a                  -> granted c on gamma
        5  leave c                  -> granted d on gamma
        6  submit e model=alpha
        7  leave d                  -> granted b on beta
        8  leave b                  -> granted e on alpha
    """)


def test_a_turn_that_is_asked_for_no_longer_is_not_given() -> None:
    script(models="alpha beta gamma").run("""
        0  submit a model=alpha     -> granted a on alpha
        1  submit b model=beta within=5
        2  submit c model=gamma
        6  tick                     -> refused b queue_timeout
        7  leave a                  -> granted c on gamma
    """)


def test_who_comes_back_after_it_has_left_the_line_stands_at_its_end() -> None:
    script(models="alpha beta gamma").run("""
        0  submit a model=alpha     -> granted a on alpha
        1  submit b model=beta
        2  submit c model=gamma
        3  leave b abandoned
        4  submit d model=beta
        5  leave a                  -> granted c on gamma
        6  leave c                  -> granted d on beta
    """)


def test_an_idle_model_goes_before_a_busy_one_is_emptied() -> None:
    script(room=2, models="alpha beta gamma", slots=2).run("""
        0   submit a model=alpha    -> granted a on alpha
        0   charge a output=1
        1   submit b model=beta     -> granted b on beta
        1   charge b output=1
        2   leave b
        20  submit c model=gamma    -> granted c on gamma
        21  submit d model=alpha    -> granted d on alpha
    """)


def test_who_asks_one_after_the_other_keeps_its_model_for_as_long_as_loading_takes() -> None:
    chat = script().run("""
        0    submit a model=alpha   -> granted a on alpha
        0.5  charge a output=1
        1    submit b model=beta
        1    leave a
        1.4  submit c model=alpha   -> granted c on alpha
        1.4  charge c output=1
        2    leave c
    """)
    assert chat.scheduler.next_deadline() == 2.5
    chat.run("""
        2.5  tick                   -> granted b on beta
    """)


def test_an_idle_model_is_not_waited_for_longer_than_a_second() -> None:
    script().run("""
        0    submit a model=alpha   -> granted a on alpha
        5    charge a output=1
        6    submit b model=beta
        6    leave a
        7    tick                   -> granted b on beta
    """)


def test_an_idle_model_is_not_waited_for_beyond_its_turn() -> None:
    script().run("""
        0     submit a model=alpha  -> granted a on alpha
        2     charge a output=1
        6     submit b model=beta
        11.5  leave a
        12    tick                  -> granted b on beta
    """)


def test_where_all_fit_there_are_no_turns() -> None:
    for room in (0, 2, 3):
        script(room=room).run("""
            0  submit a model=alpha     -> granted a on alpha
            0  submit b model=beta      -> granted b on beta
        """)


def test_of_several_that_are_loaded_the_idle_one_goes_that_was_used_least_recently() -> None:
    script(room=2, models="alpha beta gamma", slots=2).run("""
        0  submit a model=alpha     -> granted a on alpha
        1  submit b model=beta      -> granted b on beta
        2  leave b
        3  submit d model=alpha     -> granted d on alpha
        4  leave a
        5  leave d
        6  submit c model=gamma     -> granted c on gamma
        7  submit e model=alpha     -> granted e on alpha
        8  submit f model=beta
        9  leave c                  -> granted f on beta
    """)


def test_as_many_are_emptied_as_wait_for_a_seat() -> None:
    script(room=2, models="alpha beta gamma delta", slots=2).run("""
        0   submit a model=alpha    -> granted a on alpha
        0   charge a output=1
        0   submit b model=beta     -> granted b on beta
        0   charge b output=1
        1   submit c model=gamma
        2   submit d model=delta
        10  tick
        11  submit e model=alpha
        11  submit f model=beta
        12  leave b                 -> granted c on gamma
        13  leave a                 -> granted d on delta
    """)


def test_no_more_are_emptied_than_wait_for_a_seat() -> None:
    script(room=2, models="alpha beta gamma", slots=2).run("""
        0   submit a model=alpha    -> granted a on alpha
        0   charge a output=1
        1   submit b model=beta     -> granted b on beta
        1   charge b output=1
        2   submit c model=gamma
        11  tick
        12  submit e model=beta     -> granted e on beta
        12  submit f model=alpha
        13  leave a                 -> granted c on gamma
    """)


def test_a_model_that_is_emptied_goes_on_if_whoever_waited_has_left() -> None:
    script(slots=2).run("""
        0   submit a model=alpha    -> granted a on alpha
        0   charge a output=1
        1   submit b model=beta
        10  tick
        11  submit c model=alpha
        12  leave b abandoned       -> granted c on alpha
    """)


def test_a_model_that_is_held_by_the_operator_gets_no_turn() -> None:
    script().run("""
        0  submit a model=alpha     -> granted a on alpha
        0  pause beta
        0  submit b model=beta
        1  submit c model=alpha
        2  leave a                  -> granted c on alpha
        3  leave c
        4  submit d model=alpha     -> granted d on alpha
        5  resume beta
        6  leave d                  -> granted b on beta
    """)


def test_a_model_that_can_serve_nobody_gives_up_its_turn() -> None:
    script(slots=2).run("""
        0  submit a model=alpha     -> granted a on alpha
        1  submit c model=alpha     -> granted c on alpha
        1  submit d model=alpha
        1  submit b model=beta
        2  leave a                  -> granted d on alpha
        3  pause alpha
        4  leave c
        5  leave d                  -> granted b on beta
    """)


def test_whoever_cannot_run_though_it_is_its_turn_holds_nobody_up() -> None:
    tenants = Limits(model_turn_seconds=10, tenants={"one": TenantCaps(max_in_flight=1)})
    Script(*TWO, ready("far", model="far"), limits=tenants).run("""
        0     submit x model=far tenant=one     -> granted x on far
        0     submit a model=alpha tenant=one
        0     submit b model=beta
        0.05  tick                              -> granted b on beta
        1     leave x
        2     leave b                           -> granted a on alpha
    """)


def test_a_model_too_small_for_what_waits_gets_no_turn_for_it() -> None:
    home = Residence(router="router", room=1, is_loaded=False)
    small = ready("small", model="small", ctx_per_slot=100, residence=home)
    large = ready("large", model="large", ctx_per_slot=1000, residence=home)
    other = ready("other", model="small", ctx_per_slot=1000)
    Script(small, large, other, limits=LIMITS).run("""
        1  submit o model=small tokens=500    -> granted o on other
        1  submit a model=large               -> granted a on large
        1  submit p model=small tokens=500
        2  leave a
        3  submit b model=large               -> granted b on large
        4  leave o                            -> granted p on other
    """)


def test_a_router_that_holds_fewer_than_before_empties_one() -> None:
    script(room=2, slots=2).run("""
        0  submit a model=alpha     -> granted a on alpha
        1  submit b model=beta      -> granted b on beta
        2  deployment alpha room=1
        2  deployment beta room=1
        3  submit c model=alpha
        4  leave b                  -> granted c on alpha
    """)


def test_a_model_that_is_removed_keeps_its_seat_until_what_runs_there_has_ended() -> None:
    script(models="alpha beta gamma").run("""
        0  submit a model=alpha     -> granted a on alpha
        1  submit b model=beta
        2  remove alpha
        3  leave a                  -> granted b on beta
        4  submit c model=gamma
        5  leave b                  -> granted c on gamma
    """)


def test_two_routers_have_turns_of_their_own() -> None:
    other = routed("gamma", "delta", router="other")
    Script(*TWO, *other, limits=LIMITS).run("""
        0  submit a model=alpha     -> granted a on alpha
        0  submit c model=gamma     -> granted c on gamma
        0  submit b model=beta
        1  leave c
        1  submit d model=delta     -> granted d on delta
        1  submit e model=gamma
        2  leave a                  -> granted b on beta
        3  remove delta
        4  leave d                  -> granted e on gamma
    """)


def test_a_model_that_left_its_router_waits_for_no_turn() -> None:
    moved = script().run("""
        0  submit a model=alpha     -> granted a on alpha
        0  submit b model=beta
    """)
    (granted,) = moved.scheduler.deployment(ready("beta", model="beta"))
    assert isinstance(granted, Granted)
    assert granted.ticket.id == "b"


def test_another_server_of_the_model_serves_while_it_is_not_its_turn() -> None:
    Script(*TWO, ready("plain", model="beta"), limits=LIMITS).run("""
        0  submit a model=alpha     -> granted a on alpha
        0  submit b model=beta      -> granted b on plain
        0  submit c model=beta
        1  leave b                  -> granted c on plain
    """)


def test_it_is_foretold_how_long_a_turn_and_loading_take() -> None:
    told = script(slots=2).run(_answers("alpha", 0) + _answers("beta", 20))
    told.run("""
        40  submit a model=alpha output=1   -> granted a on alpha
        42  charge a output=1
        43  submit b model=beta
        44  submit c model=alpha output=1   -> granted c on alpha
    """)
    (view,) = told.scheduler.waiting_of("default")
    # Eight seconds of the turn are left, then it is loaded in two.
    assert view.predicted_wait == pytest.approx(10, abs=0.5)
    told.run("""
        52  tick
        53  leave a
        53  leave c                         -> granted b on beta
    """)


def test_who_must_wait_for_a_turn_beyond_its_deadline_is_told_so_at_once() -> None:
    told = script(slots=2).run(_answers("alpha", 0) + _answers("beta", 20))
    told.run("""
        40  submit a model=alpha output=1           -> granted a on alpha
        42  charge a output=1
        43  submit b model=beta
        44  submit c model=beta within=3            -> refused c wait_too_long
    """)


def test_nobody_is_kept_from_the_queue_by_a_turn_that_comes_if_he_waits() -> None:
    """Else a model whose loading takes longer than its clients wait would never be loaded."""
    told = script(slots=2).run(_answers("alpha", 0) + _answers("beta", 20))
    told.run("""
        40  submit a model=alpha output=1           -> granted a on alpha
        42  charge a output=1
        43  submit b model=beta within=2
    """)


def test_what_a_model_held_is_forgotten_when_it_is_unloaded() -> None:
    chat = script().run("""
        0  submit a model=alpha affinity=chat tokens=600   -> granted a on alpha
        1  charge a input=600 output=1
        1  deployment alpha loaded=yes
        2  leave a
        3  submit b model=alpha affinity=chat tokens=700   -> granted b on alpha
        3  charge b input=700 output=1
        4  leave b
        5  deployment alpha loaded=no
        6  submit c model=alpha affinity=chat tokens=800   -> granted c on alpha
    """)
    expected = [d.expected_cached for d in chat.decisions if isinstance(d, Granted)]
    assert [tokens > 0 for tokens in expected] == [False, True, False]


def _answers(model: str, start: int) -> str:
    steps = []
    for n in range(6):
        begin = start + 3 * n
        name = f"{model}{n}"
        steps += [
            f"{begin} submit {name} model={model} -> granted {name} on {model}",
            f"{begin + 2} charge {name} input=1 output=1",
            f"{begin + 2.1} charge {name} output=1",
            f"{begin + 2.2} timed {name} prompt=1 prompt_seconds=0.1 output=2 output_seconds=0.1",
            f"{begin + 2.3} leave {name}",
        ]
    return "\n".join(steps) + "\n"
