"""A command line of llama-server is read for what its routes do not tell."""

from __future__ import annotations

import pytest

from slotgate.doctor.stated import Flags, parse_flags
from slotgate.errors import ConfigError


def test_what_it_does_not_know_is_passed_over() -> None:
    flags = parse_flags("llama-server -m 'a b.gguf' -c 8192 -np 4 -fa on --api-key s -ngl 99")
    assert flags == Flags(ctx_size=8192, parallel=4)


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
        ("", Flags()),
    ],
)
def test_a_flag_has_a_long_and_a_short_name(text: str, flags: Flags) -> None:
    assert parse_flags(text) == flags


@pytest.mark.parametrize("text", ["-c", "-c many", "--parallel -kvu"])
def test_a_number_that_is_missing_is_told_without_the_rest(text: str) -> None:
    with pytest.raises(ConfigError, match="is not followed by a number") as raised:
        parse_flags(f"--api-key secret {text}")
    assert "secret" not in str(raised.value)


def test_a_quote_that_is_left_open_is_told() -> None:
    with pytest.raises(ConfigError, match="--flags cannot be read"):
        parse_flags("-m 'a")


@pytest.mark.parametrize(
    ("text", "is_unified"),
    [("", True), ("-np -1", True), ("-np 4", False), ("-np 4 -kvu", True), ("-no-kvu", False)],
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
        ("-c 0", 32768),
        ("", 32768),
    ],
)
def test_the_flags_tell_what_all_slots_hold_together(text: str, tokens: int) -> None:
    assert parse_flags(text).pool_tokens(4, 2048, 32768) == tokens


def test_a_pool_as_trained_is_not_known_where_the_training_is_not() -> None:
    assert parse_flags("").pool_tokens(4, 2048, None) is None
