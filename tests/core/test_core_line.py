"""The line that can be left from the middle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotgate.core.line import Line


def test_the_smallest_key_is_first_and_stays() -> None:
    line: Line[str] = Line()
    line.join("b", 2, "bee")
    line.join("a", 1, "ay")
    assert (line.first(), line.first_key(), len(line)) == ("ay", 1, 2)
    assert line.first() == "ay"


def test_an_empty_line_has_no_first() -> None:
    line: Line[str] = Line()
    assert (line.first(), line.first_key(), line.get("a"), line.leave("a")) == (None,) * 4


def test_who_leaves_is_not_seen_again() -> None:
    line: Line[str] = Line()
    line.join("a", 1, "ay")
    line.join("b", 2, "bee")
    assert line.leave("a") == "ay"
    assert "a" not in line
    assert (line.first(), line.get("a"), list(line)) == ("bee", None, ["bee"])


def test_who_joins_again_moves() -> None:
    line: Line[str] = Line()
    line.join("a", 1, "ay")
    line.join("b", 2, "bee")
    line.join("a", 3, "ay")
    assert (line.first(), len(line), list(line)) == ("bee", 2, ["bee", "ay"])
    line.join("a", 1, "ay")
    assert line.first() == "ay"
    line.leave("a")
    assert line.first() == "bee"


def test_what_has_left_takes_no_memory_for_long() -> None:
    line: Line[int] = Line()
    line.join("first", -1, -1)
    for n in range(10_000):
        line.join(str(n), n, n)
        line.leave(str(n))
    assert len(line._heap) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from("jjl"), st.sampled_from("abcdefgh"), st.integers(0, 9)),
        max_size=150,
    )
)
def test_a_line_is_a_sorted_dictionary(steps: list[tuple[str, str, int]]) -> None:
    line: Line[str] = Line()
    keys: dict[str, tuple[int, str]] = {}
    for step, name, number in steps:
        if step == "j":
            line.join(name, (number, name), name)
            keys[name] = (number, name)
        else:
            assert line.leave(name) == (name if keys.pop(name, None) else None)
        in_order = sorted(keys, key=lambda name: keys[name])
        assert list(line) == in_order
        assert line.first() == (in_order[0] if in_order else None)
        assert line.first_key() == (keys[in_order[0]] if in_order else None)
