"""How often something drastic may be done."""

from __future__ import annotations

from slotgate.core.cooldown import Cooldown


def test_it_may_be_done_again_when_the_cooldown_is_over() -> None:
    cooldown = Cooldown(seconds=10)
    allowed = [now for now in range(0, 35, 5) if cooldown.allows(now)]
    assert allowed == [0, 10, 20, 30]


def test_it_may_be_done_so_often_in_any_hour_and_no_more() -> None:
    cooldown = Cooldown(seconds=0, per_hour=2)
    allowed = [now for now in range(0, 7300, 100) if cooldown.allows(now)]
    assert allowed == [0, 100, 3600, 3700, 7200]


def test_what_was_not_allowed_does_not_count() -> None:
    cooldown = Cooldown(seconds=10)
    assert [cooldown.allows(now) for now in (0, 9, 10)] == [True, False, True]
