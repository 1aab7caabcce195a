"""Waits that are foretold: against a simulation of the slots, and against what happens."""

from __future__ import annotations

import random
from heapq import heapify, heapreplace
from statistics import fmean, median

import pytest

from slotgate.core.able import Able
from slotgate.core.decision import Reason
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.fairness import LeastRecentService
from slotgate.core.forecast import Forecast
from slotgate.core.lengths import Lengths
from slotgate.core.limits import TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.queue import FairQueue
from slotgate.core.ticket import Ticket
from slotgate.core.turns import Ahead
from slotgate.core.waiter import Shape, Waiter
from slotgate.testing import Script, ready
from tests.core.world import GAP, World


def busy_world(slots: int, *, seed: int = 1, tenant: str = "chat") -> tuple[World, list[int]]:
    """All slots at work for a while; also the lengths of all that was seen before."""
    world = World(slots=slots, seed=seed)
    samples = [world.draw() for _ in range(300)]
    world.teach(samples, tenant)
    for _ in range(slots):
        world.submit(world.draw(), tenant=tenant)
    world.run_until(world.clock.now() + 5)
    while len(world.running) < slots:
        world.submit(world.draw(), tenant=tenant)
    return world, samples


def simulate(
    world: World, samples: list[int], ahead: int, slots: int, *, width: int = 1
) -> tuple[float, float]:
    """The median and the mean of the wait behind so many, by drawing all lengths many times.

    Free slots in a heap; what runs ends when another answer as long as it, or longer, would.
    """
    dice = random.Random(5)
    waits = []
    for _ in range(400 if slots < 50 else 100):
        ends = [0.0] * (slots - len(world.running))
        for written in world.running.values():
            longer = [sample for sample in samples if sample > written]
            rest = dice.choice(longer) - written if longer else written
            ends.append(rest * GAP)
        heapify(ends)
        for _ in range(ahead):
            heapreplace(ends, ends[0] + dice.choice(samples) * GAP)
        waits.append(sorted(ends)[width - 1])
    return median(waits), fmean(waits)


# Against the simulation.


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("slots", "ahead"), [(1, 0), (1, 4), (4, 0), (4, 10), (8, 0), (8, 3), (8, 30), (100, 5)]
)
def test_a_wait_is_between_the_median_and_the_mean_about(slots: int, ahead: int, seed: int) -> None:
    world, samples = busy_world(slots, seed=seed)
    for _ in range(ahead):
        world.submit(world.draw())
    predicted = world.predicted(world.submit(100))
    middle, mean = simulate(world, samples, ahead, slots)
    assert predicted is not None
    assert 0.75 * middle - 0.5 <= predicted <= 1.25 * mean + 0.5
    if ahead >= 10:
        assert predicted == pytest.approx(mean, rel=0.1)


def test_behind_many_on_many_slots_a_wait_is_good_to_a_tenth() -> None:
    world, samples = busy_world(100)
    for _ in range(300):
        world.submit(world.draw())
    _, mean = simulate(world, samples, 300, 100)
    assert world.predicted(world.submit(100)) == pytest.approx(mean, rel=0.12)


def test_the_mean_of_what_runs_would_be_far_off() -> None:
    """Negative control for the tolerances above: long answers are over-represented there."""
    world, samples = busy_world(8)
    for _ in range(30):
        world.submit(world.draw())
    _, mean = simulate(world, samples, 30, 8)
    running = fmean(world.lengths[ticket_id] for ticket_id in world.running) * GAP
    assert 31 * running / 8 > 1.25 * mean


@pytest.mark.parametrize("tenants", [2, 5])
def test_among_tenants_only_what_has_its_turn_before_counts(tenants: int) -> None:
    """The first of a tenant waits for the first of each other one, the last for all."""
    world, samples = busy_world(4)
    for _ in range(10):
        for tenant in range(tenants):
            world.submit(world.draw(), tenant=f"tenant{tenant}")
    for late in ("late", "tenant1"):
        ticket_id = world.submit(100, tenant=late)
        predicted = world.predicted(ticket_id)
        order = [view.ticket.id for view in world.scheduler.snapshot().waiting]
        middle, mean = simulate(world, samples, order.index(ticket_id), 4)
        assert predicted is not None
        assert 0.6 * middle - 1 <= predicted <= 1.4 * mean + 1
        assert (order.index(ticket_id) < 2 * tenants) is (late == "late")


def test_who_needs_two_slots_waits_for_two() -> None:
    world, samples = busy_world(4)
    one, two = (world.submit(50, width=width) for width in (1, 2))
    first, second = world.predicted(one), world.predicted(two)
    assert first is not None
    assert second is not None
    assert second > first
    _, mean = simulate(world, samples, 1, 4, width=2)
    assert second == pytest.approx(mean, rel=0.35)


def test_free_slots_are_free_at_once() -> None:
    """Four slots for a ticket of width four; three are free, and one ends by and by."""
    world, samples = busy_world(1)
    world.scheduler.deployment(_slots(4))
    predicted = world.predicted(world.submit(50, width=4))
    _, mean = simulate(world, samples, 0, 4, width=4)
    assert predicted == pytest.approx(mean, rel=0.35)


def _slots(slots: int) -> DeploymentReport:
    return DeploymentReport(id="left", model="", slots=slots, state=State.READY)


# What is unknown.


def test_until_five_answers_were_seen_nothing_is_foretold() -> None:
    world = World(slots=1)
    for number in range(6):
        running = world.submit(20)
        waiting = world.submit(20)
        assert (world.predicted(waiting) is not None) is (2 * number >= 5)
        (mine,) = world.scheduler.waiting_of("chat")
        assert (mine.predicted_wait is not None) is (2 * number >= 5)
        world.run_out()
        assert running in world.grants


def test_where_no_slot_is_nothing_is_foretold() -> None:
    world, _ = busy_world(2)
    waiting = world.submit(20)
    assert world.predicted(waiting) is not None
    world.scheduler.pause("left")
    world.run_until(world.clock.now() + 1)
    assert world.predicted(world.submit(20)) is None


def test_without_any_gap_nothing_is_foretold() -> None:
    """Answers whose lengths alone are known, as they came all at once."""
    script = Script(ready("left"), policies=Policies.named(admission="deadline"))
    for number in range(8):
        script.run(f"""
            {number}    submit t{number}              -> granted t{number} on left
            {number}    charge t{number} output=100
            {number}.5  leave t{number}
        """)
    script.run("""
        9   submit a within=1000                      -> granted a on left
        9   submit b within=1000
    """)
    assert script.scheduler.snapshot().waiting[0].predicted_wait is None


# Reading.


def test_a_long_prompt_waits_for_those_that_are_read() -> None:
    world = World(slots=8)
    world.teach([10] * 30)
    script = Script(ready("left", slots=3), policies=Policies.named(admission="expiry"))
    for number in range(6):
        script.run(f"""
            {number}    submit t{number}              -> granted t{number} on left
            {number}    charge t{number} output=1
            {number}.9  charge t{number} output=9
            {number}.9  timed t{number} prompt=500 prompt_seconds=1
            {number}.9  leave t{number}
        """)
    script.run("""
        10  submit a tokens=5000                      -> granted a on left
        10  submit b tokens=5000 within=100
    """)
    (waiting,) = script.scheduler.snapshot().waiting
    assert waiting.predicted_wait == pytest.approx(10, rel=0.01)


def test_who_reads_has_the_rest_of_its_prompt_and_its_whole_answer_before_it() -> None:
    """A prompt of 0.8 s and ten tokens of 0.1 s."""
    script = Script(ready("left"), policies=Policies.named(admission="expiry"))
    for number in range(6):
        script.run(f"""
            {number}    submit t{number}              -> granted t{number} on left
            {number}    charge t{number} output=1
            {number}.9  charge t{number} output=9
            {number}.9  timed t{number} prompt=500 prompt_seconds=1
            {number}.9  leave t{number}
        """)
    script.run("10 submit a tokens=400 output=10 -> granted a on left")
    left: list[float | None] = []
    for step in (
        "10   tick",
        "10.5 tick",
        "13   tick",
        "13   charge a input=400 output=1",
        "13.5 charge a output=5",
        "14   charge a output=4",
    ):
        time = step.split()[0]
        script.run(step)
        script.run(f"{time} submit q{len(left)} within=100")
        left.append(script.scheduler.snapshot().waiting[0].predicted_wait)
        script.run(f"{time} leave q{len(left) - 1} abandoned")
    exact = [1.8, 1.3, 1.0, 0.9, 0.4, 0.0]
    # A rest that was just computed is believed for a quarter of a second.
    exact[3] = 1.0
    assert left == pytest.approx(exact, rel=0.1, abs=0.06)


# The tenant's own cap.


def test_a_tenant_at_its_cap_waits_for_its_own() -> None:
    world = World(slots=8, caps={"capped": TenantCaps(max_in_flight=1)})
    world.teach([400] * 30)
    world.submit(400, tenant="capped")
    predicted = world.predicted(world.submit(400, tenant="capped"))
    assert predicted == pytest.approx(400 * GAP, rel=0.15)
    (mine,) = world.scheduler.waiting_of("capped")
    assert mine.predicted_wait == pytest.approx(predicted, rel=0.01)
    later = world.predicted(world.submit(400, tenant="capped"))
    assert later == pytest.approx(2 * 400 * GAP, rel=0.2)


def test_below_its_cap_a_tenant_waits_for_slots_only() -> None:
    world = World(slots=2, caps={"capped": TenantCaps(max_in_flight=3)})
    world.teach([400] * 30)
    for _ in range(2):
        world.submit(400, tenant="chat")
    free = world.predicted(world.submit(400, tenant="capped"))
    world = World(slots=2)
    world.teach([400] * 30)
    for _ in range(2):
        world.submit(400, tenant="chat")
    assert free == world.predicted(world.submit(400, tenant="capped"))


# A tenant's own tickets.


def test_positions_of_one_tenant_are_its_order() -> None:
    world, _ = busy_world(2)
    ids = [world.submit(100) for _ in range(5)]
    views = world.scheduler.waiting_of("chat")
    assert [(view.ticket.id, view.position) for view in views] == list(
        zip(ids, range(1, 6), strict=True)
    )
    waits = [view.predicted_wait or 0.0 for view in views]
    assert waits == sorted(waits)
    assert waits[0] > 0


def test_positions_of_several_tenants_are_those_of_the_snapshot_about() -> None:
    world = World(slots=2)
    world.teach([100] * 30)
    for _ in range(2):
        world.submit(100)
    for number in range(12):
        world.submit(100, tenant=("a", "b", "c")[number % 3])
    everybody = {v.ticket.id: v.position for v in world.scheduler.snapshot().waiting}
    for tenant in ("a", "b", "c"):
        views = world.scheduler.waiting_of(tenant)
        assert len(views) == 4
        for view in views:
            assert view.position == pytest.approx(everybody[view.ticket.id], abs=2)


def test_a_wait_that_is_asked_for_later_is_what_is_still_to_come() -> None:
    world = World(slots=1)
    world.teach([400] * 30)
    world.submit(400)
    ticket_id = world.submit(400)
    first = world.predicted(ticket_id)
    world.run_until(world.clock.now() + 10)
    (mine,) = world.scheduler.waiting_of("chat")
    assert first == pytest.approx(400 * GAP, rel=0.15)
    assert mine.predicted_wait == pytest.approx(400 * GAP - 10, abs=3)
    assert world.predicted(ticket_id) == first
    world.run_out()
    assert world.grants[ticket_id].predicted_wait == first


# Calibration.


@pytest.mark.parametrize("tenants", [1, 4])
def test_in_the_long_run_three_of_four_wait_no_longer_than_told(tenants: int) -> None:
    """A dozen clients on four slots, each with the next request as soon as one has ended."""
    world = World(slots=4, seed=3)
    world.teach([world.draw() for _ in range(50)])

    def ask() -> None:
        world.submit(world.draw(), tenant=f"tenant{world.dice.randrange(tenants)}")

    for _ in range(12):
        ask()
    while len(world.grants) < 1000:
        if world.step() is not None:
            ask()
    waited = [granted for granted in world.grants.values() if granted.predicted_wait is not None]
    within = [granted.waited <= (granted.predicted_wait or 0.0) for granted in waited[200:]]
    assert len(within) > 600
    assert fmean(within) == pytest.approx(0.75, abs=0.06)


# Admission by the forecast.


def test_with_exact_lengths_who_cannot_make_it_is_refused_and_nobody_else() -> None:
    """Everything is 200 tokens long, hence ten seconds, and two run at a time."""
    world = World(slots=2, admission="deadline", fairness="none")
    world.teach([10_000] * 8)
    dice = random.Random(2)
    fates: dict[str, tuple[float, float, int]] = {}
    for _ in range(400):
        world.run_until(world.clock.now() + dice.uniform(0.0, 9.0))
        queued = len(world.scheduler.snapshot().waiting)
        ends = sorted((200 - written) * GAP for written in world.running.values())
        ends = [0.0] * (2 - len(ends)) + ends
        for _ in range(queued):
            ends = sorted([ends[0] + 200 * GAP, ends[1]])
        within = dice.uniform(1.0, 40.0)
        ticket_id = world.submit(200, bound=200, within=within)
        fates[ticket_id] = (ends[0], within, queued)
    refused = {i: r for i, r in world.refusals.items() if r.reason is Reason.WAIT_TOO_LONG}
    assert 30 < len(refused) < 360
    # What a request has written is known but for 32 tokens, that is 1.6 s for each slot.
    for ticket_id, (wait, within, queued) in fates.items():
        if wait < 0.7 * within - 2.5:
            assert ticket_id not in refused
        # Who is next needs less of a chance.
        if wait > 1.3 * within + 2.5 and queued:
            assert ticket_id in refused


def test_with_the_other_policy_nobody_is_refused_at_arrival() -> None:
    """Negative control."""
    world = World(slots=1, admission="expiry")
    world.teach([400] * 30)
    for _ in range(5):
        world.submit(400, within=1)
    assert world.refusals == {}
    world.run_until(world.clock.now() + 1)
    world.take(world.scheduler.tick())
    assert {r.reason for r in world.refusals.values()} == {Reason.QUEUE_TIMEOUT}


# Questions before a ticket comes.


def asks(world: World, low: int, high: int, *, within: float = 30.0, tenant: str = "chat") -> bool:
    now = world.clock.now()
    ticket = Ticket(id="q", arrival=now, deadline=now + within, tenant=tenant)
    return world.scheduler.hangs_on_length(ticket, low, high)


def reading_world(answers: int = 25) -> World:
    """Two slots, answers of twenty seconds, and prompts at 1000 tokens a second."""
    world = World(slots=2, admission="deadline")
    for _ in range(answers):
        ticket_id = world.submit(400)
        world.scheduler.timed(
            ticket_id, prompt_tokens=1000, prompt_seconds=1, output_tokens=0, output_seconds=0
        )
        world.run_out()
    return world


def test_whether_a_prompt_s_length_decides_is_known_before_it_is_counted() -> None:
    world = reading_world()
    assert not asks(world, 100, 20_000), "there are free slots"
    for _ in range(2):
        world.submit(400)
    # Twenty seconds to wait, of thirty.
    assert asks(world, 100, 20_000)
    assert not asks(world, 100, 5000)
    assert not asks(world, 100, 200)
    assert not asks(world, 18_000, 29_000)
    assert asks(world, 100, 20_000, tenant="nobody")
    for _ in range(4):
        world.submit(400)
    assert not asks(world, 100, 20_000), "others of the tenant are before it"


def test_who_would_begin_in_time_but_read_too_long_is_refused() -> None:
    world = reading_world()
    for _ in range(2):
        world.submit(400)
    # Twenty seconds to wait, of thirty; a thousand tokens are read in one.
    kept, refused = (
        world.submit(400, within=30, reads=100),
        world.submit(400, within=30, reads=20_000),
    )
    assert kept not in world.refusals
    assert world.refusals[refused].reason == "wait_too_long"


def test_of_what_is_unknown_nothing_decides() -> None:
    world = reading_world(answers=3)
    for _ in range(2):
        world.submit(400)
    assert not asks(world, 100, 20_000)
    nowhere = Ticket(id="q", arrival=0, deadline=9, model="nowhere")
    assert not world.scheduler.hangs_on_length(nowhere, 1, 10_000)
    world = reading_world()
    for _ in range(2):
        world.submit(400)
    world.scheduler.pause("left")
    world.run_until(world.clock.now() + 1)
    assert not asks(world, 100, 20_000)


# Rules whose turns have no beginning.


def test_of_tenants_that_have_had_nothing_yet_one_goes_before() -> None:
    """Their keys are at minus infinity; their turns come one after the other."""
    world = World(slots=1, fairness="las")
    world.teach([400] * 30)
    world.submit(400)
    waits = [world.predicted(world.submit(400, tenant=f"new{number}")) for number in range(3)]
    exact = [400 * GAP * (number + 1) for number in range(3)]
    assert waits == pytest.approx(exact, rel=0.25)
    (last,) = world.scheduler.waiting_of("new2")
    assert last.position == 3
    late = world.predicted(world.submit(400))
    assert late == pytest.approx(4 * 400 * GAP, rel=0.25)


def test_a_flash_crowd_of_new_tenants_is_foretold_one_by_one() -> None:
    world = World(slots=1)
    world.teach([400] * 30)
    world.submit(400)
    waits = [world.predicted(world.submit(400, tenant=f"new{n}")) or 0.0 for n in range(20)]
    for number, wait in enumerate(waits):
        assert wait == pytest.approx(400 * GAP * (number + 1), rel=0.2)


def test_a_deployment_too_small_for_a_long_prompt_does_not_open_its_gate() -> None:
    script = Script(
        ready("left", slots=2, ctx_per_slot=1000),
        ready("right", slots=3, ctx_per_slot=9000),
        policies=Policies.named(admission="expiry"),
    )
    for number in range(6):
        script.run(f"""
            {number}    submit t{number}              -> granted t{number} on right
            {number}    charge t{number} output=1
            {number}.9  charge t{number} output=9
            {number}.9  timed t{number} prompt=500 prompt_seconds=1
            {number}.9  leave t{number}
        """)
    script.run("""
        10  submit a tokens=5000                      -> granted a on right
        10  submit b tokens=5000 within=100
    """)
    (waiting,) = script.scheduler.snapshot().waiting
    assert waiting.predicted_wait == pytest.approx(10, rel=0.01)


def test_turns_of_those_that_had_nothing_yet_are_counted_one_by_one() -> None:
    """Least attained service, where nobody has attained any yet."""
    queue = FairQueue(LeastRecentService(), set())
    for number, tenant in enumerate(["a", "a", "b", "b"]):
        ticket = Ticket(id=f"t{number}", arrival=0, deadline=9, tenant=tenant)
        waiter = Waiter(
            ticket=ticket,
            number=number,
            since=0,
            shape=Shape(1, 0),
            start_by=9,
            rank=(0.0, number),
            toll=10.0,
            service=5.0,
        )
        queue.join(waiter)
    forecast = Forecast(queue, {}, Able({}), Lengths())
    first = queue.key_after("b", 0.0)
    assert forecast.ahead("b", first, Ahead(0, 0.0), 0.0) == Ahead(1, 5)
    second = queue.key_after("b", 10.0)
    assert forecast.ahead("b", second, Ahead(1, 5.0), 0.0) == Ahead(2.5, 12.5)
    last = queue.key_after("b", 20.0)
    assert forecast.ahead("b", last, Ahead(2, 10.0), 0.0) == Ahead(4, 20)


@pytest.mark.parametrize("ahead", [0, 2, 20, 400])
def test_a_wait_told_from_what_is_kept_is_nearly_that_of_now(ahead: int) -> None:
    """Where the wait is long, ends are looked at seldom: they are then off by no more for it."""
    world, _ = busy_world(16)
    for _ in range(300):
        world.submit(world.draw())
    model = world.scheduler._fleet.models[""]
    waiter = next(iter(model.queue))
    before, errors, waits = Ahead(ahead, ahead * 10.0), [], []
    looks = set()
    for _ in range(200):
        world.run_until(world.clock.now() + 0.2)
        now = world.clock.now()
        fresh = Forecast(model.queue, model.pools, Able(model.pools), model.lengths)
        kept, exact = (
            each._free_slots(waiter, before, now).time_of(before, 1, 10.0)
            for each in (model.forecast, fresh)
        )
        looks.add(model.able.of(waiter.shape).free)
        errors.append(abs(kept - exact))
        waits.append(exact)
        # The search itself is good to 3 % of what goes before.
        assert abs(kept - exact) <= 0.4 + 0.06 * exact
    assert fmean(errors) <= 0.1 + 0.02 * fmean(waits)
    assert (len(looks) < 40) is (ahead == 400)
