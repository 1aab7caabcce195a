"""Which deployment a ticket runs on: the one where it is done first, and only where it fits."""

from __future__ import annotations

from math import inf

import pytest

from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.free_pools import FreePools
from slotgate.core.lengths import Lengths
from slotgate.core.limit import FixedLimit
from slotgate.core.limits import Limits
from slotgate.core.placement import PredictedFinish
from slotgate.core.policies import PLACEMENT, Policies
from slotgate.core.pool import Lease, SlotPool
from slotgate.core.ticket import Ticket
from slotgate.core.waiter import Shape, Waiter
from slotgate.testing import Script, ready

LENGTHS = Lengths()  # nothing is known: 256 tokens, or the bound


def pool(
    name: str,
    *,
    slots: int = 4,
    read: float | None = None,
    gaps: dict[int, float] | None = None,
    seniority: int = 0,
) -> SlotPool:
    """A deployment with such speeds: seconds a prompt token, seconds a token by sequences."""
    report = DeploymentReport(id=name, model="m", slots=slots, state=State.READY)
    made = SlotPool(report, FixedLimit())
    if read is not None:
        made.speeds.read(1000, 1000 * read)
    for sequences, gap in (gaps or {}).items():
        made.speeds.gaps.observe(sequences, gap, tokens=100, now=0.0)
    made.attach(FreePools(), -seniority)
    made.update(report, 0.0)
    return made


def ticket(name: str = "a", *, tokens: int = 0, output: int = 100, session: str = "") -> Ticket:
    return Ticket(
        id=name,
        arrival=0.0,
        deadline=inf,
        input_tokens=tokens,
        output_tokens=output,
        affinity=session or None,
    )


def grant(place: SlotPool, wanted: Ticket) -> Lease:
    shape = Shape(1, 0, wanted.input_tokens.bit_length())
    waiter = Waiter(ticket=wanted, number=1, since=0.0, shape=shape, start_by=inf)
    lease = Lease(id=wanted.id, waiter=waiter, pool=place, since=0.0)
    place.begin(lease)
    return lease


def serve(place: SlotPool, wanted: Ticket) -> None:
    lease = grant(place, wanted)
    place.started_writing(lease, 1.0)
    place.end(lease, 2.0)


def chosen(wanted: Ticket, *pools: SlotPool) -> str:
    return PredictedFinish().choose(wanted, pools, LENGTHS).id


# All placements.


@pytest.mark.parametrize("name", PLACEMENT)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_placement_chooses_one_of_those_that_it_is_offered(name: str, count: int) -> None:
    pools = [pool(f"p{number}") for number in range(count)]
    for wanted in (ticket(), ticket(tokens=5000, session="s"), ticket(output=0)):
        assert PLACEMENT[name]().choose(wanted, pools, LENGTHS) in pools
        assert PLACEMENT[name]().choose(wanted, pools[-1:], LENGTHS) is pools[-1]


@pytest.mark.parametrize("name", PLACEMENT)
def test_equal_deployments_are_filled_evenly_and_in_the_order_in_which_they_were_added(
    name: str,
) -> None:
    reports = [ready(name, slots=2) for name in ("left", "middle", "right")]
    Script(*reports, policies=Policies.named(placement=name)).run("""
        0  submit a  -> granted a on left
        0  submit b  -> granted b on middle
        0  submit c  -> granted c on right
        0  submit d  -> granted d on left
        1  leave b
        1  submit e  -> granted e on middle
    """)


@pytest.mark.parametrize("name", PLACEMENT)
def test_a_prompt_goes_only_where_it_fits_and_waits_for_that(name: str) -> None:
    small, large = ready("small", slots=9, ctx_per_slot=1000), ready("large", ctx_per_slot=8000)
    Script(small, large, policies=Policies.named(placement=name)).run("""
        0  submit long tokens=3000   -> granted long on large
        0  submit later tokens=3000
        0  submit short tokens=900   -> granted short on small
        0  submit exact tokens=1000
        1  leave long                -> granted later on large
        2  leave later               -> granted exact on large
    """)


# Predicted finish.


def test_the_faster_machine_is_preferred_until_it_is_slower_by_what_it_has_to_do() -> None:
    fast = pool("fast", gaps={1: 0.01, 2: 0.02, 3: 0.03})
    slow = pool("slow", gaps={1: 0.025})
    assert chosen(ticket(), fast, slow) == "fast"
    grant(fast, ticket("b"))
    assert chosen(ticket(), fast, slow) == "fast"
    grant(fast, ticket("c"))
    assert chosen(ticket(), fast, slow) == "slow"


def test_long_answers_go_where_writing_is_fast_and_long_prompts_where_reading_is() -> None:
    reader = pool("reader", read=0.001, gaps={1: 0.02})
    writer = pool("writer", read=0.01, gaps={1: 0.01})
    assert chosen(ticket(tokens=10, output=200), reader, writer) == "writer"
    assert chosen(ticket(tokens=1000, output=100), reader, writer) == "reader"


def test_a_new_deployment_is_taken_to_be_as_good_as_the_best_and_so_is_tried() -> None:
    known = [pool("fast", read=0.001, gaps={1: 0.01}), pool("slow", read=0.01, gaps={1: 0.1})]
    new = pool("new", seniority=-5)
    assert chosen(ticket(tokens=100), *known, new) == "fast"
    grant(known[0], ticket("b"))
    assert chosen(ticket(tokens=100), *known, new) == "new"


def test_a_prompt_waits_for_what_is_read_before_it() -> None:
    busy, idle = pool("busy", seniority=1), pool("idle")
    leases = [grant(busy, ticket("b", tokens=4000)), grant(busy, ticket("d", tokens=50))]
    for name in ("c", "e"):
        grant(idle, ticket(name))
    assert busy.unread == 4050
    assert chosen(ticket(tokens=100), busy, idle) == "idle"
    for lease, left in zip(leases, (50, 0), strict=True):
        busy.started_writing(lease, 1.0)
        assert busy.unread == left
    assert chosen(ticket(tokens=100), busy, idle) == "busy"


def test_a_session_goes_where_it_was_before() -> None:
    left, right = pool("left"), pool("right", seniority=-1)
    serve(right, ticket("b", tokens=1000, session="s"))
    assert chosen(ticket(tokens=1200), left, right) == "left"
    assert chosen(ticket(tokens=1200, session="t"), left, right) == "left"
    assert chosen(ticket(tokens=1200, session="s"), left, right) == "right"


def test_a_session_leaves_when_another_place_is_faster_all_the_same() -> None:
    gaps = {1: 0.01, 2: 0.02, 3: 0.03, 4: 0.04}
    left, right = pool("left", read=0.0001, gaps=gaps), pool("right", read=0.0001, gaps=gaps)
    serve(right, ticket("b", tokens=1000, session="s"))
    for name in ("c", "d", "e"):
        grant(right, ticket(name))
    again = ticket(tokens=1000, session="s", output=5)
    assert chosen(again, left, right) == "right"
    assert chosen(ticket(tokens=1000, session="s", output=1000), left, right) == "left"


def test_reading_counts_for_all_whom_it_stalls() -> None:
    """By its own finish alone the session would leave: 1 s of reading for 2 s of writing."""
    gaps = {3: 0.03, 4: 0.05}
    left, right = pool("left", read=0.001, gaps=gaps), pool("right", read=0.001, gaps=gaps)
    serve(right, ticket("b", tokens=1000, session="s"))
    for place, count in ((left, 2), (right, 3)):
        for number in range(count):
            grant(place, ticket(f"c{number}"))
    assert chosen(ticket(tokens=1000, session="s"), left, right) == "right"


# What is remembered of a session, by what happens to a deployment.


@pytest.mark.parametrize("state", [State.DOWN, State.LOADING, State.STARTING])
def test_a_restart_forgets_all_sessions(state: State) -> None:
    place = pool("left")
    serve(place, ticket("b", tokens=1000, session="s"))
    survivor = grant(place, ticket("c", tokens=1000, session="t"))
    place.started_writing(survivor, 2.5)
    assert place.unread_of(ticket(tokens=1000, session="s")) == 0
    place.update(DeploymentReport(id="left", model="m", slots=4, state=state), 0.0)
    place.update(DeploymentReport(id="left", model="m", slots=4, state=State.READY), 0.0)
    assert place.unread_of(ticket(tokens=1000, session="s")) == 1000
    # What ran through it has left nothing either.
    place.end(survivor, 3.0)
    assert place.unread_of(ticket(tokens=1000, session="t")) == 1000


def test_a_drain_forgets_nothing() -> None:
    place = pool("left")
    serve(place, ticket("b", tokens=1000, session="s"))
    place.set_hold(State.DRAINING)
    place.set_hold(None)
    assert place.unread_of(ticket(tokens=1000, session="s")) == 0


def test_a_prompt_that_was_never_read_leaves_nothing() -> None:
    place = pool("left")
    place.end(grant(place, ticket("b", tokens=1000, session="s")), 1.0)
    assert place.unread_of(ticket(tokens=1000, session="s")) == 1000


def test_the_answer_is_held_too() -> None:
    place = pool("left")
    lease = grant(place, ticket("b", tokens=1000, session="s"))
    place.started_writing(lease, 1.0)
    lease.output_tokens = 200
    place.end(lease, 2.0)
    assert place.unread_of(ticket(tokens=1500, session="s")) == 300


def test_work_that_is_not_ours_takes_slots_from_sessions() -> None:
    place = pool("left", slots=2)
    serve(place, ticket("b", tokens=1000, session="s"))
    serve(place, ticket("c", tokens=1000, session="t"))
    place.update(DeploymentReport(id="left", model="m", slots=2, state=State.READY, outside=1), 0.0)
    assert place.unread_of(ticket(tokens=1000, session="s")) == 500
    assert place.unread_of(ticket(tokens=1000, session="t")) == 0


def test_what_the_backend_found_is_learned() -> None:
    steps = [
        line
        for n in range(1, 60)
        for line in (
            f"{n}.0 submit t{n} tokens=1000 affinity=s -> granted t{n} on left",
            f"{n}.1 charge t{n} input=1000 cached=0 output=10",
            f"{n}.2 leave t{n}",
        )
    ]
    script = Script(ready("left"), ready("right")).run("\n".join(steps[:3]))
    left = script.scheduler._fleet.pools["left"]
    assert left.unread_of(ticket(tokens=1000, session="s")) == 0
    # It never has it: then it is worth nothing to go there.
    for step in steps[3:90]:
        script.run(step)
    assert left.unread_of(ticket(tokens=1000, session="s")) > 800


# The gate of long prompts.


def test_a_long_prompt_that_is_mostly_cached_is_read_beside_another_long_one() -> None:
    left = ready("left", slots=3)
    Script(left, limits=Limits(long_prefill_tokens=2048)).run("""
        0  submit a tokens=3000 affinity=s   -> granted a on left
        1  charge a output=1
        2  leave a
        3  submit b tokens=3000              -> granted b on left
        3  submit d tokens=3200 affinity=s   -> granted d on left
        3  submit c tokens=3000
        4  charge b output=1                 -> granted c on left
    """)


def test_a_session_gets_no_turn_before_its_time() -> None:
    """Affinity says where the first in the queue runs, not who is first."""
    Script(ready("left"), ready("right")).run("""
        0  submit a tokens=1000 affinity=s  -> granted a on left
        0  submit b tokens=1000             -> granted b on right
        1  charge a output=1
        1  submit c tokens=1000
        1  submit d tokens=1000 affinity=s
        2  leave a                          -> granted c on left
        3  leave b                          -> granted d on right
    """)
