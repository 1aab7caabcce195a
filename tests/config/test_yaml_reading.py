"""YAML with one meaning, and the lines that things stand on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.config.yaml import MAX_FILE_BYTES, Document, parse_yaml, read_yaml
from slotgate.errors import ConfigError


def read(text: str) -> Document:
    return parse_yaml(text.encode(), name="a.yaml")


def complaint_about(content: bytes) -> str:
    try:
        return parse_yaml(content, name="a.yaml").name
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("~", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("no", "no"),
        ("on", "on"),
        ("0:8080", "0:8080"),
        ("190:20:30", "190:20:30"),
        ("010", 10),
        ("0x1F", "0x1F"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("9" * 400, "9" * 400),
        ("|\n  two\n  lines", "two\nlines"),
    ],
)
def test_a_plain_word_has_the_meaning_that_one_expects(written: str, value: object) -> None:
    assert read(f"key: {written}").data == {"key": value}


def test_each_key_remembers_its_line() -> None:
    document = read("a: 1\nb:\n  - c: 2\n\n  - d:\n      e: 3\n")
    assert document.source_of(("a",)) == "a.yaml:1"
    assert document.source_of(("b", 0, "c")) == "a.yaml:3"
    assert document.source_of(("b", 1, "d", "e")) == "a.yaml:6"


def test_what_is_not_in_the_file_is_placed_at_its_nearest_parent() -> None:
    document = read("a: 1\nb:\n  - c: 2\n")
    assert document.source_of(("b", 0, "url")) == "a.yaml:3"
    assert document.source_of(("z",)) == "a.yaml"


def test_a_key_that_stands_twice_is_an_error_that_names_both_lines() -> None:
    with pytest.raises(ConfigError, match=r"a\.yaml:4: queue\.max is set twice, first on line 2"):
        read("queue:\n  max: 1\n  min: 1\n  max: 2\n")


def test_aliases_stand_for_what_they_name() -> None:
    assert read("a: &x {b: 1}\nc: *x\n").data == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [1", "a.yaml:1: not valid YAML"),
        ("a: 1\nb: 2: 3\n", "a.yaml:2: not valid YAML"),
        ("a: *gone", "a.yaml:1: not valid YAML"),
        ("a: \x07", "a.yaml: not valid YAML"),
        ("- a", "a.yaml:1: the file must be a mapping"),
        ("word", "a.yaml:1: the file must be a mapping"),
        ("a: !!python/object:os.system x", "a.yaml:1: YAML tags"),
        ("a: !include x.yaml", "a.yaml:1: YAML tags"),
        ("a: !!set {x}", "a.yaml:1: YAML tags"),
        ("? [a, b]\n: 1", "a.yaml:1: a key must be a word"),
        ("a: &x [*x]", "nested too deeply"),
        ("a: 1\n---\nb: 2", "a.yaml:2: not valid YAML"),
        ("a: " + "[" * 5000, "a.yaml"),
        ("a: " + "[" * 40 + "]" * 40, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_names_the_file_and_the_line(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert why in str(caught.value)


def test_a_small_file_that_stands_for_a_huge_one_is_refused() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    with pytest.raises(ConfigError, match="too deeply or too large"):
        read("\n".join(lines))


def test_an_empty_file_says_nothing() -> None:
    assert read("").data == {}
    assert read("# only a comment\n").data == {}


def test_a_file_that_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a\.yaml: is not UTF-8 text, at byte 3"):
        parse_yaml(b"a: \xff", name="a.yaml")
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        parse_yaml(b" " * (MAX_FILE_BYTES + 1), name="a.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)


def test_the_mark_that_some_editors_write_first_is_no_part_of_a_key() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1", name="a.yaml").data == {"a": 1}


def test_a_later_layer_replaces_a_key_and_its_source() -> None:
    document = read("queue: {max_waiting: 1}\nlog: 5\n")
    document.put(("queue", "max_waiting"), 2, "command line")
    document.put(("log", "level"), "debug", "variable X")
    assert document.data == {"queue": {"max_waiting": 2}, "log": {"level": "debug"}}
    assert document.source_of(("queue", "max_waiting")) == "command line"
    assert document.source_of(("queue",)) == "a.yaml:1"
    assert document.source_of(("log", "level")) == "variable X"


@given(st.text(alphabet=st.sampled_from(list("ab:-[]{}&*!|>?#'\" \n\t,%@`")), max_size=60))
def test_no_text_is_worse_than_a_config_error(text: str) -> None:
    assert complaint_about(text.encode()).startswith("a.yaml")


@given(st.binary(max_size=60))
def test_no_bytes_are_worse_than_a_config_error(content: bytes) -> None:
    assert complaint_about(content).startswith("a.yaml")
