"""Which slots are taken for those of requests that are over."""

from __future__ import annotations

from slotgate.runtime.books import DeploymentBooks, RunningLease
from slotgate.runtime.zombies import Zombies


def books_with(**closed_at: float) -> DeploymentBooks:
    books = DeploymentBooks()
    for lease, at in closed_at.items():
        books.granted(RunningLease(lease, 1))
        books.closed(lease, at)
    return books


def test_a_slot_is_a_zombies_when_its_lease_should_have_settled_and_it_is_busy() -> None:
    zombies = Zombies(after_seconds=10)
    books = books_with(a=0.0, b=5.0)
    assert zombies.take_over(books, busy=2, sent_at=9.9) == []
    assert zombies.take_over(books, busy=2, sent_at=10.0) == ["a"]
    assert zombies.slots == 1


def test_there_are_no_more_zombies_than_busy_slots() -> None:
    zombies = Zombies(after_seconds=10)
    books = books_with(a=0.0, b=0.0, c=0.0)
    assert zombies.take_over(books, busy=2, sent_at=20.0) == ["a", "b"]
    assert zombies.take_over(books_with(c=0.0), busy=0, sent_at=20.0) == []


def test_zombies_are_gone_when_their_slots_are_idle() -> None:
    zombies = Zombies(after_seconds=10)
    zombies.take_over(books_with(a=0.0, b=0.0), busy=2, sent_at=20.0)
    assert zombies.looked(processing=3, seen=1) == 1
    assert zombies.looked(processing=2, seen=1) == 1
    assert zombies.slots == 1
    assert zombies.looked(processing=1, seen=1) == 1
    assert zombies.slots == 0


def test_a_server_that_begins_anew_has_none() -> None:
    zombies = Zombies(after_seconds=10)
    zombies.take_over(books_with(a=0.0), busy=1, sent_at=20.0)
    zombies.forget()
    assert zombies.slots == 0
