"""The picture that everything outside looks at."""

from __future__ import annotations

import dataclasses

import pytest

from slotgate.core.deployment import State
from slotgate.testing import Script, ready


def test_a_snapshot_shows_who_is_where() -> None:
    script = Script(ready("left", slots=2, ctx_per_slot=4096), ready("right", model="n")).run("""
        0    submit a                -> granted a on left
        0    submit b                -> granted b on left
        1    submit c bytes=70
        2    submit d bytes=7
        2    submit e model=n        -> granted e on right
        2    submit f model=n
        3    leave b abandoned
    """)
    snapshot = script.scheduler.snapshot()
    assert snapshot.now == 3
    assert not snapshot.is_draining
    assert snapshot.waiting_bytes == 77
    assert [(w.ticket.id, w.position, w.since, w.bypassed) for w in snapshot.waiting] == [
        ("c", 1, 1, 0),
        ("d", 2, 2, 0),
        ("f", 1, 2, 0),
    ]
    left = snapshot.deployment("left")
    assert (left.model, left.slots, left.outside, left.headroom) == ("m", 2, 0, 0)
    assert (left.state, left.reported, left.hold) == (State.READY, State.READY, None)
    assert (left.ctx_per_slot, left.held_for, left.is_removed) == (4096, None, False)
    (running,), (settling,) = left.running, left.settling
    assert (running.ticket.id, running.since, running.settles_by) == ("a", 0, None)
    assert (settling.ticket.id, settling.since, settling.settles_by) == ("b", 0, 33)


def test_positions_are_those_of_service() -> None:
    script = Script(ready("left", slots=2)).run("""
        0  submit a                  -> granted a on left
        0  submit w width=2
        0  submit b                  -> granted b on left
        0  submit c tenant=other
        0  submit d width=2
        0  submit e
        1  requeue b
    """)
    waiting = script.scheduler.snapshot().waiting
    assert [w.ticket.id for w in waiting] == ["w", "c", "b", "d", "e"]
    assert waiting[0].bypassed == 1


def test_a_snapshot_does_not_change() -> None:
    script = Script(ready("left")).run("0 submit a -> granted a on left")
    before = script.scheduler.snapshot()
    script.run("1 leave a")
    assert [lease.ticket.id for lease in before.deployments[0].running] == ["a"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.is_draining = True  # type: ignore[misc]


def test_an_unknown_deployment_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Script(ready("left")).scheduler.snapshot().deployment("right")
