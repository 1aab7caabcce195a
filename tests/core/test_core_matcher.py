"""Who runs next where: backfill, slots that are held or left to others, and long prompts."""

from __future__ import annotations

import random
from math import inf

import pytest

from slotgate.core.decision import Ending, Granted
from slotgate.core.limits import Limits
from slotgate.core.policies import Policies
from slotgate.core.ticket import Ticket
from slotgate.testing import Script, ready

PATIENT = Policies.named(admission="expiry", concurrency="fixed", fairness="none")


def taught(
    *deployments: str,
    slots: int = 4,
    limits: Limits | None = None,
    kv: int | None = None,
    kv_budget: str = "chance",
) -> Script:
    """Deployments that write ten tokens a second, whatever else they do, and read 1000.

    Everything asks for a bound, and writes as much: what is expected is what comes.
    """
    names = deployments or ("left",)
    script = Script(
        *(ready(name, slots=slots, kv_pool_tokens=kv) for name in names),
        policies=Policies.named(
            kv=kv_budget, admission="expiry", concurrency="fixed", fairness="none"
        ),
        limits=limits,
    )
    lines = []
    for place, name in enumerate(names):
        lines += [f"0 drain {other}" for other in names[:place]]
        lines += [
            f"0 submit teach{place} tokens=32 -> granted teach{place} on {name}",
            f"0 timed teach{place} prompt=1000 prompt_seconds=1 output=100 output_seconds=9.9",
            f"0 leave teach{place} failed free",
        ]
        lines += [f"0 enable {other}" for other in names[:place]]
    script.run("\n".join(lines))
    return script


# Backfill.


def test_who_is_gone_before_the_room_comes_free_overtakes_the_head() -> None:
    """Two of four slots end in 20 s; 100 tokens take 10 s, 300 take 30."""
    taught().run("""
        0   submit a width=3 output=200            -> granted a on left
        0   charge a output=3
        0   submit head width=4 output=100 within=100
        0   submit long output=250 within=100
        1   leave long abandoned
        1   submit short output=100 within=100     -> granted short on left
        11  leave short
        20  leave a                                -> granted head on left
    """)


def test_who_fits_beside_the_head_then_overtakes_it_however_long_it_takes() -> None:
    taught().run("""
        0   submit a width=3 output=200            -> granted a on left
        0   charge a output=3
        0   submit head width=2 output=100 within=100
        0   submit long output=3000 within=100     -> granted long on left
        20  leave a                                -> granted head on left
    """)


def test_what_is_beside_the_head_is_counted_once() -> None:
    """One slot is left beside the head when a ends; then none."""
    taught(slots=6).run("""
        0   submit a width=3 output=200            -> granted a on left
        0   charge a output=3
        0   submit head width=5 output=100 within=100
        0   submit long1 output=3000 within=100    -> granted long1 on left
        0   submit long2 output=3000 within=100
        0   leave long2 abandoned
        0   submit short output=10 within=100      -> granted short on left
        1   leave short
        20  leave a                                -> granted head on left
    """)


def test_the_first_that_end_are_what_the_head_waits_for() -> None:
    """It needs two slots: those of b and c, in 10 s, not that of a in 300."""
    taught().run("""
        0   submit a output=3000                   -> granted a on left
        0   submit b output=100                    -> granted b on left
        0   submit c output=90                     -> granted c on left
        0   charge a output=1
        0   charge b output=1
        0   charge c output=1
        0   submit head width=3 output=100 within=100
        0   submit long output=110 within=100
        0   leave long abandoned
        0   submit short output=98 within=100      -> granted short on left
    """)


def test_where_nothing_is_known_whoever_fits_overtakes() -> None:
    Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit a width=3                       -> granted a on left
        0   submit head width=3
        0   submit long output=30000               -> granted long on left
    """)


def test_a_deployment_that_the_head_can_never_use_is_free_to_others() -> None:
    script = taught("left", "right")
    script.run("""
        0   deployment right slots=2
        0   submit a width=4 output=200            -> granted a on left
        0   charge a output=4
        0   submit head width=3 output=100 within=100
        0   submit long1 output=3000 within=100    -> granted long1 on right
        0   submit long2 output=3000 within=100    -> granted long2 on right
    """)
    (head,) = script.scheduler.snapshot().waiting
    assert head.bypassed == 0


def test_tokens_of_a_shared_cache_count_like_slots() -> None:
    """Of 1000 tokens a takes 400 for 6 s, and the head 700 then: others may keep 300 beside."""
    taught(kv=1000, kv_budget="max").run("""
        0   submit a exact tokens=340 output=60           -> granted a on left
        0   charge a output=1
        0   submit head exact tokens=450 output=250 within=500
        0   submit long width=2 exact tokens=51 output=125 within=500
        0   leave long abandoned
        0   submit beside exact width=2 tokens=20 output=125 within=500 -> granted beside on left
        6   leave a                                        -> granted head on left
    """)


def test_no_more_than_so_many_overtake_whatever_was_foreseen() -> None:
    taught(slots=2, limits=Limits(max_bypass=2)).run("""
        0   submit a output=2000                   -> granted a on left
        0   charge a output=1
        0   submit head width=2 output=10 within=500
        0   submit s1 output=5 within=500          -> granted s1 on left
        0   submit s2 output=5 within=500
        0   submit s3 output=5 within=500
        1   leave s1                               -> granted s2 on left
        2   leave s2
        200 leave a                                -> granted head on left
        201 leave head                             -> granted s3 on left
    """)


def test_nobody_overtakes_for_longer_than_so_many_seconds() -> None:
    script = taught(slots=2, limits=Limits(bypass_seconds=2)).run("""
        0   submit a output=2000                   -> granted a on left
        0   charge a output=1
        0   submit head width=2 output=10 within=500
        0   submit s1 output=5 within=500          -> granted s1 on left
        0   submit s2 output=5 within=500
        1.9 leave s1                               -> granted s2 on left
        1.9 submit s3 output=5 within=500
        2   leave s2
    """)
    assert script.scheduler.snapshot().deployment("left").held_for == "head"
    script.run("""
        200 leave a                                -> granted head on left
        201 leave head                             -> granted s3 on left
    """)


@pytest.mark.parametrize("seed", range(4))
def test_in_random_lives_nobody_is_overtaken_more_often_than_allowed(seed: int) -> None:
    dice = random.Random(seed)
    script = taught(limits=Limits(max_bypass=3, bypass_seconds=1e9, max_waiting=1000))
    running: list[str] = []
    most = 0
    for step in range(400):
        now = script.clock.now() + 1
        script.clock.advance_to(now)
        if dice.random() < 0.55 or not running:
            ticket = Ticket(
                id=f"t{step}",
                arrival=now,
                deadline=inf,
                model="m",
                width=dice.choice([1, 1, 2, 4]),
                output_tokens=dice.choice([5, 50, 2000]),
            )
            decisions = script.scheduler.submit(ticket)
        else:
            gone = running.pop(dice.randrange(len(running)))
            decisions = script.scheduler.leave(gone, Ending.SERVED)
        running += [each.ticket.id for each in decisions if isinstance(each, Granted)]
        most = max([most, *(view.bypassed for view in script.scheduler.snapshot().waiting)])
    assert most == 3


# Classes that leave slots to others.


def test_batch_leaves_a_quarter_while_more_urgent_ones_were_seen() -> None:
    script = Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit u class=interactive              -> granted u on left
        0   leave u
        1   submit b1 class=batch within=300        -> granted b1 on left
        1   submit b2 class=batch within=300        -> granted b2 on left
        1   submit b3 class=batch within=300        -> granted b3 on left
        1   submit b4 class=batch within=300
        2   submit v class=interactive              -> granted v on left
        3   leave v
    """)
    assert script.scheduler.next_deadline() == 2 + 60
    script.run("""
        61.9 tick
        62   tick                                   -> granted b4 on left
    """)
    assert script.scheduler.next_deadline() is None


def test_batch_has_all_slots_while_nobody_more_urgent_was_seen() -> None:
    script = Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit b1 class=batch                   -> granted b1 on left
        0   submit b2 class=batch                   -> granted b2 on left
        0   submit b3 class=batch                   -> granted b3 on left
        0   submit b4 class=batch                   -> granted b4 on left
        0   submit b5 class=batch within=300
    """)
    assert script.scheduler.next_deadline() == 300


def test_of_few_slots_none_is_left() -> None:
    Script(ready("left", slots=3), policies=PATIENT).run("""
        0   submit u class=interactive within=300   -> granted u on left
        0   submit b1 class=batch within=300        -> granted b1 on left
        0   submit b2 class=batch within=300        -> granted b2 on left
    """)


def test_batch_is_woken_even_if_it_waited_before_the_urgent_one_came() -> None:
    """The timer is set by whoever makes it necessary."""
    script = Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit b1 class=batch within=300        -> granted b1 on left
        0   submit b2 class=batch within=300        -> granted b2 on left
        0   submit b3 class=batch within=300        -> granted b3 on left
        0   submit b4 class=batch within=300        -> granted b4 on left
        0   submit b5 class=batch within=300
        10  submit u class=interactive within=300
        11  leave b1                                -> granted u on left
        12  leave u
    """)
    assert script.scheduler.next_deadline() == 70
    script.run("70 tick -> granted b5 on left")


def test_a_timer_that_has_fired_is_set_again() -> None:
    script = Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit u class=interactive              -> granted u on left
        0   leave u
        0   submit b1 class=batch within=300        -> granted b1 on left
        0   submit b2 class=batch within=300        -> granted b2 on left
        0   submit b3 class=batch within=300        -> granted b3 on left
        0   submit b4 class=batch within=300
        0   submit b5 class=batch within=300
        60  tick                                    -> granted b4 on left
        70  submit v class=interactive within=300
        71  leave b1                                -> granted v on left
        72  leave v
    """)
    assert script.scheduler.next_deadline() == 130
    script.run("130 tick -> granted b5 on left")


def test_an_urgent_one_whose_deadline_is_over_leaves_batch_alone() -> None:
    Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit u class=interactive within=0     -> refused u queue_timeout
        0   submit b1 class=batch                   -> granted b1 on left
        0   submit b2 class=batch                   -> granted b2 on left
        0   submit b3 class=batch                   -> granted b3 on left
        0   submit b4 class=batch                   -> granted b4 on left
    """)


def test_slots_that_batch_must_leave_are_never_held_for_it() -> None:
    """However often it was overtaken: they are there for those who overtake."""
    script = Script(ready("left", slots=4), policies=PATIENT, limits=Limits(max_bypass=1)).run("""
        0   submit u class=interactive              -> granted u on left
        0   submit b1 class=batch within=300        -> granted b1 on left
        0   submit b2 class=batch within=300        -> granted b2 on left
        0   submit b3 class=batch within=300        -> granted b3 on left
        0   submit b4 class=batch within=300
        1   submit u1 class=interactive within=300
        1   submit u2 class=interactive within=300
        1   submit u3 class=interactive within=300
        5   leave u                                 -> granted u1 on left
        9   leave u1                                -> granted u2 on left
        15  leave u2                                -> granted u3 on left
        16  leave u3
    """)
    assert script.scheduler.snapshot().deployment("left").held_for is None
    assert [view.bypassed for view in script.scheduler.snapshot().waiting] == [0]
    script.run("20 leave b1 -> granted b4 on left")


def test_who_waits_for_room_behind_such_a_batch_ticket_is_protected_like_a_head() -> None:
    script = Script(ready("left", slots=4), policies=PATIENT, limits=Limits(max_bypass=1)).run("""
        0   submit u class=interactive              -> granted u on left
        0   submit b1 class=batch within=300        -> granted b1 on left
        0   submit b2 class=batch within=300        -> granted b2 on left
        0   submit b3 class=batch within=300        -> granted b3 on left
        0   submit b4 class=batch within=300
        0   submit wide class=interactive width=2 within=300
        0   submit s1 class=interactive within=300
        0   submit s2 class=interactive within=300
        1   leave u                                 -> granted s1 on left
        2   leave s1
    """)
    assert script.scheduler.snapshot().deployment("left").held_for == "wide"
    script.run("""
        3   leave b1                                -> granted b4 on left
        4   leave b2                                -> granted wide on left
    """)


# Long prompts.


def test_one_long_prompt_is_read_at_a_time() -> None:
    Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit a tokens=3000                    -> granted a on left
        0   submit b tokens=3000
        0   submit c tokens=512                     -> granted c on left
        1   charge c output=1
        2   charge a input=3000
        3   charge a output=1                       -> granted b on left
    """)


@pytest.mark.parametrize("ending", ["leave a failed free", "leave a abandoned", "requeue a free"])
def test_the_next_long_prompt_is_read_when_the_one_before_ends_otherwise(ending: str) -> None:
    script = Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit a tokens=3000                    -> granted a on left
        0   submit b tokens=3000
    """)
    # Who comes back was there before.
    next_one = "a" if ending.startswith("requeue") else "b"
    script.run(f"1 {ending} -> granted {next_one} on left")


def test_long_prompts_that_are_small_together_are_read_together() -> None:
    Script(ready("left", slots=4), policies=PATIENT).run("""
        0   submit a tokens=1000                    -> granted a on left
        0   submit b tokens=1048                    -> granted b on left
        0   submit c tokens=513
        1   charge a output=1                       -> granted c on left
    """)


def test_another_deployment_reads_what_one_cannot_now() -> None:
    Script(ready("left", slots=4), ready("right", slots=2), policies=PATIENT).run("""
        0   submit a tokens=3000                    -> granted a on left
        0   submit b tokens=3000                    -> granted b on right
        0   submit c tokens=3000
        1   charge b output=1                       -> granted c on right
    """)


def test_who_waits_for_another_s_prompt_keeps_a_slot_but_not_all() -> None:
    """After so many have overtaken it, b has one of the free slots; the others serve others."""
    script = Script(ready("left", slots=6), policies=PATIENT, limits=Limits(max_bypass=1)).run("""
        0   submit a tokens=3000                    -> granted a on left
        0   submit b tokens=3000
        0   submit s1                               -> granted s1 on left
        0   submit s2                               -> granted s2 on left
        0   submit s3                               -> granted s3 on left
        0   submit s4                               -> granted s4 on left
        0   submit s5
    """)
    assert script.scheduler.snapshot().deployment("left").held_for == "b"
    script.run("1 charge a output=1 -> granted b on left")


def test_the_slot_kept_for_a_long_prompt_is_one_of_its_deployment_only() -> None:
    script = Script(
        ready("left", slots=3),
        ready("right", slots=2),
        policies=PATIENT,
        limits=Limits(max_bypass=1),
    ).run("""
        0   submit a tokens=3000                    -> granted a on left
        0   submit b tokens=3000                    -> granted b on right
        0   submit c tokens=3000
        0   submit s1                               -> granted s1 on left
        0   submit s2                               -> granted s2 on right
        0   submit s3
        1   charge a output=1                       -> granted c on left
    """)
    assert script.scheduler.is_waiting("s3")


def test_a_long_prompt_s_tokens_are_kept_too() -> None:
    """Of 4850 tokens a takes 3050; b will need 1600 and others must leave them."""
    script = Script(
        ready("left", slots=6, kv_pool_tokens=5000),
        policies=Policies.named(kv="max", admission="expiry", fairness="none"),
        limits=Limits(max_bypass=1, long_prefill_tokens=10),
    ).run("""
        0   submit a exact tokens=3000 output=50    -> granted a on left
        0   submit b exact tokens=1500 output=100
        0   submit s1 exact tokens=50 output=50     -> granted s1 on left
        0   submit s2 exact tokens=50 output=50     -> granted s2 on left
        0   submit s3 exact tokens=50 output=50
        1   charge a output=1                       -> granted b on left
    """)
    assert script.scheduler.is_waiting("s3")


def test_who_may_not_have_the_slot_that_is_kept_may_have_another_deployment_s() -> None:
    """Both read long prompts; the slot that is left on the left is kept for b."""
    script = Script(
        ready("left", slots=2),
        ready("right", slots=2),
        policies=PATIENT,
        limits=Limits(max_bypass=0),
    ).run("""
        0   submit a1 tokens=3000                   -> granted a1 on left
        0   submit a2 tokens=3000                   -> granted a2 on right
        0   submit b tokens=3000
        0   submit s1                               -> granted s1 on right
        0   submit s2
        1   charge a1 output=1                      -> granted b on left
    """)
    assert script.scheduler.is_waiting("s2")


def test_a_hold_does_not_outlast_its_reason() -> None:
    Script(ready("left", slots=2), policies=PATIENT, limits=Limits(max_bypass=0)).run("""
        0   submit a                                -> granted a on left
        0   submit wide width=2
        0   submit s
        1   leave wide abandoned                    -> granted s on left
    """)


def test_a_head_that_will_need_more_than_all_waits_for_the_last_to_end() -> None:
    """900 tokens and an answer that nobody has bounded: more than 1000 are expected of it."""
    taught(kv=1000, kv_budget="max").run("""
        0   submit a exact tokens=100 output=50                    -> granted a on left
        0   charge a output=1
        0   submit head exact tokens=900 within=500
        0   submit long exact width=2 tokens=5 output=100 within=500
        0   leave long abandoned
        0   submit short exact width=2 tokens=5 output=10 within=500 -> granted short on left
        1   leave short
        5   leave a                                                -> granted head on left
    """)
