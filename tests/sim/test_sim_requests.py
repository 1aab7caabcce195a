"""What becomes of requests in virtual time, one by one."""

from __future__ import annotations

import random

import pytest

from slotgate.load.backoff import ClientKind
from slotgate.load.record import Outcome
from slotgate.sim.clients import back_off_of
from slotgate.sim.policies import BareServers
from slotgate.sim.requests import Request
from slotgate.sim.spreads import AtRandom, InTurn, Shortest, Spread, Sticky, TwoChoices
from tests.sim.scenes import BARE, arrival, gateway, play, spec, told, ttft


def test_a_request_alone_takes_as_long_as_its_tokens() -> None:
    rehearsal = play(gateway(), arrival(1.0, read=10, write=10))
    (record,) = rehearsal.records
    # Ten tokens are read in 0.1 s, and the first is written with the last of them.
    assert record.ttft == pytest.approx(0.1)
    assert record.tpot == pytest.approx(0.1)
    assert record.ended_at == pytest.approx(2.0)
    assert (record.outcome, record.attempts, record.waited) == (Outcome.SERVED, 1, 0.0)
    assert (record.input_done, record.output_done) == (10, 10)


def test_the_third_of_two_slots_waits_in_the_gateway_and_not_in_the_server() -> None:
    arrivals = [arrival(0.0), arrival(0.0), arrival(0.5)]
    behind = play(gateway(), *arrivals)
    assert behind.records[2].waited == pytest.approx(behind.records[0].ended_at - 0.5)
    assert behind.deferred == 0
    bare = play(BARE, *arrivals)
    assert bare.records[2].ttft == pytest.approx(behind.records[2].ttft)
    assert bare.deferred == 1


def test_who_finds_the_queue_full_is_refused_at_once_and_told_when_to_come_back() -> None:
    arrivals = [arrival(0.0), arrival(0.0), arrival(0.1), arrival(0.2)]
    record = play(gateway(limits={"max_waiting": 1}), *arrivals).records[3]
    assert (record.outcome, record.reason) == (Outcome.REFUSED, "queue_full")
    assert record.refused_after == 0.0
    assert record.retry_after is not None
    assert record.output_done == 0


def test_who_waits_to_its_deadline_expires_in_that_moment() -> None:
    rehearsal = play(gateway(0.7), *[arrival(0.0, write=100)] * 2, arrival(0.5))
    assert told(rehearsal)[2] == "expired 1.20"


def test_a_client_without_patience_leaves_the_queue_and_nothing_is_done_for_it() -> None:
    record = play(gateway(), *[arrival(0.0, write=100)] * 2, arrival(0.5, patience=2.0)).records[2]
    assert (record.outcome, record.ended_at) == (Outcome.ABANDONED, 2.5)
    assert (record.input_done, record.output_done) == (0, 0)


def test_a_bare_server_works_for_clients_that_left_its_queue_long_ago() -> None:
    busy = [arrival(0.0, write=30)] * 2
    left = [arrival(0.1, write=30, patience=1.0)] * 2
    rehearsal = play(BARE, *busy, *left, arrival(0.2))
    assert [record.outcome for record in rehearsal.records[2:4]] == [Outcome.ABANDONED] * 2
    assert sum(record.input_done for record in rehearsal.records[2:4]) > 0
    behind = play(gateway(), *busy, *left, arrival(0.2))
    assert ttft(rehearsal.records[4]) > ttft(behind.records[4])


def test_a_first_token_ends_all_impatience() -> None:
    assert told(play(gateway(), arrival(0.0, write=100, patience=1.0))) == ["served 10.00"]


def test_a_slot_whose_client_left_is_handed_out_when_the_server_has_noticed() -> None:
    leaving = arrival(0.0, write=100, leaves_after=1.03)
    rehearsal = play(gateway(), leaving, arrival(0.5), servers=[spec(slots=1)])
    left, waiting = rehearsal.records
    assert (left.outcome, left.ended_at) == (Outcome.ABANDONED, 1.03)
    # It notices with the next token that it writes, and stops after the pass that runs then.
    assert waiting.waited == pytest.approx(0.7, abs=0.11)
    assert rehearsal.deferred == 0
    assert 10 <= left.output_done <= 12


def test_a_refused_client_comes_back_as_told_and_its_time_counts_from_the_first_attempt() -> None:
    busy = [arrival(0.0, write=15)] * 2
    record = play(
        gateway(limits={"max_waiting": 0}),
        *busy,
        arrival(1.0),
        back_off=lambda attempts, refusal: refusal.retry_after,
    ).records[2]
    assert (record.outcome, record.attempts) == (Outcome.SERVED, 2)
    assert record.retry_after is not None
    assert record.ttft == pytest.approx(record.retry_after + 0.1)
    assert record.last_ttft == pytest.approx(0.1)


def test_a_client_that_nobody_serves_gives_up_as_its_sdk_does() -> None:
    record = play(
        gateway(limits={"max_waiting": 0}),
        *[arrival(0.0, write=900)] * 2,
        arrival(1.0),
        back_off=back_off_of(ClientKind.IGNORING, random.Random(1)),
    ).records[2]
    assert (record.outcome, record.attempts) == (Outcome.REFUSED, 3)
    # Two back-offs of the SDK's own: half a second and a second, less a quarter at most.
    assert 1.0 + 0.375 + 0.75 <= record.ended_at <= 1.0 + 0.5 + 1.0


def test_a_client_that_waits_to_come_back_may_leave_meanwhile() -> None:
    record = play(
        gateway(limits={"max_waiting": 0}),
        *[arrival(0.0, write=900)] * 2,
        arrival(1.0, leaves_after=3.0),
        back_off=lambda attempts, refusal: 10.0,
    ).records[2]
    assert (record.outcome, record.ended_at, record.attempts) == (Outcome.REFUSED, 4.0, 1)


def test_a_prompt_that_fits_no_slot_is_refused_and_its_client_does_not_insist() -> None:
    kind = back_off_of(ClientKind.OPENAI, random.Random(1))
    record = play(gateway(), arrival(0.0, read=2000), back_off=kind).records[0]
    assert (record.outcome, record.attempts) == (Outcome.REFUSED, 1)
    assert record.reason == "context_length_exceeded"


def test_a_slow_reader_takes_long_and_holds_no_slot_meanwhile() -> None:
    slow = arrival(0.0, write=20, reading_rate=1.0)
    first, second = play(gateway(), slow, arrival(0.5), servers=[spec(slots=1)]).records
    assert first.ended_at == pytest.approx(0.1 + 20)
    assert first.tpot == pytest.approx(20 / 19)
    assert second.waited == pytest.approx(1.5)


def test_a_shared_pool_that_overflows_kills_all_streams_and_they_count_as_failed() -> None:
    pool = [spec(slots=4, pool=100, batch=64)]
    rehearsal = play(BARE, *[arrival(0.0, read=10, write=100)] * 4, servers=pool)
    assert {record.outcome for record in rehearsal.records} == {Outcome.FAILED}
    assert all(record.reason == "pool_exhausted" for record in rehearsal.records)
    assert sum(record.output_done for record in rehearsal.records) > 40


def test_the_client_s_own_bound_ends_an_answer() -> None:
    (record,) = play(gateway(), arrival(0.0, write=100, max_tokens=5)).records
    assert (record.outcome, record.output_done) == (Outcome.SERVED, 5)


def test_a_wide_request_takes_several_slots_and_is_served_when_all_answers_are() -> None:
    rehearsal = play(gateway(), arrival(0.0, width=2), arrival(0.1))
    wide, other = rehearsal.records
    assert wide.output_done == 20
    assert other.waited == pytest.approx(0.9)
    assert rehearsal.deferred == 0


def test_slot_time_counts_while_requests_are_offered_and_not_after() -> None:
    assert play(gateway(), arrival(1.0), seconds=10).busy_seconds == pytest.approx(1.0)
    assert play(gateway(), arrival(1.0), seconds=1.5).busy_seconds == pytest.approx(0.5)
    assert play(gateway(), arrival(1.0, width=2), seconds=10).busy_seconds == pytest.approx(2.0)


def test_a_conversation_goes_on_when_it_was_answered() -> None:
    first = arrival(1.0, read=100, session="s", then=arrival(5.0, read=150, session="s"))
    records = play(gateway(), first).records
    assert [record.outcome for record in records] == [Outcome.SERVED, Outcome.SERVED]
    assert records[1].arrival.at == pytest.approx(records[0].ended_at + 5.0)
    # The prompt and its answer of ten tokens are in the slot, less what is no whole word.
    assert records[1].input_done == pytest.approx(40, abs=5)


def test_a_conversation_ends_when_its_client_leaves() -> None:
    first = arrival(0.0, read=900, patience=1.0, then=arrival(5.0))
    assert len(play(gateway(), first).records) == 1


@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        (AtRandom(random.Random(3)), None),
        (TwoChoices(random.Random(3)), None),
        (Shortest(random.Random(3)), [1, 1, 1, 1]),
        (InTurn(), [1, 1, 1, 1]),
        (Sticky(random.Random(3)), [1, 1, 1, 1]),
    ],
)
def test_a_balancer_gives_each_request_to_one_server(
    spread: Spread, expected: list[int] | None
) -> None:
    arrivals = [arrival(0.1 * number) for number in range(4)]
    rehearsal = play(BareServers(spread), *arrivals, servers=[spec(1)] * 4)
    assert all(record.outcome is Outcome.SERVED for record in rehearsal.records)
    loads = [0, 0, 0, 0]
    for number in range(400):
        request = Request(arrival(0.0), number)
        loads[spread.choose(request, loads)] += 1
    if expected is not None:
        assert max(loads) - min(loads) <= 1
    assert all(50 < load < 150 for load in loads)


def test_a_sticky_balancer_waits_for_the_server_of_the_session() -> None:
    arrivals = [arrival(at, session="s") for at in (0.0, 0.1)]
    sticky, shortest = (
        play(BareServers(each), *arrivals, servers=[spec(1)] * 2)
        for each in (Sticky(random.Random(3)), Shortest(random.Random(3)))
    )
    waits = [[record.waited for record in each.records] for each in (sticky, shortest)]
    assert waits == [[0.0, pytest.approx(1.0, abs=0.1)], [0.0, 0.0]]
