"""What a watchdog finds in minutes and hours of virtual time, and above all what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotgate.core.findings import Due, Finding, Kind, Over
from slotgate.core.vitals import Signs, StreamSigns
from slotgate.core.watch_rules import ClockRules, WatchRules
from slotgate.core.watchdog import Watchdog
from tests.core.watched import Watched

TEN_MINUTES = 600.0


# No false alarm.


@pytest.mark.parametrize("knows", [True, False], ids=["measured", "unmeasured"])
@pytest.mark.parametrize("decode", [50.0, 1.0, 0.05], ids=["fast", "slow", "crawling"])
def test_ten_minutes_of_steady_tokens_raise_no_alarm(decode: float, knows: bool) -> None:
    world = Watched(decode=decode, knows=knows)
    for name in "abcd":
        world.ask(name)

    assert world.run(TEN_MINUTES) == []
    assert len(world.streams) == 4


@pytest.mark.parametrize("knows", [True, False], ids=["measured", "unmeasured"])
@pytest.mark.parametrize("shows_progress", [True, False], ids=["progress", "pings"])
def test_all_slots_reading_for_ninety_seconds_raise_no_alarm(
    knows: bool, shows_progress: bool
) -> None:
    world = Watched(prefill=200.0, knows=knows, shows_progress=shows_progress)
    for name in "abcd":
        world.ask(name, read=4500)

    assert world.run(120) == []
    firsts = [stream.first_token_at for stream in world.streams.values()]
    assert max(first for first in firsts if first is not None) >= 90.0


def test_a_stream_of_half_an_hour_is_as_good_as_a_short_one() -> None:
    world = Watched()
    world.ask("a")
    assert world.run(1800) == []


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "outside"])
def test_a_neighbours_prompt_may_stall_those_who_write(is_ours: bool) -> None:
    world = Watched(prefill=100.0, rules=WatchRules(slow_factor=100))
    world.ask("a")
    world.run(60)
    send = world.ask if is_ours else world.ask_behind
    send("b", read=2000)  # one batch of 20 s
    assert world.run(60) == []
    assert "a" in world.streams


def test_a_fork_that_answers_nothing_but_comments_for_an_hour_of_prefill_is_left_alone() -> None:
    world = Watched(prefill=10.0, batch=1 << 16, knows=False, shows_progress=False, is_dumb=True)
    world.ask("a", read=36_000)
    assert world.run(3660) == []
    assert world.streams["a"].first_token_at is not None


def test_a_gateway_that_was_away_blames_nobody() -> None:
    world = Watched()
    for name in "ab":
        world.ask(name)
    world.run(30)
    world.server.wedge(world.now)  # the same machine sleeps
    world.sleep(3600)
    world.server.wedge_after(None, world.now)
    assert world.run(60) == []


def test_a_gateway_whose_loop_lags_blames_nobody() -> None:
    dog = Watchdog("left")
    stream = StreamSigns(lease="a", ticket="a", output_tokens=5, received=500)
    for tick in range(4):
        signs = Signs(now=tick * 60.0, streams=(stream,), gap=0.05, has_slots=False)
        assert dog.tick(signs) == []


def test_a_server_that_has_to_load_its_model_first_gets_the_time() -> None:
    dog = Watchdog("left", WatchRules(quarantines=False))
    asleep = StreamSigns(lease="a", ticket="a", prompt_tokens=100)
    signs = Signs(now=0.0, streams=(asleep,), prefill=100.0, has_slots=False, may_load=True)
    for tick in range(200):
        assert dog.tick(replace(signs, now=float(tick))) == []
    # From its first byte on it is like any other.
    awake = replace(signs, streams=(replace(asleep, received=150),))
    news = [news for tick in range(30) for news in dog.tick(replace(awake, now=200.0 + tick))]
    assert len(news) == 1


def test_a_request_that_is_over_may_still_be_read() -> None:
    dog = Watchdog("left")
    for tick in range(40):
        signs = Signs(now=float(tick), streams=(one("a", 7),), gap=0.05, leaves_reading=True)
        assert dog.tick(signs) == []


def test_what_strangers_read_excuses_a_stall_for_as_long_as_a_backend_may_be_silent() -> None:
    world = Watched(batch=1 << 16, prefill=50.0)
    world.ask("a")
    world.run(30)
    world.ask_behind("b", read=50_000)  # a single batch of 1000 s
    assert world.run(300) == []
    world.run(30)
    assert world.kinds == ["wedged"]


def test_a_client_that_takes_nothing_is_not_the_backends_fault() -> None:
    world = Watched(slots=1)
    world.ask("a")
    world.run(10)
    world.hold("a")
    world.server.wedge(world.now)
    world.is_dumb = False
    assert world.run(TEN_MINUTES) == []


def test_a_stream_whose_slot_moves_without_a_frame_is_alive() -> None:
    """llama-server holds text back that may be part of a stop word or of a call."""
    world = Watched(slots=1)
    world.ask("a", is_whole=True)
    assert world.run(TEN_MINUTES) == []


def test_requests_one_after_the_other_raise_no_alarm() -> None:
    world = Watched(slots=2, decode=40.0)
    for number in range(60):
        world.ask(f"s{number}", read=300, write=100)
        assert world.run(4) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 6000), st.integers(1, 400), st.floats(0, 20), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0.05, 0.5, 5.0, 40.0, 200.0]),
    st.sampled_from([50.0, 400.0, 5000.0]),
    st.booleans(),
    st.booleans(),
)
@example([(1, 2, 0.0, True), (1, 1, 0.0, False)], 0.05, 50.0, True, True)  # 20 s a step
def test_no_healthy_server_is_ever_blamed(
    requests: list[tuple[int, int, float, bool]],
    decode: float,
    prefill: float,
    knows: bool,
    has_slots: bool,
) -> None:
    world = Watched(slots=3, decode=decode, prefill=prefill, knows=knows, has_slots=has_slots)
    for number, (read, write, pause, is_outside) in enumerate(requests):
        free = world.slots - sum(view.is_processing for view in world.server.slots(world.now))
        if free > len([s for s in world.streams.values() if s.signs.received == 0]):
            # Where there is no /slots, others can be neither seen nor excused.
            send = world.ask_behind if is_outside and has_slots else world.ask
            send(f"s{number}", read=read, write=write)
        world.run(pause)
    world.run(120)
    assert [kind for kind in world.kinds if kind != "slow"] == []


# Alarms, and in what time.


def test_a_wedge_amid_the_answers_is_found_in_eleven_seconds() -> None:
    world = Watched()
    for name in "abc":
        world.ask(name)
    world.run(30)
    world.server.wedge(world.now)
    world.run(20)

    [finding] = world.found(Kind.WEDGED)
    assert world.kinds == ["wedged"]
    assert finding.due is Due.QUARANTINE
    assert sorted(finding.tickets) == ["a", "b", "c"]
    assert 10 < finding.now - 30 <= 13
    assert finding.since == pytest.approx(30, abs=1.5)
    assert finding.figures["slots"] in {"open", "timed_out"}
    assert world.dog.quarantined_since == finding.now


def test_a_process_that_stands_still_is_wedged() -> None:
    world = Watched()
    world.ask("a")
    world.run(30)
    world.stop_all()
    world.run(20)
    assert world.kinds == ["wedged"]


def test_a_wedge_within_a_prompt_is_found_when_the_prompt_is_overdue() -> None:
    world = Watched(prefill=200.0, shows_progress=False)
    world.ask("a", read=2000)  # 10 s
    world.run(5)
    world.server.wedge(world.now)
    world.run(120)
    [finding] = world.found(Kind.WEDGED)
    assert 50 < finding.now <= 54  # 10 s + 4 times 10 s


def test_a_prompt_is_read_at_least_as_fast_as_an_answer_is_written() -> None:
    dog = Watchdog("left", WatchRules(quarantines=False))
    stream = StreamSigns(lease="a", ticket="a", prompt_tokens=100, received=150)
    news = []
    for tick in range(60):
        news += dog.tick(Signs(now=float(tick), streams=(stream,), gap=0.05, has_slots=False))
    assert [finding.now for finding in news] == [31.0]  # 10 s + 4 times 100 times 0.05 s


def test_comments_alone_do_not_hide_a_wedge() -> None:
    world = Watched()
    world.ask("a")
    world.run(30)
    world.server.wedge(world.now)
    before = world.streams["a"].signs.received
    world.obeys = False
    world.run(100)
    assert world.kinds == ["wedged"]
    assert (world.streams["a"].signs.received or 0) > (before or 0)


def test_a_wedge_of_unknown_speed_waits_for_the_backends_own_timeout() -> None:
    world = Watched(knows=False)
    world.ask("a")
    world.run(30)
    world.server.wedge(world.now)
    assert world.run(290) == []
    world.run(30)
    assert world.kinds == ["wedged"]


def test_slots_that_show_the_same_figures_again_and_again_are_a_wedge() -> None:
    world = Watched(slots=1)
    world.ask("a")
    world.run(30)
    world.server.slow_down(1e6, world.now)  # it never ends its batch, and answers
    world.run(20)
    [finding] = world.found(Kind.WEDGED)
    assert finding.figures["slots"] == "answered"
    still = finding.figures["still_looks"]
    assert isinstance(still, int)
    assert still >= 2
    world.run(300)  # they go on to show it, which is no reason to send it anything
    assert world.lifted == []


def test_without_slots_all_streams_must_be_overdue() -> None:
    world = Watched(has_slots=False)
    for name in "ab":
        world.ask(name)
    world.run(30)
    world.server.wedge(world.now)
    world.run(20)
    assert world.kinds == ["wedged"]


def test_whoever_has_little_patience_gets_no_verdict_without_evidence() -> None:
    world = Watched(rules=WatchRules(clocks=ClockRules(gap_floor=1.5, gap_factor=2.0)))
    for name in "ab":
        world.ask(name)
    world.run(30)
    world.server.wedge(world.now)
    world.run(10)
    assert world.kinds == ["wedged"]


def one(lease: str, tokens: int, **more: object) -> StreamSigns:
    signs = StreamSigns(lease=lease, ticket=lease, output_tokens=tokens, received=tokens * 150)
    return replace(signs, **more)  # type: ignore[arg-type]


def test_one_stuck_stream_among_others_that_move_is_ended_alone() -> None:
    dog = Watchdog("left")
    news = []
    for tick in range(30):
        streams = (one("a", 7), one("b", 10 + tick))
        signs = Signs(now=float(tick), streams=streams, gap=0.05, has_slots=False)
        news += dog.tick(signs)
    [finding] = news
    assert isinstance(finding, Finding)
    assert (finding.kind, finding.due, finding.tickets) == (Kind.STUCK_WRITING, Due.END, ("a",))
    assert finding.figures["allowed"] == 10.0
    assert finding.now == 11.0
    assert dog.quarantined_since is None


def test_a_prompt_that_is_never_read_while_others_write_is_stuck() -> None:
    dog = Watchdog("left")
    news = []
    for tick in range(60):
        streams = (one("a", 0, prompt_tokens=1000, received=150), one("b", 10 + tick))
        news += dog.tick(
            Signs(now=float(tick), streams=streams, gap=0.05, prefill=200.0, has_slots=False)
        )
    [finding] = news
    assert isinstance(finding, Finding)
    assert (finding.kind, finding.now) == (Kind.STUCK_READING, 31.0)


def test_a_prompt_that_is_overdue_excuses_nobody_any_more() -> None:
    dog = Watchdog("left")
    news = []
    for tick in range(60):
        streams = (
            one("a", 0, prompt_tokens=1000, received=150),
            one("b", 7),
            one("c", 10 + tick),
        )
        signs = Signs(now=float(tick), streams=streams, gap=0.05, prefill=200.0, has_slots=False)
        news += dog.tick(signs)
    found = [(n.kind, n.now) for n in news if isinstance(n, Finding)]
    # The prompt may take 30 s, and from then on the clock of the other runs.
    assert found == [(Kind.STUCK_READING, 31.0), (Kind.STUCK_WRITING, 42.0)]


def test_a_request_that_no_slot_works_for_is_leaked() -> None:
    world = Watched(is_silent=True)
    world.ask("a")
    world.run(15)
    [finding] = world.found(Kind.LEAKED)
    assert finding.tickets == ("a",)
    assert finding.now <= 12
    assert world.kinds == ["leaked"]


def test_a_leaked_lease_beside_one_that_works_is_the_quiet_one() -> None:
    world = Watched()
    world.ask("a")
    world.run(5)
    world.is_silent = True
    world.ask("b")
    world.run(15)
    assert [finding.tickets for finding in world.found(Kind.LEAKED)] == [("b",)]
    assert world.kinds == ["leaked"]


def test_a_server_that_swallows_request_after_request_gets_no_more() -> None:
    world = Watched(is_silent=True)
    world.ask("a")
    world.run(15)
    world.ask("b")
    world.run(15)
    assert world.kinds == ["leaked", "leaked", "swallows"]
    assert world.dog.quarantined_since is not None


def test_two_that_were_swallowed_with_an_answer_between_are_no_reason_to_send_no_more() -> None:
    world = Watched(is_silent=True)
    world.ask("a")
    world.run(15)
    world.is_silent = False
    world.ask("good", write=200)
    world.run(15)
    world.is_silent = True
    world.ask("b")
    world.run(15)
    assert world.kinds == ["leaked", "leaked"]


def test_each_quarantine_for_nothing_lasts_twice_as_long() -> None:
    world = Watched(is_silent=True)
    lengths = []
    for turn in range(4):
        for number in range(2):
            world.ask(f"{turn}-{number}")
        world.run(200)
        lengths.append(world.lifted[-1].now - world.lifted[-1].since)
    assert lengths == pytest.approx([5, 10, 20, 40], abs=2.5)
    assert len(world.lifted) == 4


def test_a_stream_that_moves_ends_the_doubling() -> None:
    world = Watched(is_silent=True)
    for turn in range(3):
        for number in range(2):
            world.ask(f"{turn}-{number}")
        world.run(100)
        world.is_silent = False
        world.ask("good", write=20)
        world.run(10)
        world.is_silent = True
    lengths = [lifted.now - lifted.since for lifted in world.lifted]
    assert lengths == pytest.approx([5, 5, 5], abs=2.5)


# Recovery.


def test_a_quarantine_ends_when_slots_have_shown_twice_that_all_is_well() -> None:
    world = Watched()
    world.ask("a")
    world.run(30)
    world.server.wedge(world.now)
    world.run(60)
    assert world.dog.quarantined_since is not None
    assert world.lifted == []
    world.server.wedge_after(None, world.now)
    recovered = world.now
    world.run(20)
    [lifted] = world.lifted
    assert recovered < lifted.now <= recovered + 10
    assert world.dog.quarantined_since is None
    over = [news for news in world.news if isinstance(news, Over)]
    assert [news.kind for news in over] == [Kind.WEDGED]
    assert world.dog.active == {}


def test_a_second_wedge_is_told_too() -> None:
    world = Watched()
    for _ in range(2):
        world.ask("a")
        world.run(30)
        world.server.wedge(world.now)
        world.run(30)
        world.server.wedge_after(None, world.now)
        world.run(60)
    assert world.kinds == ["wedged", "wedged"]
    assert len(world.lifted) == 2


def test_a_quarantine_does_not_end_while_nothing_answers() -> None:
    world = Watched()
    world.ask("a")
    world.run(30)
    world.stop_all()
    world.run(300)
    assert world.lifted == []
    world = Watched(has_slots=False)
    world.ask("a")
    world.run(30)
    world.stop_all()
    world.run(300)
    assert world.kinds == ["wedged"]


def test_without_slots_an_answer_of_health_is_good_enough() -> None:
    world = Watched(has_slots=False)
    world.ask("a")
    world.run(30)
    world.server.wedge(world.now)
    world.run(30)
    assert len(world.lifted) == 1


def test_nothing_is_quarantined_where_that_is_not_wanted() -> None:
    world = Watched(rules=WatchRules(quarantines=False), obeys=False)
    world.ask("a")
    world.run(30)
    world.server.wedge(world.now)
    world.run(60)
    assert world.kinds == ["wedged"]
    assert world.dog.quarantined_since is None
    world.server.wedge_after(None, world.now)
    world.run(10)
    assert [type(news) for news in world.news] == [Finding, Over]


# What lasts.


@pytest.mark.parametrize(
    ("attribute", "kind", "after"), [("zombies", Kind.ZOMBIES, 0), ("outside", Kind.OUTSIDE, 9)]
)
def test_slots_that_work_for_others_are_told_once_and_once_more_when_free(
    attribute: str, kind: Kind, after: float
) -> None:
    world = Watched()
    world.run(5)
    setattr(world, attribute, 2)
    world.run(100)
    setattr(world, attribute, 0)
    world.run(5)
    found, over = world.news
    assert isinstance(found, Finding)
    assert isinstance(over, Over)
    assert (found.kind, found.due, over.kind) == (kind, Due.ALERT, kind)
    assert found.figures == {"slots": 2}
    assert found.now == pytest.approx(6 + after, abs=1)


def test_outside_work_that_comes_and_goes_is_no_news() -> None:
    world = Watched()
    for _ in range(20):
        world.outside = 1
        world.run(8)
        world.outside = 0
        world.run(3)
    assert world.news == []


def test_compute_errors_in_a_row_put_it_into_quarantine_until_it_answers() -> None:
    world = Watched()
    world.run(2)
    world.errors = 4
    assert world.run(10) == []
    world.errors = 5
    world.run(2)
    [finding] = world.found(Kind.COMPUTE_ERRORS)
    assert finding.figures == {"errors": 5}
    assert world.dog.quarantined_since is not None
    world.run(20)
    assert len(world.lifted) == 1
    # Those are atoned for; five more are not.
    world.errors = 9
    assert world.run(5) == []
    world.errors = 10
    world.run(2)
    assert world.kinds == ["compute_errors", "compute_errors"]


def test_half_the_speed_is_slow_and_is_over_when_it_is_over() -> None:
    world = Watched(decode=40.0)
    for name in "ab":
        world.ask(name)
    world.run(60)
    world.server.slow_down(2.0, world.now)
    world.run(60)
    [finding] = world.found(Kind.SLOW)
    assert world.kinds == ["slow"]
    assert finding.due is Due.ALERT
    assert finding.figures["gap"] == pytest.approx(0.05, rel=0.1)
    assert finding.figures["usual"] == pytest.approx(0.025, rel=0.1)
    assert 20 <= finding.now - 60 <= 35
    world.server.slow_down(1.0, world.now)
    world.run(60)
    assert [type(news) for news in world.news] == [Finding, Over]


def test_more_writers_are_not_slower_than_usual() -> None:
    world = Watched(decode=40.0)
    world.ask("a")
    world.run(60)
    world.server.slow_down(2.0, world.now)
    for name in "bcd":
        world.ask(name)
    world.run(100)
    assert world.news == []


def test_a_pace_that_lasts_becomes_usual() -> None:
    world = Watched(decode=40.0)
    world.ask("a")
    world.run(60)
    world.server.slow_down(3.0, world.now)
    world.run(1000)
    assert [type(news) for news in world.news] == [Finding, Over]


# What others of the same backend show.


def test_an_answer_in_between_shows_that_it_does_not_swallow_all() -> None:
    def swallowed(*, serves: bool) -> list[str]:
        world = Watched(is_silent=True)
        world.ask("a")
        world.run(40)
        world.served += serves
        world.ask("b")
        world.run(40)
        return world.kinds

    assert swallowed(serves=False)[-1] == "swallows"
    assert swallowed(serves=True) == ["leaked", "leaked"]


def test_a_stream_that_is_late_condemns_nothing_where_others_move() -> None:
    world = Watched(obeys=False)
    world.ask("a")
    world.ask("b")
    world.run(30)
    # Nothing more comes of the one, and the control routes do not answer; the other writes on.
    silent = world.streams["a"].signs
    for _ in range(120):
        world.is_dumb = True
        world.run(0.5)
        world.streams["a"].signs = silent
    assert "wedged" not in world.kinds


def test_prompts_that_are_read_together_wait_for_each_other() -> None:
    def overdue_after(others: int) -> float:
        world = Watched(has_slots=False, obeys=False, shows_progress=False)
        world.stop_all()
        world.is_dumb = False
        for number in range(others + 1):
            world.ask(f"s{number}", read=2000)
        while not world.news:
            world.run(1)
        return world.now

    # A prompt of 2,000 tokens takes 10 s to read, of which four are allowed.
    assert overdue_after(0) == pytest.approx(50, abs=5)
    assert overdue_after(2) == pytest.approx(130, abs=5)


def test_a_prompt_that_is_read_slower_than_ever_is_not_stuck_while_its_slot_gets_on() -> None:
    world = Watched(batch=128, shows_progress=False)
    world.server.slow_down(10.0, world.now)
    # A hundred seconds, where fifty are allowed without any sign.
    world.ask("a", read=2000)
    assert world.run(95) == []
