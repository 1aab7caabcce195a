"""Faults planted in the turns of models that do not fit together."""

from __future__ import annotations

from tests.core.fault import Fault

FAULTS = [
    Fault(
        "a model is asked for that was not given a seat",
        "pool",
        "        if self.awaits_turn:\n            self.slack = self.headroom = 0\n",
        "",
    ),
    Fault(
        "one model too many is asked for",
        "residency",
        "            if self._others(seeker) >= self.room:\n                return\n",
        "            if self._others(seeker) > self.room:\n                return\n",
    ),
    Fault(
        "a model whose streams end may be unloaded meanwhile",
        "residency",
        "        return self.is_open or not self.pool.is_empty\n",
        "        return self.is_open\n",
    ),
    Fault(
        "a turn never ends",
        "residency",
        "        ends = inf if self.answered_at is None else self.answered_at + turn\n",
        "        ends = inf\n",
    ),
    Fault(
        "a turn may be over before the model is loaded",
        "residency",
        "        ends = inf if self.answered_at is None else self.answered_at + turn\n",
        "        ends = self.opened_at + turn\n",
    ),
    Fault(
        "turns are shorter than loading",
        "residency",
        "        turn = max(turn_seconds, self.load_seconds)\n",
        "        turn = turn_seconds\n",
    ),
    Fault(
        "whoever came last gets the next turn",
        "residency",
        "        return sorted(seekers, key=_WISH)\n",
        "        return sorted(seekers, key=_WISH, reverse=True)\n",
    ),
    Fault(
        "who has left keeps the place in the line",
        "residency",
        "not wants(seat.pool):\n                seat.wanted_since = None\n",
        "not wants(seat.pool):\n                pass\n",
    ),
    Fault(
        "a model is unloaded between two requests of one client",
        "residency",
        "pool.ended_at + min(self.load_seconds, LINGER_SECONDS)",
        "pool.ended_at",
    ),
    Fault(
        "an idle model is waited for as long as it loads",
        "residency",
        "min(self.load_seconds, LINGER_SECONDS)",
        "self.load_seconds",
    ),
    Fault(
        "whoever cannot run keeps the turn",
        "residency",
        "            return self.opened_at + UNUSED_SECONDS\n",
        "            return inf\n",
    ),
    Fault(
        "more are emptied than wait",
        "residency",
        "            if self.room - len(self._opened()) >= needed:\n                break\n",
        "",
    ),
    Fault(
        "the busy are emptied before the idle",
        "residency",
        "        for seat in (*idle, *busy):\n",
        "        for seat in (*busy, *idle):\n",
    ),
    Fault(
        "a router that holds fewer than before empties none",
        "residency",
        "[: max(0, self._surplus)]",
        "[:0]",
    ),
    Fault(
        "nobody hears that a turn is over",
        "scheduler",
        "        self._fleet.turn_over(now)\n",
        "",
    ),
    Fault(
        "nobody hears that a removed model has gone",
        "fleet",
        "                self.stir(mate.model)\n",
        "                pass\n",
    ),
    Fault(
        "what a model held before it was unloaded counts as there",
        "residency",
        "            pool.forget_sessions()\n",
        "            pass\n",
    ),
    Fault(
        "a turn that nobody waits for keeps everybody from waiting",
        "model",
        "if is_alone else turn",
        "if False else turn",
    ),
    Fault(
        "turns are not counted in the wait",
        "model",
        "if is_alone else turn",
        "if is_alone else 0.0",
    ),
]
