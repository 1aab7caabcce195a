"""What slots hold, alone and together."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.doctor.checks.context import shared_by
from slotgate.doctor.finding import Severity
from slotgate.runtime.kv_pool import Sharing
from slotgate.wire.models import ListedModel
from tests.doctor.seen import (
    ERROR,
    NOTE,
    OK,
    WARNING,
    found,
    looks,
    only,
    props,
    seen,
    severity,
    slot,
    stated,
)


def of_size(slots: int, tokens: int, **more: Any) -> Any:
    shown = looks(tuple(slot(number, n_ctx=tokens) for number in range(slots)))
    return seen(**({"looks": shown, "props": props(slots=slots, ctx_per_slot=tokens)} | more))


def four_unasked(tokens: int = 8192, **more: Any) -> Any:
    return of_size(4, tokens, **({"sharing": Sharing.PRESUMED} | more))


# Divided.


@pytest.mark.parametrize(
    ("slots", "tokens", "how"),
    [
        (2, 2048, WARNING),
        (2, 4095, WARNING),
        (2, 4096, NOTE),
        (8, 16384, NOTE),
        (2, 32768, OK),
        (1, 2048, None),
    ],
)
def test_the_smaller_the_parts_of_a_context_the_worse(
    slots: int, tokens: int, how: Severity | None
) -> None:
    assert severity("context-divided", of_size(slots, tokens)) is how


def test_what_was_shared_out_is_told_and_how_to_have_it_whole() -> None:
    finding = only("context-divided", of_size(4, 2048, sharing=Sharing.SEPARATE))
    assert "4 slots have 2,048 tokens each, of 8,192" in finding.found
    assert finding.known_by == (
        "GET /slots: 4 slots, n_ctx 2,048, as -np divides -c unless -kvu is given; GET /v1/models: "
        "n_ctx_train 32,768"
    )
    assert finding.mend[0].startswith("-c 32768 -np 4: 8,192 tokens for each")
    assert finding.mend[1].startswith("-c 8192 -np 1:")


def test_a_division_is_told_as_surely_as_it_is_known() -> None:
    guessed = only("context-divided", of_size(2, 2048))
    assert "is most likely divided" in guessed.found
    sure = only("context-divided", of_size(2, 2048, stated=stated("-c 4096 -np 2")))
    assert "The context is divided" in sure.found
    assert sure.known_by.endswith("n_ctx_train 32,768; the flags you gave")


def test_no_slot_is_offered_more_than_the_model_was_trained_for() -> None:
    finding = only("context-divided", of_size(8, 8192))
    assert finding.mend[0].startswith(f"-c {8 * 32768} -np 8: 32,768 tokens for each")


def test_a_division_is_not_told_where_slots_share_or_their_training_is_unknown() -> None:
    assert severity("context-divided", four_unasked(2048)) is None
    assert severity("context-divided", of_size(2, 2048, models=())) is OK
    assert severity("context-divided", of_size(2, 2048, stated=stated(context=1000))) is OK
    assert severity("context-divided", seen(looks=(), props=None)) is None


# Too small.


def test_what_requests_need_decides_alone() -> None:
    assert severity("context-too-small", of_size(2, 8192)) is None
    assert severity("context-too-small", of_size(2, 8192, stated=stated(context=8192))) is OK
    evidence = of_size(4, 8192, stated=stated(context=8193), sharing=Sharing.SEPARATE)
    finding = only("context-too-small", evidence)
    assert finding.severity is ERROR
    assert finding.mend[0].startswith(f"-c {8448 * 4} -np 4:")
    assert finding.mend[1].startswith("-c 32768 -np 3:")


def test_fewer_slots_are_no_way_out_where_one_is_too_small_or_they_share() -> None:
    assert len(only("context-too-small", of_size(2, 512, stated=stated(context=9000))).mend) == 1
    assert len(only("context-too-small", of_size(1, 512, stated=stated(context=600))).mend) == 1
    shared = four_unasked(512, stated=stated(context=600))
    assert len(only("context-too-small", shared).mend) == 1
    unknown = of_size(4, 512, stated=stated(context=600), sharing=None)
    assert len(only("context-too-small", unknown).mend) == 1


# As many as asked for.


@pytest.mark.parametrize(
    ("flags", "how"),
    [("-np 1", WARNING), ("-np 4", None), ("-np -1", None), ("-c 8192", None), (None, None)],
)
def test_slots_that_differ_from_the_flags_are_told(flags: str | None, how: Severity | None) -> None:
    assert severity("slots-differ", of_size(4, 8192, stated=stated(flags))) is how


def test_slots_differ_only_where_they_are_known() -> None:
    told = only("slots-differ", of_size(4, 8192, stated=stated("-np 1")))
    assert told.found == "It was asked for 1 slot, and has 4."
    unknown = seen(looks=(), props=props(slots=None), stated=stated("-np 1"))
    assert severity("slots-differ", unknown) is None
    off = seen(looks=(), stated=stated("-np 8"))
    assert only("slots-differ", off).known_by.startswith("GET /props; -np 8")
    assert severity("slots-differ", seen(has_queue=True, stated=stated("-np 8"))) is None


# Overcommitted.


@pytest.mark.parametrize(
    ("sharing", "how", "words"),
    [
        (Sharing.PRESUMED, WARNING, "probably share"),
        (Sharing.DOUBTED, NOTE, "may share"),
        (Sharing.EMPTIED, WARNING, "4 slots share"),
        (Sharing.EXCEEDED, WARNING, "4 slots share"),
    ],
)
def test_a_shared_pool_is_told_as_surely_as_it_is_known(
    sharing: Sharing, how: Severity, words: str
) -> None:
    finding = only("context-overcommitted", four_unasked(sharing=sharing))
    assert finding.severity is how
    assert words in finding.found
    assert str(sharing) in finding.known_by
    is_guess = sharing in {Sharing.PRESUMED, Sharing.DOUBTED}
    assert any("--flags" in way for way in finding.mend) is is_guess


@pytest.mark.parametrize(
    ("flags", "how", "total"),
    [
        ("-np 4 -c 32768", OK, ""),
        ("-c 8192", WARNING, "8,192 in all"),
        ("-np 4 -kvu -c 16384", WARNING, "16,384 in all"),
        ("-np 4 -kvu -c 32768", OK, ""),
        ("-kvu -np 4 --kv-unified-per-slot 8192", OK, ""),
    ],
)
def test_the_flags_tell_for_certain(flags: str, how: Severity, total: str) -> None:
    finding = only("context-overcommitted", four_unasked(stated=stated(flags)))
    assert finding.severity is how
    assert total in finding.found
    assert "the flags you gave" in finding.known_by
    assert "seem" not in finding.found
    assert not any("--flags" in way for way in finding.mend)


def test_a_pool_of_unknown_size_may_hold_no_more_than_a_slot() -> None:
    finding = only("context-overcommitted", four_unasked())
    assert "perhaps no more" in finding.found
    assert finding.mend[0].startswith("-c 8192 -np 4: divides it, 2,048 for each")


def test_a_pool_is_divided_as_it_is() -> None:
    finding = only("context-overcommitted", four_unasked(stated=stated("-kvu -np 4 -c 16384")))
    assert finding.mend[0].startswith("-c 16384 -np 4: divides it, 4,096 for each")


def test_a_pool_that_nothing_else_bounds_is_as_large_as_a_slot_says() -> None:
    finding = only("context-overcommitted", four_unasked(models=(), stated=stated("")))
    assert "8,192 in all" in finding.found


def test_a_number_of_slots_that_was_asked_for_most_likely_separates_them() -> None:
    finding = only("context-overcommitted", of_size(2, 8192))
    assert finding.severity is NOTE
    assert finding.found.startswith("Whether its 2 slots share one pool of context is not known")
    assert "unless -kvu was given too" in finding.known_by


def test_builds_whose_slots_cannot_share_are_taken_for_that() -> None:
    old = of_size(2, 8192, props=props(build_info="b5000-x"))
    assert severity("context-overcommitted", old) is OK


def test_one_slot_cannot_overflow_and_of_nothing_nothing_is_said() -> None:
    assert severity("context-overcommitted", of_size(1, 8192)) is None
    assert severity("context-overcommitted", of_size(4, 8192, sharing=None)) is None
    assert severity("context-overcommitted", seen(looks=(), props=None)) is None


def test_an_old_build_has_four_slots_only_if_asked() -> None:
    old = four_unasked(props=props(slots=4, build_info="b6000-x"))
    assert shared_by(old) is Sharing.SEPARATE
    assert severity("context-overcommitted", old) is NOTE
    seen_to_share = four_unasked(
        props=props(slots=4, build_info="b6000-x"), sharing=Sharing.EXCEEDED
    )
    assert severity("context-overcommitted", seen_to_share) is WARNING


def test_a_build_is_not_told_of_flags_that_it_lacks() -> None:
    def names_limit(build: str) -> bool:
        evidence = four_unasked(props=props(slots=4, build_info=build))
        ways = only("context-overcommitted", evidence).mend
        return any("--kv-unified-per-slot" in way for way in ways)

    assert names_limit("b11434-x")
    assert names_limit("b0-unknown")
    assert not names_limit("b9000-x")


# Above what was trained.


def test_more_context_than_was_trained_is_told_where_a_build_allows_it() -> None:
    finding = only("context-above-trained", of_size(2, 65536))
    assert finding.severity is WARNING
    assert finding.mend == ("-c 65536 -np 2",)
    assert severity("context-above-trained", of_size(2, 32768)) is OK


def test_a_training_that_was_overridden_does_not_hide_what_the_file_says() -> None:
    models = (ListedModel(id="m", ctx_train=131072),)
    finding = only("context-above-trained", of_size(2, 65536, models=models, trained_in_file=32768))
    assert finding.severity is WARNING
    assert "trained for 32,768" in finding.found
    assert finding.known_by.endswith(
        "GET /v1/models: n_ctx_train 131,072; the model's file: context_length 32,768"
    )
    alone = of_size(2, 65536, models=(), trained_in_file=32768)
    assert severity("context-above-trained", alone) is WARNING


def test_a_training_that_is_no_multiple_of_256_is_rounded_up_as_slots_are() -> None:
    models = (ListedModel(id="m", ctx_train=1000),)
    assert severity("context-above-trained", of_size(2, 1024, models=models)) is OK
    assert severity("context-above-trained", of_size(2, 1280, models=models)) is WARNING


@pytest.mark.parametrize(
    ("flags", "how"),
    [
        ("-c 65536 -np 1", WARNING),
        ("-c 32768 -np 1", OK),
        ("-c 65536 -np 1 --rope-scaling yarn", WARNING),
        ("-np 1", OK),
    ],
)
def test_context_that_no_slot_can_use_shows_in_the_flags_alone(flags: str, how: Severity) -> None:
    assert severity("context-above-trained", of_size(1, 32768, stated=stated(flags))) is how


def test_what_each_slot_can_use_counts_for_every_slot() -> None:
    two = of_size(2, 32768, stated=stated("-c 65536 -np 2"))
    assert severity("context-above-trained", two) is OK


def test_a_slot_may_hold_more_than_was_trained_if_positions_are_stretched() -> None:
    stretched = of_size(2, 65536, stated=stated("-c 131072 -np 2 --rope-scaling yarn"))
    assert severity("context-above-trained", stretched) is OK
    plain = of_size(2, 65536, stated=stated("-c 131072 -np 2"))
    assert severity("context-above-trained", plain) is WARNING


def test_stretched_context_can_be_wasted_too() -> None:
    # What llama-server does with -c 65536 -np 1 --rope-scaling yarn --rope-scale 4 on a model that
    # was trained for 8,192 tokens: it says that it was trained for four times as much.
    evidence = of_size(
        1,
        32768,
        stated=stated("-c 65536 -np 1 --rope-scaling yarn --rope-scale 4"),
        trained_in_file=8192,
    )
    wasted, stretched = found("context-above-trained", evidence)
    assert (wasted.severity, stretched.severity) == (WARNING, OK)
    assert "each stops at 32,768 tokens" in wasted.found
    assert "its positions are stretched" in stretched.found


@pytest.mark.parametrize(("tokens", "is_open"), [(8192, False), (32768, True)])
def test_what_may_be_wasted_without_a_trace_is_said(tokens: int, *, is_open: bool) -> None:
    finding = only("context-above-trained", of_size(2, tokens))
    assert ("no route tells" in finding.found) is is_open
    told = of_size(2, tokens, stated=stated(f"-c {2 * tokens} -np 2"))
    assert "no route tells" not in only("context-above-trained", told).found


def test_wasted_context_is_told_in_numbers() -> None:
    finding = only("context-above-trained", of_size(1, 32768, stated=stated("-c 65536 -np 1")))
    assert finding.leads_to == "Memory is allocated for 65,536 tokens and used for 32,768."
    assert finding.known_by.startswith("GET /slots: 1 slot, n_ctx 32,768")


def test_slots_that_are_off_are_sized_by_props() -> None:
    finding = only("context-above-trained", seen(looks=(), props=props(ctx_per_slot=65536)))
    assert finding.known_by.startswith("GET /props: total_slots 2, n_ctx 65,536")


def test_without_sizes_nothing_is_above() -> None:
    assert severity("context-above-trained", of_size(2, 8192, models=())) is None
    assert severity("context-above-trained", seen(looks=(), props=None)) is None
