"""What a lease teaches: speeds, gaps by how many write, costs, and lengths of answers."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import Any

import pytest

from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limit import FixedLimit
from slotgate.core.limits import Limits
from slotgate.core.meter import Meter
from slotgate.core.model import Model
from slotgate.core.policies import Policies
from slotgate.core.pool import Lease, SlotPool
from slotgate.core.tenants import Tenants
from slotgate.core.ticket import Ticket
from slotgate.core.waiter import Shape, Waiter
from slotgate.testing import FakeDice

numbers = count(1)


class Bench:
    """A deployment of eight slots, and leases that tell of their tokens."""

    def __init__(self, *, kv_pool_tokens: int | None = None) -> None:
        self.model = Model(
            limits=Limits(), policies=Policies(), dice=FakeDice(), tenants=Tenants({})
        )
        report = DeploymentReport(
            id="left", model="m", slots=8, state=State.READY, kv_pool_tokens=kv_pool_tokens
        )
        self.pool = SlotPool(report, FixedLimit())

    def grant(self, now: float = 0.0, *, clamp: int | None = None, **told: Any) -> Lease:
        given: dict[str, Any] = {"input_tokens": 100, "tenant": "chat"} | told
        ticket = Ticket(id=f"t{next(numbers)}", arrival=now, deadline=inf, **given)
        size = ticket.input_tokens.bit_length() if ticket.input_tokens > 512 else 0
        waiter = Waiter(
            ticket=ticket,
            number=1,
            since=now,
            shape=Shape(ticket.width, 0, size),
            start_by=inf,
        )
        lease = Lease(id=ticket.id, waiter=waiter, pool=self.pool, since=now, output_clamp=clamp)
        self.pool.begin(lease)
        return lease

    def charge(self, lease: Lease, now: float, output: int, *, input: int = 0) -> None:
        Meter(self.model, lease, now).streamed(input, 0, output)

    def gaps(self) -> dict[int, float]:
        return self.pool.speeds.gaps.known()


def test_a_gap_is_the_time_between_tokens_while_so_many_write() -> None:
    bench = Bench()
    a = bench.grant()
    bench.charge(a, 1, 1)
    bench.charge(a, 3, 10)
    assert bench.gaps() == {1: pytest.approx(0.2)}
    b = bench.grant(3)
    bench.charge(b, 4, 1)
    bench.charge(a, 5, 1)
    bench.charge(a, 8, 10)
    bench.charge(b, 8, 5)
    assert bench.gaps()[2] == pytest.approx((0.3 + 0.8) / 2)
    assert bench.pool.speeds.gaps.known(tokens=15) == {2: pytest.approx(0.55)}


def test_each_of_several_sequences_writes_its_part() -> None:
    bench = Bench()
    a = bench.grant(width=2)
    bench.charge(a, 1, 2)
    bench.charge(a, 3, 20)
    assert bench.gaps() == {2: pytest.approx(0.2)}


def test_the_time_to_the_first_token_is_no_gap() -> None:
    bench = Bench()
    a = bench.grant()
    bench.charge(a, 5, 10)
    assert bench.gaps() == {}


def test_while_a_prompt_is_read_and_until_after_gaps_say_nothing() -> None:
    bench = Bench()
    a = bench.grant()
    bench.charge(a, 1, 1)
    b = bench.grant(2)
    bench.charge(a, 3, 1)
    assert bench.gaps() == {}
    bench.charge(b, 4, 1)
    # This stretch began while b was still reading.
    bench.charge(a, 5, 1)
    assert bench.gaps() == {}
    bench.charge(a, 6, 5)
    assert bench.gaps() == {2: pytest.approx(0.2)}


def test_a_prompt_whose_client_leaves_is_read_no_more() -> None:
    bench = Bench()
    a = bench.grant()
    bench.charge(a, 1, 1)
    b, c = bench.grant(1), bench.grant(1)
    bench.pool.settle(b, 1.5)
    bench.pool.end(b, 1.7)
    assert not bench.pool.is_quiet
    bench.pool.end(c, 2)
    assert bench.pool.is_quiet
    bench.charge(a, 3, 1)
    assert bench.gaps() == {}
    bench.charge(a, 4, 5)
    assert bench.gaps() == {1: pytest.approx(0.2)}


def test_a_stretch_in_which_another_number_wrote_says_nothing() -> None:
    bench = Bench()
    a, b = bench.grant(), bench.grant()
    bench.charge(a, 1, 1)
    bench.charge(b, 1, 1)
    bench.charge(a, 2, 5)
    assert bench.gaps() == {}, "when a told last, it was the only one"
    bench.charge(a, 3, 5)
    assert bench.gaps() == {2: pytest.approx(0.2)}
    bench.pool.end(b, 3)
    bench.charge(a, 4, 5)
    assert bench.gaps() == {2: pytest.approx(0.2)}
    bench.charge(a, 5, 10)
    assert bench.gaps()[1] == pytest.approx(0.1)


def test_one_more_of_ten_is_steady_enough() -> None:
    bench = Bench()
    leases = [bench.grant(width=5), bench.grant(width=5)]
    for lease in leases:
        bench.charge(lease, 1, 5)
    bench.charge(leases[0], 2, 25)
    bench.charge(leases[0], 3, 25)
    assert set(bench.gaps()) == {10}
    extra = bench.grant(3)
    bench.charge(extra, 3, 1)
    bench.charge(leases[0], 4, 25)
    assert set(bench.gaps()) == {10, 11}


def test_tokens_at_the_same_moment_have_no_gap() -> None:
    bench = Bench()
    a = bench.grant()
    bench.charge(a, 1, 1)
    bench.charge(a, 1, 10)
    assert bench.gaps() == {}


def test_what_was_used_adds_up() -> None:
    bench = Bench()
    a = bench.grant()
    Meter(bench.model, a, 1).streamed(120, 20, 0)
    Meter(bench.model, a, 2).streamed(0, 0, 3)
    Meter(bench.model, a, 3).streamed(0, 0, 4)
    assert (a.input_tokens, a.cached_tokens, a.output_tokens) == (120, 20, 7)
    assert a.first_token_at == 2
    assert a.prompt_tokens == 120


# What the backend measured itself.


def test_the_backend_s_timings_tell_how_fast_it_reads() -> None:
    bench = Bench()
    a = bench.grant()
    Meter(bench.model, a, 9).timed(1000, 2.0, 0, 0.0)
    assert bench.pool.speeds.prefill == 500
    assert bench.gaps() == {}


def test_until_a_steady_stretch_was_seen_its_mean_gap_stands_in() -> None:
    """As with answers that are not streamed: they tell of all their tokens at once."""
    bench = Bench()
    a = bench.grant()
    bench.charge(a, 9, 101)
    Meter(bench.model, a, 9).timed(0, 0.0, 101, 20.0)
    assert bench.gaps() == {1: pytest.approx(0.2)}
    Meter(bench.model, a, 9).timed(0, 0.0, 101, 40.0)
    assert bench.gaps() == {1: pytest.approx(0.2)}


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 5.0), (0, 0.0), (100, 0.0)])
def test_timings_without_a_gap_say_nothing(tokens: int, seconds: float) -> None:
    bench = Bench()
    a = bench.grant()
    Meter(bench.model, a, 9).timed(0, 0.0, tokens, seconds)
    assert bench.gaps() == {}


def test_what_output_costs_follows_from_both_speeds() -> None:
    """Two write at 0.2 s a token: 0.1 s of the machine, in which it reads 50 tokens."""
    bench = Bench()
    a, b = bench.grant(), bench.grant()
    Meter(bench.model, a, 0).timed(1000, 2.0, 0, 0.0)
    for now in (1, 2, 3):
        bench.charge(a, now, 5)
        bench.charge(b, now, 5)
    assert bench.model.billing.costs.output == pytest.approx(50)


# Answers.


def length_after(bench: Bench, lease: Lease, tokens: int, *, times: int = 25) -> float:
    lease.output_tokens = tokens
    for _ in range(times):
        Meter(bench.model, lease, 9).ended()
    return bench.model.lengths.mean(Ticket(id="q", arrival=0, deadline=1, tenant="chat"))


def test_a_whole_answer_tells_its_length() -> None:
    bench = Bench()
    assert length_after(bench, bench.grant(), 50) == pytest.approx(50, rel=0.05)
    assert bench.model.lengths.typical_total() == pytest.approx(150, rel=0.05)


def test_an_answer_that_went_on_elsewhere_is_as_long_as_both_parts() -> None:
    bench = Bench()
    lease = bench.grant(input_tokens=130)
    lease.waiter.go_on(lease.waiter.ticket, 300, 0.0)
    assert length_after(bench, lease, 20) == pytest.approx(320, rel=0.05)


def test_each_of_several_sequences_has_its_part_of_the_length() -> None:
    bench = Bench()
    assert length_after(bench, bench.grant(width=2), 50) == pytest.approx(25, rel=0.05)


def test_an_answer_without_tokens_tells_nothing() -> None:
    bench = Bench()
    Meter(bench.model, bench.grant(), 9).ended()
    assert bench.model.lengths.seen == 0


@pytest.mark.parametrize("told", [{"clamp": 50}, {"output_tokens": 50}])
def test_an_answer_that_ended_at_its_bound_would_have_been_longer(told: dict[str, Any]) -> None:
    bench = Bench()
    assert length_after(bench, bench.grant(**told), 50) == pytest.approx(100, rel=0.1)


def test_an_answer_that_ended_before_its_bound_is_whole() -> None:
    bench = Bench()
    lease = bench.grant(clamp=51, output_tokens=60)
    assert length_after(bench, lease, 50) == pytest.approx(50, rel=0.05)


def test_the_prompt_that_was_counted_is_what_is_typical() -> None:
    bench = Bench()
    lease = bench.grant()
    lease.input_tokens = 300
    length_after(bench, lease, 50)
    assert bench.model.lengths.typical_total() == pytest.approx(350, rel=0.05)


# The books of a deployment.


def test_a_pool_counts_who_reads_and_who_writes() -> None:
    bench = Bench()
    pool = bench.pool
    long, wide = bench.grant(input_tokens=3000), bench.grant(width=2)
    assert (pool.long_reading, pool.writing, pool.is_quiet) == (3000, 0, False)
    assert long.is_long_read
    assert not wide.is_long_read
    pool.started_writing(long, 1)
    assert (pool.long_reading, pool.writing, pool.is_quiet) == (0, 1, False)
    assert not long.is_long_read
    pool.started_writing(wide, 2)
    assert (pool.writing, pool.is_quiet, pool.quiet_since) == (3, True, 2)
    pool.settle(wide, 3)
    assert pool.writing == 1
    assert list(pool.leases()) == [long, wide]
    pool.end(wide, 4)
    pool.end(long, 4)
    assert pool.writing == 0
    assert pool.is_empty
    assert pool.headroom == 8


def test_a_prompt_that_is_counted_frees_what_it_does_not_take() -> None:
    bench = Bench(kv_pool_tokens=1000)
    kept, free = bench.grant(), bench.grant()
    kept.kv_tokens = 300
    bench.pool.kv_reserved = 300
    bench.charge(kept, 1, 0, input=80)
    # 125 were kept for a prompt of about 100.
    assert kept.kv_tokens == 300 - 45
    assert bench.pool.kv_left == 1000 - 255
    bench.charge(free, 1, 0, input=80)
    assert free.kv_tokens == 0
    assert bench.pool.kv_left == 1000 - 255
