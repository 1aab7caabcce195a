"""A KV cache that slots share: what is promised of it, and that no promise is ever too many."""

from __future__ import annotations

import random
from itertools import count
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.decision import Decision, Ending, Granted
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.kv_budget import ChanceBudget, KvBudget, NoBudget, Room, prompt_bound
from slotgate.core.lengths import Lengths
from slotgate.core.limit import FixedLimit
from slotgate.core.limits import Limits
from slotgate.core.policies import KV, Policies
from slotgate.core.pool import Lease, SlotPool
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.core.waiter import Shape, Waiter
from slotgate.testing import FakeClock, FakeDice, Script, ready
from tests.core.backlog import Backlog, Kind, Outcome

BUDGETS = [name for name in KV if name != "off"]
numbers = count(1)


def ticket(tokens: int = 100, output: int | None = None, **more: Any) -> Ticket:
    told: dict[str, Any] = {"input_is_exact": True, "deadline": inf, "arrival": 0.0} | more
    return Ticket(
        id=f"t{next(numbers)}", tenant="chat", input_tokens=tokens, output_tokens=output, **told
    )


def report(pool: int | None = 10_000, slots: int = 4, ctx: int | None = None) -> DeploymentReport:
    return DeploymentReport(
        id="left",
        model="",
        slots=slots,
        state=State.READY,
        ctx_per_slot=ctx or pool,
        kv_pool_tokens=pool,
    )


class Cache:
    """One deployment, and what was granted of its cache."""

    def __init__(self, budget: KvBudget, samples: list[int] | None = None, **told: Any) -> None:
        self.budget = budget
        self.pool = SlotPool(report(**told), FixedLimit())
        self.lengths = Lengths()
        for sample in samples or []:
            self.lengths.observe("chat", sample, input_tokens=100)

    def fits(self, wanted: Ticket) -> Room | None:
        return self.budget.fits(wanted, self.pool, self.lengths)

    def grant(self, wanted: Ticket) -> Lease:
        room = self.fits(wanted)
        assert room is not None
        shape = Shape(wanted.width, 1 << 62)
        waiter = Waiter(ticket=wanted, number=1, since=0, shape=shape, start_by=inf)
        lease = Lease(
            id=wanted.id,
            waiter=waiter,
            pool=self.pool,
            since=0,
            output_clamp=room.output_clamp,
            kv_tokens=room.tokens,
        )
        self.pool.begin(lease)
        return lease


# What a prompt may take.


@pytest.mark.parametrize(
    ("told", "bound"),
    [
        ({"tokens": 100, "input_is_exact": True}, 100),
        ({"tokens": 101, "input_is_exact": False}, 127),
        ({"tokens": 100, "input_is_exact": True, "size_bytes": 900}, 100),
        ({"tokens": 0, "input_is_exact": False, "size_bytes": 900}, 900),
        ({"tokens": 0, "input_is_exact": False}, 0),
    ],
)
def test_a_prompt_that_was_estimated_may_be_a_quarter_longer(
    told: dict[str, Any], bound: int
) -> None:
    assert prompt_bound(ticket(**told)) == bound


# Contract, for all budgets.


@pytest.mark.parametrize("name", KV)
def test_where_each_slot_has_its_own_cache_nothing_is_asked(name: str) -> None:
    cache = Cache(KV[name](), pool=None)
    assert cache.fits(ticket(10**6)) == Room()


@pytest.mark.parametrize("name", KV)
@given(
    tokens=st.integers(0, 3000),
    output=st.one_of(st.none(), st.integers(0, 3000)),
    width=st.integers(1, 3),
    is_exact=st.booleans(),
    before=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400)), max_size=3),
    samples=st.sampled_from([[], [100] * 30, [10] * 20 + [2000] * 10]),
)
@settings(max_examples=60, deadline=None)
def test_a_room_is_enough_for_what_it_says_and_within_the_pool(
    name: str,
    tokens: int,
    output: int | None,
    width: int,
    is_exact: bool,
    before: list[tuple[int, int]],
    samples: list[int],
) -> None:
    cache = Cache(KV[name](), samples, pool=4000)
    for prompt, bound in before:
        if cache.fits(wanted := ticket(prompt, bound)) is not None:
            cache.grant(wanted)
    wanted = ticket(tokens, output, width=width, input_is_exact=is_exact)
    room = cache.fits(wanted)
    if room is None:
        assert not cache.pool.is_empty, "alone, everybody fits"
        return
    if room.output_clamp is not None:
        assert room.output_clamp >= 1
        assert output is None or room.output_clamp < output
    if name == "off":
        assert room == Room()
        return
    assert room.tokens <= cache.pool.kv_left
    most = room.output_clamp if room.output_clamp is not None else output
    assert most is not None
    if prompt_bound(wanted) + width <= 4000:
        assert prompt_bound(wanted) + width * most <= room.tokens
    else:
        assert room.tokens == 4000, "who may need more than all runs alone"


@pytest.mark.parametrize("name", BUDGETS)
def test_a_part_of_the_pool_is_never_promised_while_others_run(name: str) -> None:
    cache = Cache(KV[name](watermark=0.1), pool=1000)
    cache.grant(ticket(100, 100))
    assert cache.fits(ticket(600, 101)) is None
    assert cache.fits(ticket(600, 100)) == Room(None, 700)


@pytest.mark.parametrize("name", BUDGETS)
def test_alone_a_ticket_may_have_all(name: str) -> None:
    assert Cache(KV[name](), pool=1000).fits(ticket(500, 500)) == Room(None, 1000)
    assert Cache(KV[name](), pool=1000).fits(ticket(500, 501)) == Room(500, 1000)


@pytest.mark.parametrize("name", BUDGETS)
def test_what_a_client_asks_is_not_cut_while_it_fits(name: str) -> None:
    """Not even if all answers are about as long, and exactly as long."""
    cache = Cache(KV[name](), [3000] * 40, pool=12_000)
    assert cache.fits(ticket(100, 3000)) == Room(None, 3100)
    assert cache.fits(ticket(100, 3000, width=3)) == Room(None, 9100)
    cache = Cache(KV[name](), [10] * 40, pool=12_000)
    assert cache.fits(ticket(100, 3000)) == Room(None, 3100)


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("output", [None, 5, 500])
def test_a_prompt_that_may_be_longer_than_the_pool_runs_alone(
    name: str, output: int | None
) -> None:
    """An estimate of 900 may be 1125 tokens; most are not, and alone it ends nobody else."""
    cache = Cache(KV[name](), pool=1000)
    long = ticket(900, output, input_is_exact=False)
    assert cache.fits(long) == Room(None if output == 5 else 100, 1000)
    cache.grant(long)
    assert cache.fits(ticket(1, 1)) is None


@pytest.mark.parametrize("name", BUDGETS)
def test_a_prompt_of_which_only_the_bytes_are_known_runs_alone_if_they_are_many(name: str) -> None:
    cache = Cache(KV[name](), pool=1000)
    assert cache.fits(ticket(0, 10, input_is_exact=False, size_bytes=5000)) == Room(None, 1000)
    cache.grant(ticket(1, 1))
    assert cache.fits(ticket(0, 10, input_is_exact=False, size_bytes=5000)) is None


@pytest.mark.parametrize("name", BUDGETS)
def test_a_slot_s_own_context_bounds_an_answer_too(name: str) -> None:
    cache = Cache(KV[name](), pool=8000, ctx=1000)
    assert cache.fits(ticket(400, 5000)) == Room(600, 1000)
    # What is estimated may be shorter than its bound, and the rest is for the answer.
    assert cache.fits(ticket(900, 5000, input_is_exact=False)) == Room(100, 1125 + 100)


# Rules of their own.


def test_max_keeps_room_for_all_that_may_be_written() -> None:
    cache = Cache(KV["max"](), [10] * 100, pool=10_000)
    cache.grant(ticket(100, 4900))
    assert cache.fits(ticket(100, 4700)) is None
    assert cache.fits(ticket(100, 4600)) == Room(None, 4700)


def test_quantile_keeps_room_for_nine_answers_of_ten() -> None:
    samples = [100] * 80 + [1000] * 15 + [3000] * 5
    random.Random(1).shuffle(samples)
    cache = Cache(KV["quantile"](), samples, pool=4000)
    histogram = cache.lengths.of(ticket())
    assert histogram is not None
    nine_of_ten = histogram.bound(0.9)
    assert 1000 <= nine_of_ten < 1100
    cache.grant(ticket(4000 - 120 - 100 - nine_of_ten - 1, 1))
    assert cache.fits(ticket(100)) == Room(nine_of_ten, 100 + nine_of_ten)
    assert cache.fits(ticket(101)) is None


def test_chance_gives_what_99_answers_of_100_need_from_room_that_serves_nobody_else() -> None:
    samples = [100] * 860 + [1000] * 125 + [3000] * 15
    random.Random(1).shuffle(samples)
    cache = Cache(ChanceBudget(), samples, pool=10_000, slots=8)
    # A typical request takes 350 tokens: seven others have room, and what they leave is given.
    free = cache.fits(ticket(100))
    assert free is not None
    assert free.output_clamp is not None
    assert free.output_clamp > 3000
    cache.grant(ticket(7000, 1000))
    # 1700 left: most need 100 of them, and three typical others some 1100.
    tight = cache.fits(ticket(100))
    assert tight is not None
    typical = cache.lengths.typical_total()
    assert tight.output_clamp is not None
    assert 90 <= tight.output_clamp < 100 + typical
    assert tight.tokens + 3 * typical <= cache.pool.kv_left


def test_by_the_chance_constraint_the_expected_must_fit_and_its_deviation_too() -> None:
    samples = [100, 500] * 100
    for z, fits in ((0.0, True), (1.0, True), (3.0, False)):
        cache = Cache(ChanceBudget(z=z, watermark=0.0), samples, pool=3000)
        # Three of 450 prompt tokens and 300 of output +- 200: 2250, deviation 346.
        cache.grant(ticket(450, 500))
        cache.grant(ticket(450, 500))
        assert (cache.fits(ticket(450, 500)) is not None) is fits, z


def test_what_was_written_already_is_expected_to_go_on() -> None:
    """A heavy tail: who has written 1000 has not 300 left, but 2000."""
    samples = [100] * 90 + [3000] * 10
    random.Random(1).shuffle(samples)
    cache = Cache(ChanceBudget(watermark=0.0), samples, pool=8000)
    lease = cache.grant(ticket(2000, 3000))
    newcomer = ticket(2500, 400)
    assert cache.fits(newcomer) is not None
    lease.output_tokens = 1000
    assert cache.fits(newcomer) is not None
    more = cache.grant(ticket(100, 100))
    more.output_tokens = 50
    assert cache.fits(ticket(2300, 400)) is not None
    more.waiter.ticket = ticket(900, 100)
    assert cache.fits(ticket(2300, 400)) is None


@pytest.mark.parametrize("name", ["quantile", "chance"])
def test_before_anything_is_known_a_ticket_needs_what_it_asks_or_half_its_share(name: str) -> None:
    cache = Cache(KV[name](), pool=8000, slots=4)
    assert cache.fits(ticket(100, 4000)) == Room(None, 4100)
    room = cache.fits(ticket(100, 5000))
    assert room is not None
    # Beside three others with a quarter each.
    assert room.output_clamp == 8000 - 100 - 3 * 2000
    cache.grant(ticket(4700, 1900))
    # 8000 x 0.97 - 6600 = 1160 are left: half a share is 970.
    least = cache.fits(ticket(100, 5000))
    assert least is not None
    assert least.output_clamp == 7760 // 8
    assert cache.fits(ticket(200, 5000)) is None


def test_without_a_budget_nothing_is_kept() -> None:
    cache = Cache(NoBudget(), pool=100)
    for _ in range(4):
        cache.grant(ticket(100, 100))
    assert cache.pool.kv_left == 100


# Through the scheduler.


class Machine:
    """A scheduler with one shared pool, and what was promised of it in the worst case."""

    def __init__(self, kv: str, *, pool: int, slots: int) -> None:
        self.pool = pool
        self.clock = FakeClock()
        self.scheduler = Scheduler(
            clock=self.clock,
            dice=FakeDice(),
            limits=Limits(settle_bound_seconds=3, max_waiting=50),
            policies=Policies.named(kv=kv, admission="expiry", concurrency="fixed"),
        )
        # Lease id -> its grant; ticket id -> its running lease, and its true prompt.
        self.leases: dict[str, Granted] = {}
        self.running: dict[str, str] = {}
        self.prompts: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.take(self.scheduler.deployment(report(pool, slots)))

    def take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Granted):
                self.leases[decision.lease] = decision
                self.running[decision.ticket.id] = decision.lease
        view = self.scheduler.snapshot().deployment("left")
        held = {lease.id for lease in (*view.running, *view.settling)}
        self.leases = {i: granted for i, granted in self.leases.items() if i in held}
        assert set(self.leases) == held
        if len(held) > 1:
            assert sum(map(self.worst_case, self.leases.values())) <= self.pool

    def worst_case(self, granted: Granted) -> int:
        bounds = [granted.output_clamp, granted.ticket.output_tokens]
        most = min((bound for bound in bounds if bound is not None), default=self.pool)
        prompt = self.prompts.get(granted.lease, prompt_bound(granted.ticket))
        return prompt + granted.ticket.width * most

    def choose(self, index: int) -> str | None:
        return sorted(self.running)[index % len(self.running)] if self.running else None

    def submit(self, tokens: int, output: int | None, width: int, is_exact: bool) -> None:
        now = self.clock.now()
        wanted = ticket(
            tokens, output, width=width, input_is_exact=is_exact, arrival=now, deadline=now + 20
        )
        self.take(self.scheduler.submit(wanted))

    def stream(self, index: int, tokens: int) -> None:
        ticket_id = self.choose(index)
        if ticket_id is None:
            return
        lease_id = self.running[ticket_id]
        granted = self.leases[lease_id]
        counted = 0
        if lease_id not in self.prompts:
            # As long as was thought at most.
            counted = self.prompts[lease_id] = max(1, int(granted.ticket.input_tokens * 0.9))
        self.take(
            self.scheduler.charge(
                ticket_id, input_tokens=counted, cached_tokens=0, output_tokens=tokens
            )
        )

    def leave(self, index: int, how: str) -> None:
        ticket_id = self.choose(index)
        if ticket_id is None:
            return
        del self.running[ticket_id]
        if how == "requeue":
            self.take(self.scheduler.requeue(ticket_id))
        else:
            self.take(self.scheduler.leave(ticket_id, Ending(how)))

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.take(self.scheduler.tick())


events = st.one_of(
    st.tuples(
        st.just("submit"),
        st.integers(1, 700),
        st.one_of(st.none(), st.integers(1, 900)),
        st.sampled_from([1, 1, 1, 2]),
        st.booleans(),
    ),
    st.tuples(st.just("stream"), st.integers(0, 9), st.integers(0, 200)),
    st.tuples(
        st.just("leave"),
        st.integers(0, 9),
        st.sampled_from(["served", "served", "served", "abandoned", "failed", "requeue"]),
    ),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0])),
)


def play(kv: str, steps: list[tuple[Any, ...]]) -> Machine:
    machine = Machine(kv, pool=1500, slots=4)
    for name, *arguments in steps:
        getattr(machine, name)(*arguments)
    return machine


@pytest.mark.parametrize("name", BUDGETS)
@given(steps=st.lists(events, max_size=40))
@settings(max_examples=100, deadline=None)
def test_what_all_may_write_never_exceeds_the_pool(name: str, steps: list[tuple[Any, ...]]) -> None:
    play(name, steps)


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("seed", range(3))
def test_what_all_may_write_never_exceeds_the_pool_in_a_long_life(name: str, seed: int) -> None:
    play(name, list(long_life(seed)))


def long_life(seed: int) -> list[tuple[Any, ...]]:
    dice = random.Random(seed)
    steps: list[tuple[Any, ...]] = []
    for _ in range(400):
        output = dice.choice([None, dice.randint(1, 900)])
        exact = dice.random() < 0.5
        steps.append(("submit", dice.randint(1, 700), output, dice.choice([1, 1, 2]), exact))
        steps.append(("stream", dice.randint(0, 9), dice.randint(1, 200)))
        how = dice.choice(["served", "served", "served", "abandoned", "requeue"])
        steps += [("leave", dice.randint(0, 9), how), ("wait", dice.choice([0.1, 0.5, 3.0]))]
    return steps


def test_without_a_budget_all_may_write_more_than_the_pool() -> None:
    """Negative control: the check can fail."""
    with pytest.raises(AssertionError, match="<= 1500"):
        play("off", [("submit", 500, 400, 1, True)] * 2)


def grants(script: Script) -> list[Granted]:
    return [d for d in script.decisions if isinstance(d, Granted)]


@pytest.mark.parametrize("name", BUDGETS)
def test_four_streams_that_do_not_fit_together_take_turns(name: str) -> None:
    """Of 1536 cells, four of 16 and 480 tokens: llama-server would end all four at token 367."""
    script = Script(report(1536), policies=Policies.named(kv=name, admission="expiry")).run("""
        0  submit a model= tokens=12 output=480   -> granted a on left
        0  submit b model= tokens=12 output=480   -> granted b on left
        0  submit c model= tokens=12 output=480   -> granted c on left
        0  submit d model= tokens=12 output=480
        9  leave b                                -> granted d on left
    """)
    assert [granted.output_clamp for granted in grants(script)] == [None] * 4


@pytest.mark.parametrize("name", ["quantile", "chance"])
def test_four_chats_without_a_bound_do_not_run_one_by_one(name: str) -> None:
    script = Script(report(32_768), policies=Policies.named(kv=name)).run("""
        0  submit a model= tokens=100  -> granted a on left
        0  submit b model= tokens=100  -> granted b on left
        0  submit c model= tokens=100  -> granted c on left
        0  submit d model= tokens=100  -> granted d on left
    """)
    assert all((granted.output_clamp or 0) > 4000 for granted in grants(script))


def test_by_what_they_might_write_four_chats_without_a_bound_run_one_by_one() -> None:
    """Negative control, and why `max` is not the default."""
    Script(report(32_768), policies=Policies.named(kv="max")).run("""
        0  submit a model= tokens=100  -> granted a on left
        0  submit b model= tokens=100
        9  leave a                     -> granted b on left
    """)


def test_what_a_counted_prompt_does_not_take_is_there_for_others() -> None:
    """An estimate of 400 tokens may be 500; a's was 300, and b's 700, which is too much."""
    script = Script(report(1000), policies=Policies.named(kv="max")).run("""
        0  submit a model= tokens=400 output=100  -> granted a on left
        0  submit b model= tokens=400 output=50
        1  charge a input=300                     -> granted b on left
    """)
    assert script.scheduler.snapshot().deployment("left").kv_reserved == 400 + 550
    script.run("2 charge b input=700 -> abort b")
    assert script.scheduler.snapshot().deployment("left").kv_reserved == 400 + 750
    script.run("""
        3  submit c model= tokens=8 output=1
        4  leave b                                -> granted c on left
        5  leave a
        6  leave c
    """)
    assert script.scheduler.snapshot().deployment("left").kv_reserved == 0


# Against a simulated server.

SHORT = {"chat": Kind(5.0, 0.8, 5.0, 0.9), "reason": Kind(4.0, 0.8, 6.3, 0.8)}


def backlog(kv: str, *, pool: int = 3072, knows_prompts: bool = True) -> Backlog:
    policies = Policies.named(kv=kv, fairness="none", admission="expiry")
    return Backlog(policies, pool=pool, waiting=8, kinds=SHORT, knows_prompts=knows_prompts)


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("knows_prompts", [True, False])
def test_no_pool_overflows_with_a_budget(name: str, knows_prompts: bool) -> None:
    outcome = backlog(name, knows_prompts=knows_prompts).run(60)
    assert outcome.kills == 0
    assert outcome.served > 5
    assert outcome.most_held <= 3072


def test_without_a_budget_pools_overflow() -> None:
    """Negative control."""
    outcome = backlog("off").run(60)
    assert outcome.kills > 10
    assert outcome.wasted_part > 0.1


def test_what_is_expected_serves_more_than_what_is_possible() -> None:
    outcomes = []
    for name in ("chance", "max", "off"):
        clients = Backlog(Policies.named(kv=name, fairness="none", admission="expiry"))
        clients.run(150)
        clients.outcome = Outcome()
        outcomes.append(clients.run(60))
    chance, most, off = outcomes
    assert chance.goodput > 1.25 * most.goodput
    assert chance.goodput > off.goodput
    assert chance.cut_part < 0.2  # it still learns


def test_in_a_pool_that_turns_out_smaller_the_youngest_is_stopped_one_at_a_time() -> None:
    Script(report(2000), policies=Policies.named(kv="max")).run("""
        0  submit a model= exact tokens=300 output=300  -> granted a on left
        1  submit b model= exact tokens=300 output=300  -> granted b on left
        2  submit c model= exact tokens=300 output=300  -> granted c on left
        3  deployment left model= kv=1000 ctx=1000
        3  charge a output=60
        4  charge b output=20                           -> abort c kv_pressure
        4  charge a output=60
        5  leave c killed free
        6  charge a output=100
        7  charge b output=280                          -> abort b
        8  leave b killed free
        9  charge a output=80
    """)


# Leases that began before the pool was known.


def reserved(script: Script) -> int:
    return script.scheduler.snapshot().deployment("left").kv_reserved


def three_that_began_before(output: str = "output=200") -> Script:
    return Script(ready("left", slots=4, model="", ctx_per_slot=1000)).run(f"""
        0  submit a model= exact tokens=100 {output}  -> granted a on left
        0  submit b model= exact tokens=100 {output}  -> granted b on left
        0  submit c model= exact tokens=100 {output}  -> granted c on left
        1  charge a input=100 output=50
    """)


def test_a_pool_that_becomes_known_is_kept_for_what_runs() -> None:
    script = three_that_began_before()
    assert reserved(script) == 0
    script.run("2 deployment left model= kv=1000 ctx=1000 slots=4")
    assert reserved(script) == 3 * (100 + 200)
    script.run("""
        3  submit d model= exact tokens=100 output=100
        4  leave b                                -> granted d on left
        5  deployment left model= kv=1000 ctx=1000 slots=4
    """)
    assert reserved(script) == 300 + 300 + 200, "once"
    for ticket_id in "acd":
        script.run(f"6 leave {ticket_id}")
    assert reserved(script) == 0


def test_what_settles_is_kept_for_as_far_as_it_was_written() -> None:
    script = three_that_began_before()
    script.run("""
        2  leave a abandoned
        2  deployment left model= kv=1000 ctx=1000 slots=4
    """)
    assert reserved(script) == 150 + 300 + 300


def test_without_a_budget_nothing_is_kept_later_either() -> None:
    script = Script(ready("left", model=""), policies=Policies.named(kv="off")).run("""
        0  submit a model= exact tokens=100 output=200  -> granted a on left
        1  deployment left model= kv=1000 ctx=1000
    """)
    assert reserved(script) == 0


def test_who_writes_more_than_was_kept_is_kept_more() -> None:
    script = three_that_began_before(output="")
    script.run("2 deployment left model= kv=9000 ctx=9000 slots=4")
    before = reserved(script)
    script.run(f"3 charge a output={before}")
    assert reserved(script) > before + 100 + before


def test_those_that_outgrow_a_pool_are_stopped_before_it_overflows() -> None:
    script = three_that_began_before(output="")
    script.run("2 deployment left model= kv=2000 ctx=2000 slots=4")
    script.run("""
        3  charge b input=100 output=800
        4  charge a output=800                     -> abort a
    """)
    assert script.scheduler.snapshot().deployment("left").kv_reserved > 2000


def test_what_is_kept_by_a_clamp_stays_kept_whatever_is_reported_again() -> None:
    script = Script(report(32_768)).run("0 submit a model= tokens=100  -> granted a on left")
    before = reserved(script)
    assert before > 4000
    script.run("1 deployment left model= kv=32768 ctx=32768 slots=4")
    assert reserved(script) == before


def test_a_deployment_whose_cache_is_full_does_not_keep_a_ticket_from_another() -> None:
    roomy = ready("roomy", slots=8, kv_pool_tokens=1000)
    narrow = ready("narrow", slots=2, kv_pool_tokens=1000)
    Script(roomy, narrow, policies=Policies.named(placement="headroom")).run("""
        0  submit a tokens=900 output=50   -> granted a on roomy
        # The roomy one still has the most free slots.
        0  submit b tokens=500 output=50   -> granted b on narrow
    """)
