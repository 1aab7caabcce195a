"""Durations and sizes."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.capacity.units import MAX_BYTES, format_size
from slotgate.config.units import MAX_SECONDS, format_duration, parse_duration, parse_size


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("10s", 10.0),
        ("250ms", 0.25),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("1.5m", 90.0),
        ("1.2 s", 1.2),
        (" 10s ", 10.0),
        (10, 10.0),
        (0.5, 0.5),
        ("0s", 0.0),
        ("720h", MAX_SECONDS),
    ],
)
def test_a_duration_is_read_as_seconds(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "10", "s", "10 parsecs", "-1s", "1e3s", "10S", "1s2", "\u0663s", "1.s", ".5s", "inf",
     -1, math.nan, math.inf, True, None, [], "9" * 5000 + "s"],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_an_example_of_one(written: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it like 10s, 250ms or 5m"):
        parse_duration(written)


def test_a_duration_beyond_a_month_is_taken_for_a_slip() -> None:
    with pytest.raises(ValueError, match="longer than 30 days"):
        parse_duration("721h")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("256MiB", 256 << 20),
        ("1GB", 10**9),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("10B", 10),
        ("1.5GiB", 3 << 29),
        (512, 512),
        (512.0, 512),
        ("2TB", 2 * 10**12),
    ],
)
def test_a_size_is_read_as_bytes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    "written",
    ["", "10", "MiB", "10 apples", "-1B", "0.3B", 0.5, True, None, {}, math.inf, "9" * 5000 + "B"],
)
def test_what_is_no_size_is_refused_with_an_example_of_one(written: object) -> None:
    with pytest.raises(ValueError, match="is not a size in whole bytes; write it like 256MiB"):
        parse_size(written)


def test_a_size_beyond_a_petabyte_is_taken_for_a_slip() -> None:
    with pytest.raises(ValueError, match="more than 1024TiB"):
        parse_size("1025TiB")


@given(st.floats(min_value=1e-9, max_value=MAX_SECONDS))
def test_a_duration_that_we_write_is_read_again_as_the_same(seconds: float) -> None:
    rounded = round(seconds, 9)
    assert parse_duration(format_duration(rounded)) == rounded


@given(st.integers(min_value=0, max_value=MAX_BYTES))
def test_a_size_that_we_write_is_read_again_as_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.text() | st.integers() | st.floats() | st.binary() | st.none())
def test_anything_else_is_a_value_error_and_nothing_worse(written: object) -> None:
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(ValueError):
            assert parse(written) >= 0
