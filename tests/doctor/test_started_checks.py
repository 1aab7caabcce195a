"""Whether it is known what a server was started with, and what that alone shows."""

from __future__ import annotations

import pytest

from slotgate.doctor.evidence import Listener
from slotgate.doctor.flags import Flags
from slotgate.doctor.stated import parse_flags
from tests.doctor.seen import NOTE, OK, WARNING, only, seen, severity, stated

FOUND = Listener(listens_at=("127.0.0.1",), pid=7, program="llama-server", flags=Flags(source="x"))
HIDDEN = Listener(listens_at=("127.0.0.1",), problem="it is another user's", is_hidden=True)
PROXY = Listener(listens_at=("127.0.0.1",), pid=8, program="nginx", problem="it is none")


def test_flags_that_were_read_are_fine() -> None:
    finding = only("flags-read", seen(listener=FOUND))
    assert (finding.severity, finding.known_by) == (OK, "x")


def test_flags_that_could_not_be_read_are_told_with_a_way_out() -> None:
    hidden = only("flags-read", seen(listener=HIDDEN))
    assert hidden.severity is NOTE
    assert hidden.known_by == "the process that listens there: it is another user's"
    assert "as root" in hidden.mend[1]
    proxy = only("flags-read", seen(listener=PROXY))
    assert proxy.known_by == "the process 8 (nginx) that listens there: it is none"
    assert "a proxy" in proxy.mend[1]


def test_flags_are_no_matter_where_they_are_given_or_mean_nothing() -> None:
    assert severity("flags-read", seen(listener=PROXY, stated=stated("-np 2"))) is None
    assert severity("flags-read", seen(listener=PROXY, has_queue=True)) is None
    assert severity("flags-read", seen()) is None


def test_a_key_among_the_words_is_told() -> None:
    assert severity("key-shown", seen(read_flags=Flags(source="x", shows_key=True))) is NOTE
    assert severity("key-shown", seen(stated=stated("--api-key sesame"))) is NOTE
    assert severity("key-shown", seen(read_flags=Flags(source="x"))) is None
    assert severity("key-shown", seen()) is None


@pytest.mark.parametrize("at", ["0.0.0.0", "::", "192.168.0.9"])
def test_a_server_that_listens_to_others_needs_a_key_wherever_it_was_asked(at: str) -> None:
    finding = only("no-key", seen(listener=Listener(listens_at=("127.0.0.1", at))))
    assert finding.severity is WARNING
    assert finding.known_by.endswith(f"; it listens on 127.0.0.1, {at}")


@pytest.mark.parametrize("at", ["127.0.0.1", "::1", "/run/llama.sock"])
def test_a_server_that_listens_to_its_own_machine_needs_none(at: str) -> None:
    finding = only("no-key", seen(listener=Listener(listens_at=(at,))))
    assert finding.severity is OK
    assert "listens to its own machine alone" in finding.found


def test_what_the_operator_says_counts_more_than_what_was_found() -> None:
    read = parse_flags("-np 2 -kvu -c 8192")
    assert severity("context-overcommitted", seen(read_flags=read)) is WARNING
    both = seen(read_flags=read, stated=stated("-np 2 -c 16384"))
    assert severity("context-overcommitted", both) is OK
