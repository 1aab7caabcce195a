"""Remedies: what each yields is what planning again says, and each is judged for its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slotgate.capacity.devices import by_hand
from slotgate.capacity.outcomes import Outcome, Remedy, Verdict
from slotgate.capacity.plan import make_plan
from slotgate.capacity.remedies import remedies_of
from slotgate.capacity.replan import Replan
from slotgate.capacity.wish import Wish
from tests.capacity.plans import (
    CARD_24,
    HOST_64,
    GiB,
    MiB,
    catalog_model,
    model_of_meta,
    plan_of,
    tiny_plan,
)
from tests.capacity.truth import meta_of

if TYPE_CHECKING:
    from slotgate.capacity.plan import Plan

_MORE, _QUANTIZE, _SHORTEN, _QUEUE = range(4)
_BIGGER = {"Llama-3.1-8B": (4, 8192), "Gemma-3-27b": (2, 4096), "Qwen3.5-27B": (2, 8192)}


def _remedy(number: int, name: str, devices: Any = CARD_24, **wish: Any) -> Remedy:
    return remedies_of(plan_of(name, devices, **wish))[number]


def _sizes(remedy: Remedy) -> list[tuple[int, int]]:
    return [(one.slots, one.ctx_per_slot) for one in remedy.after]


def test_the_four_questions_come_in_their_order_each_with_a_before_and_an_answer() -> None:
    remedies = remedies_of(plan_of("Llama-3.1-8B", slots=4, ctx_per_slot=8192))
    codes = [remedy.code for remedy in remedies]
    assert codes == ["more-slots", "quantize-cache", "shorten-windows", "queue"]
    for remedy in remedies:
        assert remedy.question.endswith("?")
        assert remedy.answer.endswith(".")
        assert remedy.after
        before = remedy.before
        assert (before.slots, before.ctx_per_slot, before.context_bytes) == (4, 8192, 4 * GiB)


@pytest.mark.parametrize("name", _BIGGER)
def test_every_outcome_is_what_a_plan_of_it_takes(name: str) -> None:
    slots, tokens = _BIGGER[name]
    for remedy in remedies_of(plan_of(name, slots=slots, ctx_per_slot=tokens)):
        for outcome in remedy.after:
            kind = outcome.what.split(",")[0] if remedy.code == "quantize-cache" else "f16"
            plan = plan_of(
                name,
                slots=outcome.slots,
                ctx_per_slot=outcome.ctx_per_slot,
                type_k=kind,
                type_v=kind,
            )
            assert outcome.context_bytes == plan.usage.context_bytes
            assert outcome.fits == plan.fits


@pytest.mark.parametrize("name", _BIGGER)
def test_as_much_as_fits_is_said_and_one_more_would_not(name: str) -> None:
    slots, tokens = _BIGGER[name]
    outcomes = _remedy(_QUANTIZE, name, slots=slots, ctx_per_slot=tokens).after
    for kind, (longest, most) in zip(("q8_0", "q4_0"), (outcomes[:2], outcomes[2:]), strict=True):
        types = {"type_k": kind, "type_v": kind}
        more = plan_of(name, slots=most.slots + 1, ctx_per_slot=tokens, **types)
        assert not more.fits
        if longest.ctx_per_slot < more.usage.memory.n_ctx_train:
            longer = longest.ctx_per_slot + 256
            assert not plan_of(name, slots=slots, ctx_per_slot=longer, **types).fits


def test_twice_the_slots_keep_their_context_if_there_is_room() -> None:
    remedy = _remedy(_MORE, "Llama-3.1-8B", slots=4, ctx_per_slot=8192)
    assert remedy.verdict is Verdict.HELPS
    assert _sizes(remedy) == [(8, 8192)]
    assert remedy.after[0].context_bytes == 2 * remedy.before.context_bytes
    assert "A slot more costs 1.0 GiB" in remedy.answer
    assert "--parallel alone divides what there is: 8 slots of 4,096 tokens" in remedy.answer


def test_where_twice_as_many_have_no_room_it_says_how_many_have() -> None:
    remedy = _remedy(_MORE, "Llama-3.1-8B", slots=12, ctx_per_slot=8192)
    assert remedy.verdict is Verdict.HELPS
    assert _sizes(remedy) == [(24, 8192), (18, 8192)]
    assert [one.fits for one in remedy.after] == [False, True]
    assert "for 18 slots of 8,192 tokens" in remedy.answer


def test_a_full_device_has_no_room_for_more_slots() -> None:
    remedy = _remedy(_MORE, "Llama-3.1-8B")
    assert remedy.verdict is Verdict.NOT_POSSIBLE
    assert not remedy.after[0].fits
    tokens = remedy.before.ctx_per_slot
    assert f"room for 4 slots of {tokens:,} tokens, and for no more" in remedy.answer
    none = _remedy(_MORE, "Llama-3.1-8B", by_hand((6 * GiB,)), slots=8, ctx_per_slot=8192)
    assert "not even room for 1 slot of 8,192 tokens" in none.answer


def test_dividing_alone_is_rounded_up_as_llama_cpp_rounds() -> None:
    # 38,656 / 2 = 19,328, which is no multiple of 256.
    remedy = _remedy(_MORE, "Llama-3.1-8B", slots=4, ctx_per_slot=38656)
    assert "8 slots of 19,456 tokens" in remedy.answer
    pool = _remedy(_MORE, "Llama-3.1-8B", slots=2, ctx_per_slot=4096, unified=True)
    assert "--parallel alone" not in pool.answer
    least = _remedy(_MORE, "Llama-3.1-8B", slots=2, ctx_per_slot=256)
    assert "--parallel alone" not in least.answer


def test_more_slots_than_llama_cpp_holds_are_refused_and_the_limit_is_offered() -> None:
    remedy = _remedy(_MORE, "Llama-3.1-8B", slots=200, ctx_per_slot=256)
    assert "refused, 400 slots: llama.cpp holds from 1 to 256" in str(remedy.after[0])
    assert _sizes(remedy)[1:] == [(256, 256)]
    full = _remedy(_MORE, "Llama-3.1-8B", slots=256, ctx_per_slot=256)
    assert full.verdict is Verdict.NOT_POSSIBLE
    assert "costs" not in full.answer


def test_quantising_helps_a_model_whose_context_is_keys_and_values() -> None:
    remedy = _remedy(_QUANTIZE, "Llama-3.1-8B", slots=4, ctx_per_slot=8192)
    assert remedy.verdict is Verdict.HELPS
    assert [one.what for one in remedy.after] == [
        *("q8_0, same slots", "q8_0, same context", "q4_0, same slots", "q4_0, same context"),
    ]
    assert "q8_0 takes 53 % of the bytes" in remedy.answer
    assert "q4_0 takes 28 % of the bytes" in remedy.answer


def test_quantising_hardly_helps_a_model_of_states() -> None:
    remedy = _remedy(_QUANTIZE, "Granite-4.0-H-Small", slots=8, ctx_per_slot=4096)
    assert remedy.verdict is Verdict.DOES_NOT_HELP
    assert "1.2 GiB of the context are states, which stay f32" in remedy.answer


def test_quantising_is_eaten_by_the_copy_where_there_is_one_layer_to_copy() -> None:
    llama = meta_of("llama")
    meta = {**llama, "llama.block_count": 1}
    plan = make_plan(model_of_meta(meta), CARD_24, Wish(slots=4, ctx_per_slot=8192))
    remedy = remedies_of(plan)[_QUANTIZE]
    saved, eaten = _saved_and_eaten(plan)
    assert 2 * eaten > saved
    assert remedy.verdict is Verdict.DOES_NOT_HELP
    assert "the f16 copy of a layer takes" in remedy.answer
    on_host = make_plan(model_of_meta(meta), HOST_64, Wish(slots=4, ctx_per_slot=8192))
    assert "copy" not in remedies_of(on_host)[_QUANTIZE].answer


def _saved_and_eaten(plan: Plan) -> tuple[int, int]:
    usage = plan.usage
    other = Replan(plan).with_settings(type_k="q4_0", type_v="q4_0")
    assert other is not None
    return (
        usage.context_bytes - other.context_bytes,
        other.compute.planned - usage.compute.planned,
    )


def test_quantising_makes_hardly_more_room_where_all_there_can_be_fits() -> None:
    remedy = _remedy(_QUANTIZE, "Llama-3.1-8B", by_hand((), host_bytes=9000 * GiB), slots=1)
    assert remedy.verdict is Verdict.DOES_NOT_HELP
    assert remedy.answer.endswith("That makes hardly more room.")


def test_types_that_llama_cpp_refuses_say_why() -> None:
    remedies = remedies_of(tiny_plan("falcon", slots=1))
    remedy = remedies[_QUANTIZE]
    assert remedy.verdict is Verdict.NOT_POSSIBLE
    assert [bool(one.refusal) for one in remedy.after] == [True, True]
    assert "q8_0 is refused: K cache type q8_0: its blocks of 32 do not divide" in remedy.answer


def test_what_is_quantised_already_can_only_be_quantised_further() -> None:
    further = _remedy(_QUANTIZE, "Llama-3.1-8B", slots=4, type_k="q8_0", type_v="q8_0")
    assert {one.what.split(",")[0] for one in further.after} == {"q4_0"}
    done = _remedy(_QUANTIZE, "Llama-3.1-8B", slots=4, type_k="q4_0", type_v="q4_0")
    assert done.verdict is Verdict.DOES_NOT_HELP
    assert not done.after
    assert "nothing in this context" in done.answer


def test_half_the_context_gives_twice_the_slots_of_a_plain_model() -> None:
    remedy = _remedy(_SHORTEN, "Llama-3.1-8B", slots=4, ctx_per_slot=8192)
    assert remedy.verdict is Verdict.HELPS
    for outcome, tokens in zip(remedy.after, (4096, 2048), strict=True):
        assert (outcome.ctx_per_slot, outcome.fits) == (tokens, True)
        more = plan_of("Llama-3.1-8B", slots=outcome.slots + 1, ctx_per_slot=tokens)
        assert not more.fits
    assert "instead of 18 slots of 8,192 tokens" in remedy.answer


@pytest.mark.parametrize(
    ("name", "kept"), [("Gemma-3-27b", "window caches"), ("Granite-4.0-H-Small", "states")]
)
def test_half_the_context_hardly_helps_where_windows_or_states_take_the_room(
    name: str, kept: str
) -> None:
    remedy = _remedy(_SHORTEN, name, slots=4, ctx_per_slot=4096)
    assert remedy.verdict is Verdict.DOES_NOT_HELP
    assert f"of {kept} as they are" in remedy.answer


def test_half_the_context_helps_where_nothing_fits_now_but_only_if_something_does_then() -> None:
    card = by_hand((6 * GiB,))
    some = _remedy(_SHORTEN, "Llama-3.1-8B", card, slots=8, ctx_per_slot=8192)
    assert some.verdict is Verdict.HELPS
    assert "instead of no slot of 8,192 tokens" in some.answer
    card = by_hand((5 * GiB,))
    none = _remedy(_SHORTEN, "Llama-3.1-8B", card, slots=8, ctx_per_slot=8192, n_gpu_layers=99)
    assert none.verdict is Verdict.DOES_NOT_HELP
    assert "room for no slot" in none.answer
    assert none.answer.endswith("What else is on the device takes the room.")
    assert str(none.after[0]) == "half the context: no slot fits"


def test_a_smallest_context_cannot_be_halved_and_a_small_one_only_once() -> None:
    least = _remedy(_SHORTEN, "Llama-3.1-8B", slots=2, ctx_per_slot=256)
    assert (least.verdict, least.after) == (Verdict.NOT_POSSIBLE, ())
    small = _remedy(_SHORTEN, "Llama-3.1-8B", slots=2, ctx_per_slot=512)
    assert [one.what for one in small.after] == ["half the context"]


def test_no_shorter_context_gives_more_slots_than_llama_cpp_holds() -> None:
    remedy = _remedy(_SHORTEN, "Llama-3.1-8B", by_hand((), host_bytes=9000 * GiB), slots=1)
    assert remedy.verdict is Verdict.DOES_NOT_HELP
    assert "llama.cpp holds no more" in remedy.answer


def test_a_queue_takes_nothing_of_the_device_and_helps_if_something_runs() -> None:
    remedy = _remedy(_QUEUE, "Llama-3.1-8B", slots=4, ctx_per_slot=8192)
    assert remedy.verdict is Verdict.HELPS
    assert remedy.after[0].context_bytes == remedy.before.context_bytes
    for words in ("4 slots of 8,192 tokens run at once", "about 10 KiB", "9.8 MiB for 1,000"):
        assert words in remedy.answer
    short = _remedy(_QUEUE, "Llama-3.1-8B", slots=64, ctx_per_slot=8192)
    assert short.verdict is Verdict.DOES_NOT_HELP
    assert "must fit first" in short.answer


def test_a_model_without_a_context_is_judged_too() -> None:
    remedies = remedies_of(tiny_plan("bert", slots=1))
    assert remedies[_QUANTIZE].verdict is Verdict.DOES_NOT_HELP
    assert remedies[_QUEUE].verdict is Verdict.HELPS


def test_t5_is_not_given_a_second_slot() -> None:
    remedy = remedies_of(tiny_plan("t5"))[_MORE]
    assert remedy.verdict is Verdict.NOT_POSSIBLE
    assert "t5 with several slots" in remedy.after[0].refusal


def test_an_outcome_reads_as_a_line() -> None:
    fits = Outcome(what="now", slots=1, ctx_per_slot=4096, context_bytes=512 * MiB, fits=True)
    assert str(fits) == "now: 1 slot of 4,096 tokens, 512.0 MiB of context"
    short = Outcome(what="now", slots=2, ctx_per_slot=4096, context_bytes=GiB)
    assert str(short) == "now: 2 slots of 4,096 tokens, 1.0 GiB of context, which does not fit"


def test_what_llama_cpp_would_refuse_is_no_answer_to_what_if() -> None:
    what = Replan(tiny_plan("t5"))
    assert what.with_settings(n_seq=2) is None
    assert (what.more_context(n_seq=2), what.more(n_seq=2)) == (0, 0)
    assert what.largest_context(what.plan.wish, 2) == 0
    assert what.model == tiny_plan("t5").model


def test_a_pool_that_promises_too_much_is_compared_by_what_each_slot_has() -> None:
    remedies = remedies_of(
        make_plan(
            catalog_model("Llama-3.1-8B"), CARD_24, Wish(ctx_size=8192, slots=4, unified=True)
        )
    )
    assert (remedies[_MORE].before.slots, remedies[_MORE].before.ctx_per_slot) == (4, 2048)
    assert _sizes(remedies[_MORE]) == [(8, 2048)]


def test_what_a_slot_cannot_use_is_not_counted_as_its_context() -> None:
    before = _remedy(_MORE, "Llama-3.1-8B", slots=1, ctx_size=262144).before
    assert (before.ctx_per_slot, before.context_bytes) == (131072, 32 * GiB)
