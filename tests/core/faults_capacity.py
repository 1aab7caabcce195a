"""Planted faults in lengths, speeds, limits, KV budgets, forecasts, and in who fits where."""

from __future__ import annotations

from tests.core.fault import Fault

FAULTS = [
    # Lengths and speeds.
    Fault(
        "a cut answer is taken for a whole one",
        "meter",
        "is_cut=lease.written >= min(lease.output_bound, ticket.output_tokens or inf)",
        "is_cut=False",
    ),
    Fault(
        "what was cut is lost",
        "lengths",
        "uncut[twice] = uncut.get(twice, 0.0) + everybody * max(0.0, alive)",
        "pass",
    ),
    Fault(
        "an answer is always nearly done",
        "lengths",
        "total = sums - written * counts + own * own_left + at_bound",
        "total = sums - written * counts - 0.5 * written * counts + own * own_left + at_bound",
    ),
    Fault(
        "old answers do not fade",
        "lengths",
        "        self._weight /= _FADE\n",
        "        self._weight /= 1.0\n",
    ),
    Fault(
        "gaps count although a prompt was read",
        "meter",
        "not pool.is_quiet or pool.quiet_since > lease.metered_at",
        "False",
    ),
    Fault(
        "each sequence is taken to write all tokens",
        "meter",
        "self._observe_gap(output_tokens / lease.width)",
        "self._observe_gap(output_tokens)",
    ),
    # Limits.
    Fault("a limit flaps", "limit", "_AGREEING = 3", "_AGREEING = 1"),
    Fault(
        "all that was seen beyond the limit is forgotten at once",
        "limit",
        "if beyond is None or found != self._limit or found not in known:",
        "if beyond is None:",
    ),
    Fault(
        "a limit is never tried again",
        "limit",
        "if now - gaps.seen_at(beyond) <= self._believed:",
        "if True:",
    ),
    Fault(
        "a limit moves for any difference",
        "limit",
        "_ERRORS = 2.0",
        "_ERRORS = 0.0",
    ),
    Fault(
        "what is in vain is tried as often as ever",
        "limit",
        "self._believed = beyond, min(2 * self._believed, _MOST_BELIEVED_SECONDS)",
        "self._believed = beyond, self._believed",
    ),
    Fault(
        "errors of gaps shrink too far",
        "speeds",
        "(1 - part) ** 2 * self._share + part**2",
        "(1 - part) ** 2 * self._share",
    ),
    # KV budgets.
    Fault(
        "a settling lease's tokens are free",
        "pool",
        "        self.settling[lease.id] = self.running.pop(lease.id)\n",
        "        self.settling[lease.id] = self.running.pop(lease.id)\n"
        "        self.kv_reserved -= lease.kv_tokens\n"
        "        lease.kv_tokens = 0\n",
    ),
    Fault(
        "an estimate is taken for exact",
        "kv_budget",
        "return ceil(ticket.input_tokens * _ESTIMATE_MARGIN)",
        "return ticket.input_tokens",
    ),
    Fault(
        "one sequence's output is kept for all",
        "kv_budget",
        "return Room(_clamp(ticket, output), prompt + ticket.width * output)",
        "return Room(_clamp(ticket, output), prompt + output)",
    ),
    Fault(
        "a clamp is not told",
        "kv_budget",
        "return None if asks is not None and output >= asks else output",
        "return None if asks is not None else output",
    ),
    Fault(
        "what runs is not expected to write more",
        "kv_budget",
        "expected += lease.width * (lease.written + rest.mean)",
        "expected += lease.width * lease.written",
    ),
    Fault(
        "too long a prompt never runs",
        "kv_budget",
        "if pool.is_empty and budget - prompt < ticket.width:",
        "if False:",
    ),
    # Who fits where.
    Fault(
        "whoever fits overtakes",
        "matcher",
        "return is_beside or waiter.service <= seconds",
        "return True",
    ),
    Fault(
        "nobody overtakes beside the head",
        "matcher",
        "return is_beside or waiter.service <= seconds",
        "return waiter.service <= seconds",
    ),
    Fault(
        "slots are held for those who must leave them",
        "matcher",
        "return any(pool.leaves_free(shape) for pool in pools)",
        "return bool(pools)",
    ),
    Fault(
        "who waits for a long prompt holds everything",
        "matcher",
        "if held is not None and not self._is_gated(head, held):",
        "if held is not None:",
    ),
    Fault(
        "who waits for a long prompt keeps no tokens",
        "matcher",
        "pool.kv_reserved += match.room.tokens",
        "pool.kv_reserved += 0",
    ),
    Fault(
        "long prompts are read all at once",
        "matcher",
        "return tokens <= SHORT_PROMPT_TOKENS or reading + tokens <= most",
        "return True",
    ),
    Fault(
        "batch that must leave slots is not woken",
        "fleet",
        "if model.queue.leaves_slots and now < model.matcher.holdback_until:",
        "if False:",
    ),
    Fault(
        "a long prompt that is given up blocks the next",
        "scheduler",
        "        elif lease.is_long_read:\n",
        "        elif False:\n",
    ),
    # Forecasts.
    Fault(
        "newcomers of one key all have the first turn",
        "turns",
        "number += halves[place] - halves[level]",
        "number += 0",
    ),
    Fault(
        "a tenant that waited before is not looked at again",
        "turns",
        "if backlog.has_changed or queue.keys_fade:",
        "if tenant not in self._rows or queue.keys_fade:",
    ),
    Fault(
        "who waits no more still goes before",
        "turns",
        "if len(self._rows) > len(queue.backlogs):",
        "if False:",
    ),
    Fault(
        "what is charged does not move a tenant's turn",
        "queue",
        "        backlog.has_changed = True\n        if cost < 0:",
        "        if cost < 0:",
    ),
    Fault(
        "a straight line is taken for the wait",
        "ends",
        "if least > self._nearly_all_by and self.slots <= 3 * number:",
        "if least > 0:",
    ),
    Fault(
        "a deployment that changed is taken to be as it was",
        "able",
        "        self._of_shape.clear()\n",
        "",
    ),
    Fault(
        "the mean of answers is never found again",
        "lengths",
        "self._fresh, self._mean = 0, None",
        "self._fresh = 0",
    ),
    Fault(
        "free slots come free again beside a wide ticket",
        "ends",
        "return once + min(again / service, number)",
        "return once + again / service",
    ),
    Fault(
        "a tenant's cap is not foreseen",
        "forecast",
        "wait = max(wait, self._wait_of_own(waiter, now, own=own, cap=cap))",
        "wait = max(wait, 0.0)",
    ),
    Fault(
        "predictions are not calibrated",
        "calibration",
        "return max(0.0, (predicted + turnover) * self.factor(_PART_WITHIN) - turnover)",
        "return predicted",
    ),
    Fault(
        "who ran before a cache was known to be shared is kept nothing",
        "fleet",
        "        model.keep_cache(pool)\n",
        "",
    ),
    Fault(
        "a cache is kept again with each report",
        "model",
        "                if not lease.kv_tokens:\n",
        "                if True:\n",
    ),
    Fault(
        "who outgrows what was kept is kept no more",
        "meter",
        "if 0 < lease.kv_tokens < lease.prompt_tokens + lease.output_tokens:",
        "if False:",
    ),
    Fault(
        "what goes before a turn is looked at once for all",
        "turns",
        "if self._is_old(now, ahead.service / slots):",
        "if False:",
    ),
    Fault(
        "a picture may be as old as the wait is long",
        "ends",
        "return max(age, turned_over * self.ends.turnover) <= _FRESH_PART * wait",
        "return True",
    ),
    Fault(
        "a known point before is taken for the wait",
        "ends",
        "if above - below <= close:",
        "if len(self._points) > 2:",
    ),
    Fault(
        "of many deployments those that are not offered are never asked",
        "matcher",
        "return list(self._free)",
        "return list(self._free.some(None))",
    ),
    Fault(
        "of many deployments a session's own is not offered",
        "free_pools",
        "if home is not None and pools[home] not in some:",
        "if False:",
    ),
    Fault(
        "a deployment that reads a long prompt is taken for one that does not",
        "free_pools",
        "if pool.long_reading:",
        "if False:",
    ),
    Fault(
        "a long prompt that is read leaves its deployment listed as reading",
        "pool",
        "        if self.headroom:\n            self._free.add(self)\n\n    def _stop_running",
        "\n    def _stop_running",
    ),
    Fault(
        "who holds slots goes, and nobody looks at them",
        "matcher",
        "return waiter in self._front",
        "return False",
    ),
    Fault(
        "another is first, and nobody looks",
        "matcher",
        "return now - self._looked_at > _LOOK_SECONDS or self._queue.front() != self._front",
        "return False",
    ),
    Fault(
        "a part that has shrunk is taken for the largest",
        "room",
        "self._line.delay_first(key)",
        "return next(reversed(part.waiters.values()))",
    ),
]
