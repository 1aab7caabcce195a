"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.capacity.units import MAX_BYTES, format_size, parse_bytes, read_size, show_bytes
from slotgate.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("24GiB", 24 << 30),
        ("24 GB", 24 * 10**9),
        ("24gib", 24 << 30),
        ("512MiB", 512 << 20),
        ("1.5GiB", 3 << 29),
        (" 2 TiB ", 2 << 40),
        ("64KiB", 65536),
        ("64kB", 64000),
        ("10B", 10),
        ("0GiB", 0),
        ("1024TiB", MAX_BYTES),
    ],
)
def test_a_size_with_a_named_unit_is_read_as_bytes(written: str, size: int) -> None:
    assert parse_bytes(written) == size


def test_a_part_of_a_byte_is_dropped() -> None:
    assert parse_bytes("23.6GiB") == 25340307046  # and 0.4


@pytest.mark.parametrize(
    ("written", "either", "other"),
    [
        ("24G", "24GB (10^9 bytes each)", "24GiB (2^30 bytes each)"),
        ("1.5g", "1.5GB (10^9 bytes each)", "1.5GiB (2^30 bytes each)"),
        ("512 M", "512MB (10^6 bytes each)", "512MiB (2^20 bytes each)"),
        ("64k", "64kB (10^3 bytes each)", "64KiB (2^10 bytes each)"),
        ("2T", "2TB (10^12 bytes each)", "2TiB (2^40 bytes each)"),
        ("24Gi", "24GB (10^9 bytes each)", "24GiB (2^30 bytes each)"),
        ("24", "24GB (10^9 bytes each)", "24GiB (2^30 bytes each)"),
    ],
)
def test_a_size_that_could_mean_two_is_refused_with_both(
    written: str, either: str, other: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_bytes(written)
    assert str(refused.value) == f"'{written}' could mean {either} or {other}; write which"


def test_a_bare_number_of_bytes_is_told_how_to_say_so() -> None:
    with pytest.raises(ConfigError, match="has no unit; write 25769803776B if it is bytes"):
        parse_bytes("25769803776")


@pytest.mark.parametrize(
    "written", ["", "GiB", "24 apples", "-1GiB", "1e3GiB", "24,5GiB", "٢٤GiB", "9" * 5000]
)
def test_what_is_no_size_is_refused_with_an_example_of_one(written: str) -> None:
    with pytest.raises(ConfigError, match="is not a size; write it like 24GiB or 24GB") as refused:
        parse_bytes(written)
    assert len(str(refused.value)) < 120


def test_a_size_beyond_a_petabyte_is_taken_for_a_slip() -> None:
    with pytest.raises(ConfigError, match="'1025TiB' is more than 1024TiB"):
        parse_bytes("1025TiB")


def test_bytes_are_shown_to_one_decimal_in_the_unit_asked_for() -> None:
    assert show_bytes(25125558681) == "23.4 GiB"
    assert show_bytes(600 << 20, "MiB") == "600.0 MiB"
    assert show_bytes(24 * 10**9, "GB") == "24.0 GB"
    assert show_bytes(1536, "B") == "1536 B"
    assert show_bytes(-(3 << 29)) == "-1.5 GiB"


def test_sizes_are_written_in_the_largest_unit_that_divides_them() -> None:
    assert [format_size(n) for n in (0, 1000, 1 << 10, 1 << 20, 3 << 29)] == [
        "0B", "1000B", "1KiB", "1MiB", "1536MiB",
    ]  # fmt: skip


@given(st.integers(min_value=0, max_value=MAX_BYTES))
def test_a_size_that_we_write_is_read_again_as_the_same(size: int) -> None:
    assert parse_bytes(format_size(size)) == size == read_size(format_size(size))


@given(st.text())
def test_anything_else_is_a_config_error_and_nothing_worse(written: str) -> None:
    with contextlib.suppress(ConfigError):
        assert 0 <= parse_bytes(written) <= MAX_BYTES
