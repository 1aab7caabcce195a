"""Planted faults: where a ticket runs, and what is remembered of its session."""

from __future__ import annotations

from tests.core.fault import Fault

FAULTS = [
    Fault(
        "what is cached makes no difference",
        "pool",
        "return tokens if session is None else tokens - self.prefixes.expected(session, tokens)",
        "return tokens",
    ),
    Fault(
        "a busy machine is as good as an idle one",
        "pool",
        "self._pace = self.speeds.pace(self.busy + 1)",
        "self._pace = self.speeds.pace(1)",
    ),
    Fault(
        "a new deployment is never tried",
        "placement",
        "seconds = tokens * (read or usual_read) + output * (gap or usual_gap)",
        "seconds = tokens * (read or 1.0) + output * (gap or 1.0)",
    ),
    Fault(
        "nobody minds what is being read already",
        "placement",
        "tokens = pool.unread + stalled * unread",
        "tokens = stalled * unread",
    ),
    Fault(
        "reading stalls nobody",
        "placement",
        "stalled = 1 + sum([pool.busy for pool in pools]) / len(pools)",
        "stalled = 1.0",
    ),
    Fault(
        "equals go to the one added last",
        "placement",
        "if seconds < fewest or (seconds == fewest and _PREFERENCE(pool) > _PREFERENCE(best)):",
        "if seconds <= fewest:",
    ),
    Fault(
        "a restart keeps its sessions",
        "pool",
        "        if report.state in _RESTARTING:\n            self.forget_sessions()\n",
        "",
    ),
    Fault(
        "a slot holds any number of sessions",
        "affinity",
        "while len(self._kept) > idle_slots:",
        "while False:",
    ),
    Fault(
        "the youngest session gives up its slot",
        "affinity",
        "oldest = next(iter(self._kept))",
        "oldest = next(reversed(self._kept))",
    ),
    Fault(
        "a busy slot serves its session again",
        "affinity",
        "        self._kept.pop(session, None)\n        self._displaced.pop(session, None)\n",
        "",
    ),
    Fault(
        "nothing is learned from what was not found",
        "meter",
        "lease.stay.found(cached_tokens)",
        "pass",
    ),
    Fault(
        "a prompt that was never read is remembered",
        "pool",
        "return 0 if self.first_token_at is None else self.prompt_tokens + self.written",
        "return self.prompt_tokens + self.written",
    ),
    Fault(
        "the answer is forgotten",
        "pool",
        "return 0 if self.first_token_at is None else self.prompt_tokens + self.written",
        "return 0 if self.first_token_at is None else self.prompt_tokens",
    ),
    Fault(
        "what was read stays to be read",
        "pool",
        "        self.unread -= lease.unread\n",
        "",
    ),
    Fault(
        "the gate counts what is cached",
        "matcher",
        "tokens = pool.unread_of(waiter.ticket)",
        "tokens = waiter.ticket.input_tokens",
    ),
    Fault(
        "a prompt is offered where it does not fit",
        "matcher",
        "and (pool.ctx_per_slot is None or context <= pool.ctx_per_slot)",
        "",
    ),
    Fault(
        "patience has no end",
        "queue",
        "waiter.lingers_until <= now:",
        "waiter.lingers_until <= -1:",
    ),
    Fault(
        "nobody is told when patience ends",
        "scheduler",
        "            self._fleet.next_lingered(),\n",
        "",
    ),
    Fault(
        "who waits does not ask how long that takes",
        "patience",
        "wait is not None and wait < saved",
        "wait is not None",
    ),
    Fault(
        "patience takes all of a budget",
        "patience",
        "patience = min(patience, _PART_OF_BUDGET * (ticket.deadline - ticket.arrival))",
        "patience = min(patience, ticket.deadline - ticket.arrival)",
    ),
    Fault(
        "patience outlasts what it saves",
        "patience",
        "waiter.since + min(patience, _PART_OF_SAVED * saved)",
        "waiter.since + patience",
    ),
    Fault(
        "who lingers does so for what has gone",
        "model",
        "        self.queue.end_lingering(inf)\n",
        "",
    ),
    Fault(
        "a full room keeps places for those who linger",
        "scheduler",
        "if self._limits.affinity_patience and self._room.is_overfull(waiter):",
        "if False:",
    ),
    Fault(
        "who lingers stands in the way of its like",
        "matcher",
        "                self._queue.hold_back(match.waiter, hope.pool.id, hope.until)\n"
        "                continue\n",
        "                match.waiter.lingers_until = hope.until\n"
        "                self._queue.lingering.join("
        "match.waiter.ticket.id, hope.until, match.waiter)\n"
        "                return None\n",
    ),
    Fault(
        "what failed here waits to fail here again",
        "matcher",
        "if shape.awaits is not None or shape.failed_on is not None:",
        "if shape.awaits is not None:",
    ),
    Fault(
        "who begins in an empty queue never lingers",
        "scheduler",
        "return None if match is None or model.matcher.lingers(match, now) else match",
        "return match",
    ),
]
