"""What a llama-server was started with is read for what its routes do not tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotgate.doctor.flags import Flags, flags_of, flags_of_names
from slotgate.doctor.stated import parse_flags
from slotgate.errors import ConfigError

GIVEN = "the flags you gave"


def test_what_it_does_not_know_is_passed_over() -> None:
    flags = parse_flags("llama-server -m 'a b.gguf' -c 8192 -np 4 -fa on --api-key s -ngl 99")
    assert flags == Flags(source=GIVEN, ctx_size=8192, parallel=4, shows_key=True)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("--ctx-size 100 --parallel 2", Flags(ctx_size=100, parallel=2)),
        ("-b 512 -cram -1", Flags(batch=512, cache_ram_mib=-1)),
        ("--batch-size 64 --cache-ram 0", Flags(batch=64, cache_ram_mib=0)),
        ("--sleep-idle-seconds 60", Flags(sleep_idle_seconds=60)),
        ("--kv-unified-per-slot 4096", Flags(per_slot=4096)),
        ("-kvu", Flags(kv_unified=True)),
        ("-kvu --no-kv-unified", Flags(kv_unified=False)),
        ("-no-kvu --kv-unified", Flags(kv_unified=True)),
        ("--rope-scaling yarn", Flags(stretches=True)),
        ("--ctx_size 100 --no_kv_unified", Flags(ctx_size=100, kv_unified=False)),
        ("-c 100 -c 200", Flags(ctx_size=200)),
        ("", Flags()),
    ],
)
def test_a_flag_has_a_long_and_a_short_name(text: str, flags: Flags) -> None:
    assert parse_flags(text) == replace(flags, source=GIVEN)


@pytest.mark.parametrize("text", ["-c", "-c many", "--parallel -kvu"])
def test_a_number_that_is_missing_is_told_without_the_rest(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--flags: \S+ is not followed") as raised:
        parse_flags(f"--api-key secret {text}")
    assert "secret" not in str(raised.value)


def test_a_quote_that_is_left_open_is_told() -> None:
    with pytest.raises(ConfigError, match="--flags cannot be read"):
        parse_flags("-m 'a")


@pytest.mark.parametrize(
    ("text", "is_unified"),
    [("", True), ("-np -1", True), ("-np 4", False), ("-np 4 -kvu", True), ("-no-kvu", True)],
)
def test_slots_share_on_request_or_if_nobody_counts_them(text: str, *, is_unified: bool) -> None:
    assert parse_flags(text).is_unified is is_unified


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("-np 4", 4 * 2048),
        ("-c 1000", 1024),
        ("-kvu -np 4 --kv-unified-per-slot 2000", 8192),
        ("-kvu -np 4 -c 4096 --kv-unified-per-slot 2000", 4096),
        ("-kvu -np 4 -c 0 --kv-unified-per-slot 2000", 32768),
        ("-c 0", 2048),
        ("", 2048),
    ],
)
def test_the_flags_tell_what_all_slots_hold_together(text: str, tokens: int) -> None:
    assert parse_flags(text).pool_tokens(4, 2048, 32768) == tokens


def test_a_pool_as_trained_is_not_known_where_the_training_is_not() -> None:
    bounded = parse_flags("-kvu -np 4 -c 0 --kv-unified-per-slot 2000")
    assert bounded.pool_tokens(4, 2000, None) is None
    assert parse_flags("").pool_tokens(4, 2000, None) == 2048


# Variables and files.


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        (
            {"LLAMA_ARG_CTX_SIZE": "100", "LLAMA_ARG_N_PARALLEL": "2"},
            Flags(ctx_size=100, parallel=2),
        ),
        ({"LLAMA_ARG_BATCH": "64", "LLAMA_ARG_CACHE_RAM": "0"}, Flags(batch=64, cache_ram_mib=0)),
        ({"LLAMA_ARG_KV_UNIFIED_PER_SLOT": "4096"}, Flags(per_slot=4096)),
        ({"LLAMA_ARG_KV_UNIFIED": "on"}, Flags(kv_unified=True)),
        ({"LLAMA_ARG_KV_UNIFIED": "false"}, Flags(kv_unified=False)),
        ({"LLAMA_ARG_KV_UNIFIED": "1", "LLAMA_ARG_NO_KV_UNIFIED": ""}, Flags(kv_unified=False)),
        ({"LLAMA_ARG_YARN_ORIG_CTX": "4096"}, Flags(stretches=True)),
        (
            {"c": "100", "kv-unified": "1", "np": "4"},
            Flags(ctx_size=100, kv_unified=True, parallel=4),
        ),
        ({"LLAMA_API_KEY": "sesame", "HOME": "/root", "n": "7"}, Flags()),
    ],
)
def test_variables_and_keys_of_files_stand_for_flags(values: dict[str, str], flags: Flags) -> None:
    assert flags_of_names(values) == flags


def test_words_count_more_than_what_they_are_laid_over() -> None:
    over = flags_of_names({"LLAMA_ARG_CTX_SIZE": "100", "LLAMA_ARG_N_PARALLEL": "2"})
    assert flags_of(["-c", "300"], "here", over) == Flags(source="here", ctx_size=300, parallel=2)


def test_a_variable_that_is_no_number_is_named_without_its_value() -> None:
    with pytest.raises(ConfigError, match="LLAMA_ARG_CTX_SIZE is not") as raised:
        flags_of_names({"LLAMA_ARG_CTX_SIZE": "secret"})
    assert "secret" not in str(raised.value)
