"""One event a line, and nothing that a client said in it."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from slotgate.config import LogSettings
from slotgate.errors import ConfigError
from slotgate.telemetry.events import Event
from slotgate.telemetry.logs import (
    DROPPED,
    MAX_FIELD_CHARACTERS,
    LibraryHandler,
    is_logged,
    log,
    make_logger,
)

SECRET = "tell-me-a-secret"


class Log:
    """A logger and what it wrote."""

    def __init__(self, **settings: Any) -> None:
        self._stream = io.StringIO()
        settings = {"format": "json", "level": "debug", **settings}
        self.logger = make_logger(LogSettings(**settings), self._stream)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def test_an_event_is_one_json_object_a_line() -> None:
    out = Log()
    log(out.logger, Event.READY, address="127.0.0.1:8080", slots=4)
    (line,) = out.lines
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {"event": "ready", "level": "info", "address": "127.0.0.1:8080", "slots": 4}


def test_an_event_is_a_line_for_people() -> None:
    out = Log(format="console")
    log(out.logger, Event.BACKEND_DOWN, backend="left", reason="connection refused")
    assert re.search(
        r"\[warning *\] backend_down +backend=left reason='connection refused'", out.text
    )


def test_an_event_has_the_level_that_it_is_declared_with() -> None:
    out = Log()
    for event in Event:
        log(out.logger, event)
    assert [(line["event"], line["level"]) for line in out.lines] == [
        (event.value, event.level) for event in Event
    ]


def test_below_the_level_nothing_is_written_or_even_looked_at() -> None:
    class Touchy:
        @override
        def __str__(self) -> str:
            raise AssertionError("looked at")

    out = Log(level="warning")
    log(out.logger, Event.REQUEST_GRANTED, ticket=Touchy())
    log(out.logger, Event.REQUEST_SERVED, ticket=Touchy())
    assert out.text == ""
    log(out.logger, Event.REQUEST_FAILED)
    assert [line["event"] for line in out.lines] == ["request_failed"]


def test_whether_an_event_would_be_written_can_be_asked_before() -> None:
    for event in Event:
        assert is_logged(Log(level=event.level).logger, event)
    assert not is_logged(Log(level="info").logger, Event.REQUEST_GRANTED)
    assert not is_logged(Log(level="error").logger, Event.REQUEST_FAILED)


def test_bound_fields_are_in_every_line() -> None:
    out = Log()
    bound = out.logger.bind(ticket="t1", prompt=SECRET)
    log(bound, Event.REQUEST_GRANTED)
    log(bound, Event.REQUEST_GRANTED)
    assert [line["ticket"] for line in out.lines] == ["t1", "t1"]
    assert SECRET not in out.text


@pytest.mark.parametrize("name", [*sorted(DROPPED), "Authorization", "X-API-Key", "PROMPT"])
def test_a_field_that_could_carry_text_or_keys_is_dropped_at_any_depth(name: str) -> None:
    for form in ("json", "console"):
        out = Log(format=form)
        log(out.logger, Event.READY, ok="yes", **{name: SECRET})
        log(out.logger, Event.READY, request={"x": [{name: SECRET}]})
        log(out.logger, Event.READY, request=({name: {"deep": SECRET}},))
        assert SECRET not in out.text
        assert "yes" in out.text


def test_what_is_nested_too_deeply_is_cut_as_text() -> None:
    out = Log()
    log(out.logger, Event.READY, a={"b": {"c": {"d": {"e": {"f": "x" * 5000}}}}})
    assert len(out.text) < 1000


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=4))
def test_no_client_can_write_a_line_of_its_own(fields: dict[str, str]) -> None:
    for form in ("json", "console"):
        out = Log(format=form)
        log(out.logger, Event.READY, data=fields, model="\n".join(fields) + "\r\x1b[31m\u2028")
        assert len(out.text.splitlines()) == 1
        assert out.text.strip("\n").isprintable()


def test_a_long_field_is_cut() -> None:
    out = Log()
    log(out.logger, Event.READY, model="x" * 10_000)
    assert out.lines[0]["model"] == "x" * MAX_FIELD_CHARACTERS + "... (10000 characters)"


def test_a_value_of_any_type_can_be_logged() -> None:
    out = Log()
    log(out.logger, Event.READY, a=None, b=1.5, c={1}, d=b"x", e=ValueError("v"), f=float("nan"))
    line = out.lines[0]
    assert (line["a"], line["b"], line["c"], line["d"], line["e"]) == (None, 1.5, [1], "b'x'", "v")


def test_an_exception_shows_its_place_and_not_what_it_quotes() -> None:
    out = Log()
    try:
        int(SECRET)
    except ValueError:
        log(out.logger, Event.REQUEST_CRASHED, exc_info=True)
    shown = out.lines[0]["exception"]
    assert shown.endswith("ValueError")
    assert "test_logs.py" in shown
    assert SECRET not in shown


def test_an_exception_of_ours_shows_its_message_too() -> None:
    out = Log()
    log(out.logger, Event.REQUEST_CRASHED, exc_info=ConfigError("listen: is missing"))
    assert out.lines[0]["exception"] == "ConfigError: listen: is missing"


def test_what_libraries_log_becomes_an_event_of_ours() -> None:
    out = Log()
    library = logging.getLogger("slotgate.tests.library")
    library.propagate = False
    handler = LibraryHandler(out.logger)
    library.addHandler(handler)
    try:
        library.info("chatter")
        library.warning("%s is odd\nvery", "this")
        library.error("bad")
    finally:
        library.removeHandler(handler)
    assert [(line["level"], line["message"]) for line in out.lines] == [
        ("warning", "this is odd\\nvery"),
        ("error", "bad"),
    ]
    assert {line["library"] for line in out.lines} == {"slotgate.tests.library"}


def test_making_a_logger_changes_nothing_global() -> None:
    before = logging.getLogger().handlers[:], logging.getLogger().level
    Log()
    assert (logging.getLogger().handlers, logging.getLogger().level) == before


@pytest.mark.parametrize("event", Event)
def test_an_event_is_named_in_lower_case_and_said_in_a_sentence(event: Event) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", event.value)
    assert event.value == event.name.lower()
    assert event.sentence.endswith(".")
