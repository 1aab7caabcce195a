"""Faults in what changes while tickets wait and run: numbers, rules, what went and comes back."""

from __future__ import annotations

from tests.core.fault import Fault

FAULTS = [
    Fault(
        "reload: a lower bound sends away more than one for each newcomer",
        "room",
        "            bounds = self._most\n",
        "",
    ),
    Fault(
        "reload: a lower bound counts from the next event",
        "room",
        "            max(limits.max_waiting, len(self)),\n"
        "            max(limits.max_waiting_bytes, self._bytes),\n",
        "            limits.max_waiting,\n            limits.max_waiting_bytes,\n",
    ),
    Fault(
        "reload: the room stays as large as it was",
        "room",
        "max(limits.max_waiting, min(number, len(self))),",
        "max(limits.max_waiting, number),",
    ),
    Fault(
        "reload: trying in vain makes the room smaller",
        "room",
        "        self._most = most\n",
        "",
    ),
    Fault(
        "reload: a part of the room keeps its old weight",
        "room",
        "            part.weight = limits.of_tenant(part.tenant).weight\n",
        "",
    ),
    Fault(
        "reload: a lower cap is forgotten with the next lease that ends",
        "tenants",
        "if tenant not in self.closed or self._is_full(tenant):",
        "if tenant not in self.closed:",
    ),
    Fault(
        "reload: only tenants that are named have caps that change",
        "tenants",
        "for tenant in (*caps, *self._in_flight) if",
        "for tenant in () if",
    ),
    Fault(
        "reload: who is below its new cap is not looked at",
        "scheduler",
        "            self._fleet.reopen(tenant)\n        self._fleet.reconfigure",
        "            pass\n        self._fleet.reconfigure",
    ),
    Fault(
        "reload: who has reached its new cap still takes turns",
        "scheduler",
        "            self._fleet.close(tenant)\n        for tenant in sorted(below)",
        "            pass\n        for tenant in sorted(below)",
    ),
    Fault(
        "reload: those that wait keep their weights",
        "model",
        "        waiter.weight = self._weight_of(waiter.ticket)\n",
        "",
    ),
    Fault(
        "reload: service that was had is forgotten",
        "model",
        "None if is_fair_as_before else policies.fairness()",
        "policies.fairness()",
    ),
    Fault(
        "reload: another fairness knows nobody that waits",
        "queue",
        "                if tenant not in self._closed:\n                    fairness.",
        "                if False:\n                    fairness.",
    ),
    Fault(
        "reload: ranks of another order are mixed with those of the old one",
        "model",
        "if waiter.ranked_by is not self._order:",
        "if waiter.ranked_by is None:",
    ),
    Fault(
        "reload: what is held back is given back by the class of now",
        "pool",
        "self.held_back -= lease.held_back",
        "self.held_back -= lease.width if lease.waiter.shape.holdback else 0",
    ),
    Fault(
        "reload: nobody looks who may run by the new numbers",
        "fleet",
        "                pool.relimit(now)\n        self.stir_all()",
        "                pool.relimit(now)",
    ),
    Fault(
        "reload: slots that settle do so by the old bound",
        "scheduler",
        "        self._leases.settle_bound_seconds = limits.settle_bound_seconds\n",
        "",
    ),
    Fault(
        "a removed model keeps those that wait for it",
        "model",
        "            return Misfit(Reason.MODEL_NOT_FOUND, 0)\n",
        "            return None\n",
    ),
    Fault(
        "grace: what went away is waited for without bound",
        "pool",
        "is_taking and now < self.expected_until",
        "is_taking",
    ),
    Fault(
        "grace: it begins anew each time that it goes away",
        "pool",
        "if self.reported in _UP and report.state not in _UP:",
        "if self.reported is not report.state:",
    ),
    Fault(
        "grace: what the operator has taken away is expected back",
        "pool",
        "is_taking = self.hold is None or self.hold is State.PAUSED",
        "is_taking = True",
    ),
]
