"""Faults planted in what is thought of backends that fail, and in where their requests go."""

from __future__ import annotations

from tests.core.fault import Fault

FAULTS = [
    # The table and its steps.
    Fault("a served request wipes nothing", "health", "        self._strikes = 0\n", ""),
    Fault(
        "an answer that began wipes the failures",
        "health",
        "    def _rise(self, why: str, now: float) -> None:\n",
        "    def _rise(self, why: str, now: float) -> None:\n        self._strikes = 0\n",
    ),
    Fault(
        "it is ejected one failure late",
        "health",
        "        self._strikes += 1\n        if self._strikes >= self._patience.failures:",
        "        self._strikes += 1\n        if self._strikes > self._patience.failures:",
    ),
    Fault(
        "all that died together count",
        "health",
        "            return True\n        self._broken_at = now\n",
        "            return False\n        self._broken_at = now\n",
    ),
    Fault(
        "whatever breaks all the time counts once",
        "health",
        "            return True\n        self._broken_at = now\n",
        "            self._broken_at = now\n            return True\n",
    ),
    Fault(
        "old requests speak for a new process",
        "health",
        "since < self._fell_at or self._is_same_death",
        "self._is_same_death",
    ),
    Fault(
        "missed looks add up over days",
        "health",
        "            self._misses = 0\n",
        "            pass\n",
    ),
    Fault(
        "nobody waits for the pause",
        "health",
        "        if now < self._out_until:\n            return\n",
        "",
    ),
    Fault(
        "a new process waits for the old one's pause",
        "health",
        "        self._out_until = -inf\n        self._leave(state, why, now)\n",
        "        self._leave(state, why, now)\n",
    ),
    Fault("pauses do not grow", "health", "* 2**self._ejections", "* 1"),
    Fault("pauses grow for ever", "health", "if is_again else 0", "if True else 0"),
    Fault(
        "whoever comes back is trusted",
        "health",
        "        if self._strikes < self._patience.failures:\n",
        "        if True:\n",
    ),
    Fault(
        "a trial that nobody needs never ends",
        "health",
        "now - self._back_at >= self._patience.longest_pause",
        "False",
    ),
    Fault(
        "a backend that is silent counts as ejected",
        "health",
        "        self.state, self.why = state, why\n        self.is_ejected = False\n",
        "        self.state, self.why = state, why\n        self.is_ejected = state == 'down'\n",
    ),
    # Deployments that fail.
    Fault(
        "one on trial gets as much as any",
        "pool",
        "self.usable = min(1, self.usable)",
        "pass",
    ),
    Fault(
        "one on trial is chosen like any",
        "matcher",
        "self._placement.choose(waiter.ticket, trusted or pools, self._lengths)",
        "self._placement.choose(waiter.ticket, pools, self._lengths)",
    ),
    Fault(
        "the last one is ejected",
        "model",
        "pool.set_best(is_best=standing == best)",
        "pool.set_best(is_best=False)",
    ),
    Fault(
        "whoever was ejected is used beside better ones",
        "model",
        "pool.set_best(is_best=standing == best)",
        "pool.set_best(is_best=True)",
    ),
    Fault(
        "what the operator holds counts as better",
        "pool",
        "        if self.is_removed or self.hold is not None:\n",
        "        if self.is_removed:\n",
    ),
    Fault(
        "a hold does not change who is the last",
        "fleet",
        "        if model is not None:\n            model.keep_the_best()\n",
        "        if model is not None:\n",
    ),
    Fault(
        "a removal does not change who is the last",
        "fleet",
        "        pool.attach(FreePools(), 0)\n        model.keep_the_best()\n",
        "        pool.attach(FreePools(), 0)\n",
    ),
    # Requests that failed there.
    Fault(
        "who failed waits for an elsewhere that is not there",
        "matcher",
        "(pool.id, pool.revivals) and self.has_other(shape, pool)",
        "(pool.id, pool.revivals)",
    ),
    Fault(
        "who failed never goes back",
        "pool",
        "            self.revivals += 1\n",
        "            pass\n",
    ),
    Fault(
        "who failed hides those that could run there",
        "model",
        "return Shape(ticket.width, context, size, holdback, failed_on)",
        "return Shape(ticket.width, context, size, holdback)",
    ),
    Fault(
        "slots are held where the first in line has failed",
        "matcher",
        "pool.could_fit(head.shape) and not self._shuns(head.shape, pool)",
        "pool.could_fit(head.shape)",
    ),
    Fault(
        "where it failed is elsewhere",
        "matcher",
        "return any(other is not pool for other in self._able.of(shape).pools)",
        "return bool(self._able.of(shape).pools)",
    ),
    # The budget.
    Fault("retries cost nothing", "retry_budget", "        self._left -= 1.0\n", ""),
    Fault("requests bring no retries", "retry_budget", "self._left + SHARE", "self._left"),
    Fault("time brings no retries", "retry_budget", "self._left + earned", "self._left"),
    Fault(
        "retries are saved for ever",
        "retry_budget",
        "min(self._most, self._left + earned)",
        "self._left + earned",
    ),
]
