"""What a deployment is expected to hold of a session, and what is learned when it does not."""

from __future__ import annotations

import pytest

from slotgate.core.affinity import Prefixes


def serve(prefixes: Prefixes, session: str | None, tokens: int = 1000, *, slots: int = 2) -> None:
    """A request comes alone and goes."""
    stay = prefixes.begin(session, tokens)
    prefixes.keep_only(slots - 1)
    stay.end(f"lease of {session}", tokens)
    prefixes.keep_only(slots)


def test_a_session_finds_what_its_last_request_left() -> None:
    prefixes = Prefixes()
    assert prefixes.expected("s", 500) == 0
    serve(prefixes, "s", 800)
    assert prefixes.expected("s", 1000) == 800
    assert prefixes.expected("s", 500) == 500
    assert prefixes.expected("t", 500) == 0
    stay = prefixes.begin("s", 1000)
    assert (stay.held, stay.expected) == (800, 800)


def test_while_a_request_of_it_runs_another_of_the_session_finds_nothing() -> None:
    prefixes = Prefixes()
    serve(prefixes, "s")
    stay = prefixes.begin("s", 1000)
    assert prefixes.expected("s", 1000) == 0
    stay.end("lease", 1200)
    assert prefixes.expected("s", 2000) == 1200


@pytest.mark.parametrize("other", ["t", None])
def test_the_session_that_was_used_least_recently_gives_up_its_slot(other: str | None) -> None:
    prefixes = Prefixes()
    for session in ("old", "new", other):
        serve(prefixes, session)
    assert prefixes.expected("new", 1000) == 1000
    # It may be in the host's memory.
    assert prefixes.expected("old", 1000) == 500


def test_a_session_that_comes_again_is_the_youngest() -> None:
    prefixes = Prefixes()
    for session in ("a", "b", "a", "c"):
        serve(prefixes, session)
    assert prefixes.expected("a", 1000) == 1000
    assert prefixes.expected("b", 1000) == 500


def test_who_never_says_his_session_is_never_remembered() -> None:
    prefixes = Prefixes()
    for _ in range(3):
        serve(prefixes, None)
    serve(prefixes, "s")
    serve(prefixes, "s")
    assert prefixes.expected("lease of None", 1000) == 0


def test_a_displaced_session_that_comes_back_is_kept_again() -> None:
    prefixes = Prefixes()
    for session in ("a", "b", "c", "a"):
        serve(prefixes, session)
    assert prefixes.expected("a", 1000) == 1000
    assert prefixes.expected("b", 1000) == 500


def test_only_so_many_displaced_sessions_are_remembered() -> None:
    prefixes = Prefixes()
    for number in range(400):
        serve(prefixes, f"s{number}")
    remembered = [n for n in range(400) if prefixes.expected(f"s{n}", 1000)]
    assert remembered == list(range(400 - 2 - 256, 400))


def test_what_is_not_found_is_expected_less_and_what_is_found_more() -> None:
    prefixes = Prefixes()
    serve(prefixes, "s")
    for _ in range(60):
        stay = prefixes.begin("s", 1000)
        stay.found(0)
        stay.end("lease", 1000)
    assert prefixes.expected("s", 1000) < 50
    for _ in range(60):
        stay = prefixes.begin("s", 1000)
        stay.found(1000)
        stay.end("lease", 1000)
    assert prefixes.expected("s", 1000) > 950


def test_kept_and_displaced_sessions_are_learned_of_apart() -> None:
    prefixes = Prefixes()
    for number in range(60):
        for session in ("a", "b", "c"):
            stay = prefixes.begin(session, 1000)
            prefixes.keep_only(1)
            # Of three sessions in two slots the one that comes next has always been displaced.
            stay.found(0)
            stay.end(f"lease {number}", 1000)
            prefixes.keep_only(2)
    assert prefixes.expected("c", 1000) == 1000
    assert prefixes.expected("a", 1000) < 50


def test_the_cache_cannot_hold_more_than_everything() -> None:
    prefixes = Prefixes()
    serve(prefixes, "s")
    prefixes.begin("s", 1000).found(9999)
    serve(prefixes, "s")
    assert prefixes.expected("s", 1000) == 1000


def test_a_prefix_as_short_as_a_template_says_nothing() -> None:
    prefixes = Prefixes()
    serve(prefixes, "s", 40)
    for _ in range(60):
        prefixes.begin("s", 1000).found(0)
        serve(prefixes, "s", 40)
    assert prefixes.expected("s", 1000) == 40
