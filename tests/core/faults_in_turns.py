"""Planted faults in whose turn it is, who must go, what is charged, and when to come back."""

from __future__ import annotations

from tests.core.fault import Fault

FAULTS = [
    # Fairness.
    Fault(
        "who was away has saved up service",
        "fairness",
        "max(self._counters.get(tenant, self._ZERO), floor)",
        "self._counters.get(tenant, self._ZERO)",
    ),
    Fault(
        "who had the machine to itself owes for it",
        "fairness",
        "        self._lift(tenant, self._floor())\n        self._last = tenant\n",
        "        self._lift(tenant, self._floor())\n",
    ),
    Fault(
        "the floor of counters is too high after a refund",
        "fairness",
        "if is_less and tenant in self._waiting:",
        "if False:",
    ),
    Fault("the floor of counters is stale", "fairness", "if counter == noted:", "if True:"),
    Fault(
        "who is ahead is forgotten among many tenants",
        "fairness",
        "if counter > floor or tenant in self._waiting",
        "if tenant in self._waiting",
    ),
    Fault(
        "counters are kept for ever",
        "fairness",
        "if len(self._counters) > self._sweep_at:",
        "if False:",
    ),
    Fault(
        "a tenant below its cap again goes last among equals",
        "fairness",
        "nextafter(self._floor(), -inf)",
        "self._floor()",
    ),
    Fault(
        "deficit round robin has no quantum",
        "fairness",
        "return super().key(tenant) // self._quantum",
        "return super().key(tenant)",
    ),
    Fault(
        "round robin ignores weights",
        "fairness",
        "super().charge(tenant, 1 / weight, 0.0)",
        "super().charge(tenant, 1.0, 0.0)",
    ),
    Fault(
        "recent service is never forgotten",
        "fairness",
        "        age = at / self._half_life\n",
        "        age = 0.0\n",
    ),
    Fault(
        "a refund is at the weight of the present",
        "fairness",
        "_log_sum(self.key(tenant), cost, age)",
        "_log_sum(self.key(tenant), cost, self._age)",
    ),
    Fault(
        "who runs is forgotten among many tenants",
        "fairness",
        "kept = {newcomer, self._last, *self._running}",
        "kept = {newcomer, self._last}",
    ),
    Fault(
        "who ever ran is kept for ever",
        "fairness",
        "            del self._running[tenant]\n",
        "            pass\n",
    ),
    Fault(
        "that a lease has ended is not told to whoever takes turns",
        "scheduler",
        "            model.queue.end(lease.waiter)\n",
        "            pass\n",
    ),
    Fault(
        "a prompt that was counted is refunded as of now",
        "billing",
        "self._charge(lease, float(read - lease.billed_input), lease.since)",
        "self._charge(lease, float(read - lease.billed_input), now)",
    ),
    Fault(
        "a refund of nearly all recent service fails",
        "fairness",
        "return key + log2(left) if left else -inf",
        "return key + log2(left) if added < key else -inf",
    ),
    Fault(
        "round robin is foretold by cost",
        "fairness",
        "        return 1 / weight\n",
        "        return cost / weight\n",
    ),
    Fault(
        "recent service is foretold in logarithms",
        "fairness",
        "return exp2(key - self._age)",
        "return key",
    ),
    Fault(
        "within a quantum a newcomer goes first",
        "fairness",
        "(counter // self._quantum + part) * self._quantum",
        "(counter // self._quantum) * self._quantum",
    ),
    # The queue.
    Fault(
        "without tenants only one's own are counted",
        "queue",
        "return Place(turn, all_before, service_of_all)",
        "return Place(turn, number, service)",
    ),
    Fault(
        "who comes next is told only of its own tenant's",
        "queue",
        "line = self._everybody if self._fairness.is_one_line else backlog",
        "line = backlog",
    ),
    Fault(
        "a tenant at its cap waits for the whole line",
        "forecast",
        "Ahead(*self._queue.own_before(waiter))",
        "mine",
    ),
    Fault(
        "a key that was noted is believed",
        "queue",
        "elif (key := self._fairness.key(tenant)) > noted[0]:",
        "elif (key := noted[0]) > noted[0]:",
    ),
    Fault(
        "a refund does not change the order", "queue", "        if cost < 0:\n", "        if 0:\n"
    ),
    Fault(
        "a tenant at its cap keeps a turn for whoever comes late",
        "queue",
        "        if tenant in self.backlogs:\n            self._fairness.depart(tenant)\n",
        "",
    ),
    Fault(
        "a tenant below its cap again is not lifted",
        "queue",
        "        self._fairness.resume(tenant)\n",
        "        self._fairness.arrive(tenant)\n",
    ),
    Fault(
        "what waits is not taken off the sums",
        "backlog",
        "self.toll -= waiter.toll",
        "self.toll -= 0",
    ),
    Fault(
        "nobody steps forward when the first of a lane leaves",
        "queue",
        "elif lanes.front.get(tenant) is waiter:",
        "elif False:",
    ),
    Fault(
        "lanes are served in any order",
        "queue",
        "        if len(front) > 1:\n",
        "        if not front:\n",
    ),
    # Orders and admission.
    Fault(
        "deadlines do not matter to the earliest deadline",
        "order",
        "return waiter.ticket.deadline",
        "return waiter.since",
    ),
    Fault(
        "the long never get their turn",
        "order",
        "return waiter.since - _HEAD_START_SECONDS * (1 - part)",
        "return part",
    ),
    Fault(
        "the prompt is forgotten when waits are judged",
        "model",
        "            left = waiter.start_by - now\n",
        "            left = waiter.ticket.deadline - now\n",
    ),
    Fault(
        "who is next is let in whatever its chance",
        "admission",
        "_ENOUGH if waiter.ahead >= 1 else _NEXT",
        "_ENOUGH if waiter.ahead >= 1 else 0.0",
    ),
    Fault(
        "a wait that ended without a grant counts as one that ended",
        "chances",
        "(self._ended if is_granted else self._cut)[step] += weight",
        "self._ended[step] += weight",
    ),
    Fault(
        "who was cut is not among those that waited",
        "chances",
        "waiting -= ended + cut",
        "waiting -= ended",
    ),
    Fault(
        "chances never fade",
        "chances",
        "weight = self._weight(now)",
        "weight = 1.0",
    ),
    Fault(
        "one tenant's waits speak for all",
        "chances",
        "late = self._late if waits is None else waits.late(self._hazards, now, step + 1)",
        "late = self._late",
    ),
    Fault(
        "what is known of all is never made anew",
        "chances",
        "if self._may_come < 0 or now - self._made_at > _FRESH_SECONDS:",
        "if not self._late:",
    ),
    Fault(
        "tenants' chances are kept for ever",
        "chances",
        "if len(self._of_tenant) > _MOST_TENANTS:",
        "if False:",
    ),
    Fault(
        "shortest first starves without fairness",
        "policies",
        'if order == "sjf" and fairness == "none":',
        "if False:",
    ),
    # The waiting room.
    Fault(
        "the newcomer always goes",
        "room",
        "is_larger = key < -self._measure(than)",
        "is_larger = False",
    ),
    Fault(
        "parts of the room have no weights",
        "room",
        "len(part.waiters) / part.weight",
        "len(part.waiters) / 1",
    ),
    Fault(
        "the largest part is stale", "room", "            if key == noted:\n", "            if 1:\n"
    ),
    Fault(
        "the first of a tenant goes, not its last",
        "room",
        "next(reversed(part.waiters.values())) if is_larger",
        "next(iter(part.waiters.values())) if is_larger",
    ),
    Fault(
        "others go in vain",
        "room",
        "                going = [(newcomer, overflow)]\n",
        "                going = [*going, (newcomer, overflow)]\n",
    ),
    Fault(
        "who has many goes where bytes are short",
        "room",
        "self._most_bytes if overflow.setting == _BYTES else self._most_waiters",
        "self._most_waiters",
    ),
    Fault(
        "who comes back after a failure goes first",
        "room",
        "if last is not None and waiter.number < last.number:",
        "if False:",
    ),
    Fault(
        "slots stay held for whoever went",
        "scheduler",
        "        # Slots may have been held for those that went.\n"
        "        yield from self._dispatch(now)\n",
        "",
    ),
    # Dates to return.
    Fault(
        "tenants share a calendar",
        "calendar",
        "        self._forget(now)\n",
        '        self._forget(now)\n        tenant = ""\n',
    ),
    Fault(
        "each tenant's dates come at the whole pace",
        "calendar",
        "rate=rate * weight / self._weights",
        "rate=rate",
    ),
    Fault(
        "tenants have their share of the pace for ever",
        "calendar",
        "if now - at <= self._cap_seconds:",
        "if True:",
    ),
    Fault(
        "a tenant's weight counts twice",
        "calendar",
        "self._weights - entry[1] if self._books else 0.0",
        "self._weights if self._books else 0.0",
    ),
    Fault(
        "an adaptive delay changes with each refusal",
        "calendar",
        "if passed >= 1:",
        "if passed > 0:",
    ),
    Fault(
        "a small cap is passed",
        "calendar",
        "min(self._most, max(1.0, self._delay - passed))",
        "max(1.0, self._delay - passed)",
    ),
    Fault(
        "a light tenant comes back when the hog's queue is gone",
        "refusals",
        "if predicted_wait is None or waiter.since < now:",
        "if True:",
    ),
    Fault(
        "the whole budget is counted on",
        "refusals",
        "predicted_wait - self._budget(ticket) / 2",
        "predicted_wait - self._budget(ticket)",
    ),
    # Charges.
    Fault(
        "service is not divided by weights",
        "billing",
        "cost / lease.waiter.weight",
        "cost",
    ),
    Fault(
        "one tenant pays for all",
        "billing",
        "self._queue.charge(lease.waiter.ticket.tenant,",
        'self._queue.charge("default",',
    ),
    Fault(
        "a failed prompt is not refunded",
        "billing",
        "self._charge(lease, -float(lease.billed_input), lease.since)",
        "pass",
    ),
    Fault(
        "a prompt is paid twice",
        "billing",
        "float(read - lease.billed_input)",
        "float(read)",
    ),
    Fault(
        "the rest of a broken answer pays for its prompt again",
        "billing",
        "        if lease.waiter.is_paid:\n            return\n",
        "",
    ),
    Fault(
        "the rest of a broken answer pays for its prompt when that is counted",
        "billing",
        "if input_tokens and not lease.waiter.is_paid:",
        "if input_tokens:",
    ),
    Fault(
        "the rest of a broken answer is refused for the deadline of its beginning",
        "scheduler",
        "lease.waiter.go_on(rest, lease.written, now)",
        "pass",
    ),
    Fault(
        "what came from the cache is paid",
        "billing",
        "input_tokens - cached_tokens",
        "input_tokens",
    ),
    Fault(
        "the cost of output is never measured",
        "billing",
        "self.output = min(",
        "self._ignored = min(",
    ),
    Fault(
        "service is charged to what the deployment serves now",
        "scheduler",
        "self._fleet.models.get(lease.waiter.ticket.model) or",
        "self._fleet.models.get(lease.pool.model) or",
    ),
    Fault(
        "who is granted at once passes the queue unseen",
        "scheduler",
        "            model.queue.pass_by(waiter)\n",
        "",
    ),
]
