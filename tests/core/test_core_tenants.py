"""What one tenant may take."""

from __future__ import annotations

from slotgate.core.decision import Refused
from slotgate.core.limits import Limits, TenantCaps
from slotgate.testing import Script, ready


def capped(*, in_flight: int | None = None, waiting: int | None = None) -> Limits:
    return Limits(tenants={"hog": TenantCaps(max_in_flight=in_flight, max_waiting=waiting)})


def test_a_tenant_at_its_cap_waits_though_slots_are_free() -> None:
    Script(ready("left", slots=3), limits=capped(in_flight=1)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c              -> granted c on left
        1  leave a               -> granted b on left
    """)


def test_others_pass_a_tenant_at_its_cap() -> None:
    Script(ready("left", slots=2), limits=capped(in_flight=1)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit x              -> granted x on left
        0  submit b tenant=hog
        0  submit c tenant=hog
        0  submit y
        1  leave x               -> granted y on left
        2  leave a               -> granted b on left
        3  leave y
        4  leave b               -> granted c on left
    """)


def test_a_tenant_below_its_cap_is_served_in_order_of_arrival() -> None:
    Script(ready("left", slots=2), limits=capped(in_flight=2)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit x              -> granted x on left
        0  submit b tenant=hog
        0  submit y
        1  leave x               -> granted b on left
        2  leave a               -> granted y on left
    """)


def test_a_tenant_below_its_cap_again_is_first_of_those_that_have_had_no_less() -> None:
    """Else it would lose its place to those whose turn it took before, each time."""
    Script(ready("left", slots=2), limits=capped(in_flight=1)).run("""
        0  submit a              -> granted a on left
        0  submit h tenant=hog   -> granted h on left
        0  submit b
        0  submit i tenant=hog
        1  charge a output=10
        2  leave h               -> granted i on left
    """)


def test_tenants_that_come_one_after_the_other_are_served_one_after_the_other() -> None:
    """Each as large as the next: a newcomer is not put before those that came just before it."""
    Script(ready("left")).run("""
        0  submit a tenant=busy   -> granted a on left
        0  submit b tenant=busy
        0  charge a output=10
        1  submit x tenant=one
        2  submit y tenant=two
        3  submit z tenant=three
        4  charge a output=1
        4  leave a                -> granted x on left
        5  charge x output=10
        5  leave x                -> granted y on left
        6  charge y output=10
        6  leave y                -> granted z on left
    """)


def test_a_settling_lease_counts_against_its_tenant() -> None:
    Script(ready("left", slots=3), limits=capped(in_flight=1)).run("""
        0  submit a tenant=hog   -> granted a on left
        1  leave a abandoned
        1  submit b tenant=hog
        2  settled a             -> granted b on left
    """)


def test_a_cap_holds_over_all_models() -> None:
    script = Script(ready("left", model="m"), ready("right", model="n"), limits=capped(in_flight=1))
    script.run("""
        0  submit a tenant=hog model=m   -> granted a on left
        0  submit b tenant=hog model=n
        0  submit c tenant=hog model=m
        1  leave a                       -> granted c on left
        2  leave c                       -> granted b on right
    """)


def test_a_newcomer_does_not_take_the_place_that_comes_free_at_that_moment() -> None:
    models = ready("left", model="m", slots=2), ready("right", model="n")
    Script(*models, limits=capped(in_flight=1)).run("""
        0   submit a tenant=hog model=m             -> granted a on left
        1   leave a abandoned
        1   submit b tenant=hog model=m within=90
        # Now the lease of a, which has settled since, is taken for free.
        31  submit c tenant=hog model=n within=90   -> granted b on left
        32  leave b                                 -> granted c on right
    """)


def test_a_requeued_ticket_frees_its_tenants_place() -> None:
    Script(ready("left", slots=2), limits=capped(in_flight=1)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        1  requeue a free        -> granted a on left
        2  requeue a
        3  settled a 2           -> granted a on left
        4  leave a               -> granted b on left
    """)


def test_a_tenant_without_a_place_never_runs() -> None:
    Script(ready("left"), limits=capped(in_flight=0)).run("""
        0   submit a tenant=hog
        0   submit b              -> granted b on left
        30  tick                  -> refused a queue_timeout by tenants.hog.max_in_flight
    """)


def test_a_timeout_at_the_cap_names_the_cap() -> None:
    script = Script(ready("left", slots=2), limits=capped(in_flight=1)).run("""
        0   submit a tenant=hog   -> granted a on left
        0   submit b tenant=hog
        30  tick                  -> refused b queue_timeout by tenants.hog.max_in_flight
    """)
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert (refusal.limit, refusal.value) == (1, 1)


def test_a_timeout_below_the_cap_does_not() -> None:
    Script(ready("left"), limits=capped(in_flight=2)).run("""
        0   submit a tenant=hog   -> granted a on left
        0   submit b tenant=hog
        30  tick                  -> refused b queue_timeout by classes.standard.budget
    """)


def test_a_tenants_part_of_the_waiting_room_is_bounded() -> None:
    script = Script(ready("left"), limits=capped(waiting=1)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog
        0  submit c tenant=hog   -> refused c tenant_limit by tenants.hog.max_waiting
        0  submit d
        1  leave a               -> granted b on left
        1  submit e tenant=hog
    """)
    refusal = script.decisions[1]
    assert isinstance(refusal, Refused)
    assert (refusal.limit, refusal.value) == (1, 1)
    assert refusal.retry_after is not None
    assert refusal.retry_after >= 1


def test_a_full_part_of_the_waiting_room_does_not_refuse_whom_a_slot_fits() -> None:
    Script(ready("left", slots=3), limits=capped(waiting=0)).run("""
        0  submit a tenant=hog   -> granted a on left
        0  submit b tenant=hog   -> granted b on left
    """)


def test_a_wide_ticket_of_a_tenant_at_its_cap_holds_no_slots() -> None:
    limits = Limits(max_bypass=0, tenants={"hog": TenantCaps(max_in_flight=1)})
    Script(ready("left", slots=3), limits=limits).run("""
        0  submit a tenant=hog           -> granted a on left
        0  submit w width=3 tenant=hog
        0  submit b                      -> granted b on left
        0  submit c                      -> granted c on left
        1  leave a
        1  submit d
        2  leave b
        3  leave c                       -> granted w on left
    """)
