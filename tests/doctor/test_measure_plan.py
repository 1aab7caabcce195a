"""What may be asked of a server, and what never."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.doctor.evidence import HEALTH, PROPS, SLOTS, Answer, Counted, Trouble
from slotgate.doctor.measure_plan import MeasurePlan, plan_measure
from slotgate.runtime.kv_pool import Sharing
from tests.doctor.seen import GOOD, looks, props, seen, slot, stated

HUNG = {HEALTH: GOOD, PROPS: GOOD, SLOTS: Answer(trouble=Trouble.SILENT, message="no answer")}
BUSY = slot(0, task=1, decoded=5, tokens=100)
BUSY_TOO = slot(1, task=2, decoded=5, tokens=100)


def plan(*, is_forced: bool = False, **more: Any) -> MeasurePlan | str:
    return plan_measure(seen(**more), is_forced=is_forced)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"props": None}, "only a llama-server"),
        ({"has_queue": True}, "only a llama-server"),
        ({"props": props(is_sleeping=True), "looks": ()}, "it sleeps"),
        ({"answers": HUNG, "looks": ()}, "GET /slots had no answer"),
        ({"props": props(slots=None), "looks": ()}, "neither slots nor context"),
        ({"looks": looks((slot(0, n_ctx=100), slot(1, n_ctx=100)))}, "too little context"),
    ],
)
def test_some_servers_are_never_asked(more: dict[str, Any], why: str) -> None:
    told = plan(is_forced=True, **more)
    assert isinstance(told, str)
    assert told.startswith("nothing was asked: ")
    assert why in told


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"looks": looks((BUSY, BUSY_TOO))}, "all slots are busy"),
        ({"counted": Counted(processing=2, deferred=1)}, "all slots are busy"),
        ({"looks": (), "counted": Counted(processing=2)}, "all slots are busy"),
        ({"looks": ()}, "cannot be seen"),
        ({"looks": (), "counted": Counted()}, "cannot be seen"),
    ],
)
def test_a_busy_server_is_asked_only_by_force(more: dict[str, Any], why: str) -> None:
    told = plan(**more)
    assert isinstance(told, str)
    assert why in told
    forced = plan(is_forced=True, **more)
    assert isinstance(forced, MeasurePlan)
    assert forced.prompt_tokens


def test_an_idle_server_is_asked_for_a_default_batch() -> None:
    assert plan() == MeasurePlan(stream_tokens=512, prompt_tokens=2048)
    free = plan(looks=(), counted=Counted(processing=0, deferred=0))
    assert free == MeasurePlan(stream_tokens=512, prompt_tokens=2048)


def test_where_one_slot_is_free_no_prompt_is_sent_beside() -> None:
    one = plan(looks=looks((BUSY, slot(1))))
    assert one == MeasurePlan(stream_tokens=512, prompt_tokens=0)


def test_slots_of_their_own_are_not_overfilled() -> None:
    small = looks((slot(0, n_ctx=512), slot(1, n_ctx=512)))
    told = plan(looks=small, stated=stated("-c 1024 -np 2"))
    assert told == MeasurePlan(stream_tokens=256, prompt_tokens=496)


def test_slots_that_may_share_are_asked_for_no_more_than_one_of_them_holds() -> None:
    small = looks((slot(0, n_ctx=512), slot(1, n_ctx=512)))
    assert plan(looks=small) == MeasurePlan(stream_tokens=128, prompt_tokens=256)


@pytest.mark.parametrize("sharing", [Sharing.PRESUMED, Sharing.DOUBTED, Sharing.EMPTIED, None])
def test_a_shared_pool_is_left_room_for_those_who_work(sharing: Sharing | None) -> None:
    quiet = looks((slot(0, n_ctx=2048), slot(1, n_ctx=2048), slot(2, n_ctx=2048)))
    assert plan(looks=quiet, sharing=sharing) == MeasurePlan(stream_tokens=512, prompt_tokens=1024)
    busy = slot(0, n_ctx=2048, task=1, decoded=3, tokens=512)
    worked = looks((busy, slot(1, n_ctx=2048), slot(2, n_ctx=2048)))
    assert plan(looks=worked, sharing=sharing) == MeasurePlan(stream_tokens=256, prompt_tokens=512)
    full = slot(0, n_ctx=2048, task=1, decoded=3, tokens=1400)
    crowded = looks((full, slot(1, n_ctx=2048), slot(2, n_ctx=2048)))
    assert "too little context" in str(plan(looks=crowded, sharing=sharing))


def test_a_slot_that_tells_no_tokens_counts_for_what_it_may_write() -> None:
    mute = slot(0, n_ctx=2048, task=1)
    found = plan(looks=looks((mute, slot(1, n_ctx=2048), slot(2))), sharing=Sharing.PRESUMED)
    assert found == MeasurePlan(stream_tokens=384, prompt_tokens=768)


def test_unseen_slots_hold_nothing_that_is_known() -> None:
    found = plan(looks=(), counted=Counted(processing=0), sharing=Sharing.PRESUMED)
    assert found == MeasurePlan(stream_tokens=512, prompt_tokens=2048)


@pytest.mark.parametrize(("rate", "tokens"), [(None, 128), (1.0, 128), (50.0, 500), (1e6, 2048)])
def test_the_long_prompt_is_no_longer_than_can_be_read_in_ten_seconds(
    rate: float | None, tokens: int
) -> None:
    assert MeasurePlan(stream_tokens=9, prompt_tokens=2048).long_tokens(rate) == tokens
    assert MeasurePlan(stream_tokens=9, prompt_tokens=100).long_tokens(rate) == 100


def test_what_will_be_asked_is_said() -> None:
    both = MeasurePlan(stream_tokens=512, prompt_tokens=2048).describe(60.0)
    assert both == (
        "a stream of at most 512 tokens, and beside it prompts of 128 and at most 2,048 tokens, "
        "each answered by one; in two slots, for at most 60 s; after them, one token"
    )
    alone = MeasurePlan(stream_tokens=512, prompt_tokens=0).describe(60.0)
    assert (
        alone
        == "a stream of at most 512 tokens, in one slot, for at most 60 s; after it, one token"
    )
