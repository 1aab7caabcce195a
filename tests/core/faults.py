"""Planted faults that the tests of the core must catch: `python -m tests.core.faults [WORD]`.

Coverage says that a line ran, not that anything looked at what it did.  Each fault is one edit of a
copy of the source tree; the tests of the core must fail with it.  With a WORD, only the faults
whose name contains it are planted.
"""

# ruff: noqa: T201 - a command prints.

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from tests.core import (
    faults_capacity,
    faults_health,
    faults_in_turns,
    faults_placement,
    faults_reload,
    faults_residency,
    faults_watchdog,
)
from tests.core.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 2
TIMEOUT_SECONDS = 100


FAULTS = [
    *faults_in_turns.FAULTS,
    *faults_capacity.FAULTS,
    *faults_reload.FAULTS,
    *faults_health.FAULTS,
    *faults_watchdog.FAULTS,
    *faults_placement.FAULTS,
    *faults_residency.FAULTS,
    # Leases.
    Fault(
        "leaving frees nothing",
        "leases",
        "        if is_free:\n            lease.pool.end(lease, now)\n",
        "        if is_free:\n            pass\n",
    ),
    Fault(
        "a slot that settles is handed out",
        "pool",
        "        self.settling[lease.id] = self.running.pop(lease.id)\n",
        "        self.settling[lease.id] = self.running.pop(lease.id)\n"
        "        self.headroom += lease.waiter.shape.width\n",
    ),
    Fault(
        "an abandoned request frees its slot at once",
        "scheduler",
        "is_free = ending is Ending.SERVED if slot_free is None else slot_free",
        "is_free = True",
    ),
    Fault(
        "leaving twice frees twice",
        "leases",
        "lease = self._running.pop(ticket_id, None)",
        "lease = self._running.get(ticket_id)",
    ),
    Fault(
        "settling twice frees twice",
        "leases",
        "lease = self._settling.leave(lease_id)",
        "lease = self._settling.get(lease_id)",
    ),
    Fault(
        "the settle bound comes late",
        "leases",
        "lease.settles_by > now",
        "lease.settles_by >= now",
    ),
    Fault(
        "a wide lease gives back one slot",
        "pool",
        "self._held_slots -= lease.waiter.shape.width",
        "self._held_slots -= 1",
    ),
    Fault(
        "a requeued ticket's leases share an id",
        "leases",
        'f"{match.waiter.ticket.id}#{self._grants}"',
        'f"{match.waiter.ticket.id}"',
    ),
    Fault(
        "charges overwrite each other",
        "meter",
        "lease.output_tokens += output_tokens",
        "lease.output_tokens = output_tokens",
    ),
    # The queue.
    Fault("expiry is off by one", "room", "start_by <= now else None", "start_by < now else None"),
    Fault(
        "the bound of the queue is off by one",
        "room",
        "if others >= bounds[0]:",
        "if others > bounds[0]:",
    ),
    Fault(
        "bytes are not given back",
        "room",
        "self._bytes -= waiter.ticket.size_bytes",
        "self._bytes -= 0",
    ),
    Fault(
        "a newcomer barges",
        "model",
        "number=number,",
        "number=-number,",
    ),
    Fault(
        "a newcomer overtakes the queue",
        "scheduler",
        "self._fleet.is_stirred or model.queue or not",
        "self._fleet.is_stirred or not",
    ),
    Fault(
        "a newcomer takes what came free for others",
        "scheduler",
        "self._fleet.is_stirred or model.queue or not",
        "model.queue or not",
    ),
    Fault(
        "a newcomer passes its tenant's cap",
        "scheduler",
        "or not self._tenants.is_open(waiter.ticket.tenant)",
        "",
    ),
    Fault(
        "a requeued ticket goes to the back",
        "scheduler",
        "        waiter.bypassed = 0\n",
        "        waiter.bypassed = 0\n"
        "        self._arrivals += 1\n"
        "        waiter.number = self._arrivals\n",
    ),
    Fault(
        "a requeued ticket outlives its deadline",
        "scheduler",
        "            return [self._refusals.timed_out(waiter, model, now)]\n",
        "            pass\n",
    ),
    Fault(
        "a slot goes to whom it comes too late for",
        "scheduler",
        "        return [*self._catch_up(now), *self._dispatch(now)]\n\n    def settled",
        "        return [*self._dispatch(now)]\n\n    def settled",
    ),
    Fault(
        "who left the line is still seen",
        "line",
        "if entry is not None and (entry[0] is key or entry[0] == key):",
        "if entry is not None:",
    ),
    Fault(
        "the line never tidies up",
        "line",
        "if len(self._heap) > 2 * len(self._members) + _FEW:",
        "if False:",
    ),
    Fault(
        "the next deadline forgets settling leases",
        "scheduler",
        "            self._leases.next_due(),\n",
        "",
    ),
    # Deployments.
    Fault(
        "a smaller size is ignored",
        "pool",
        "        self.slots = report.slots\n",
        '        self.slots = max(report.slots, getattr(self, "slots", 0))\n',
    ),
    Fault(
        "a resize is taken over late",
        "pool",
        "        self.is_removed = False\n        self._recount()\n",
        "        self.is_removed = False\n"
        '        if not hasattr(self, "usable"):\n            self._recount()\n',
    ),
    Fault(
        "slots that others use are handed out",
        "pool",
        "self.usable = self.slots - self.outside if",
        "self.usable = self.slots if",
    ),
    Fault(
        "a held deployment serves",
        "pool",
        "self.state = learned if self.hold is None else self.hold",
        "self.state = learned",
    ),
    Fault(
        "a removed deployment forgets its leases",
        "fleet",
        "if pool.is_gone:",
        "if pool.is_removed:",
    ),
    Fault("a draining gateway admits", "scheduler", "if self._is_draining:", "if False:"),
    Fault(
        "a draining gateway waits for what is gone",
        "scheduler",
        "if self._is_draining and model.queue:",
        "if False:",
    ),
    Fault(
        "waiters are shed outside a drain",
        "scheduler",
        "if self._is_draining and model.queue:",
        "if model.queue:",
    ),
    Fault(
        "a drain looks only at what changes later",
        "scheduler",
        "        self._fleet.stir_all()\n",
        "",
    ),
    Fault(
        "a drain does not wait for what is coming",
        "model",
        "return None if absence is Reason.LOADING else absence",
        "return absence",
    ),
    Fault(
        "a drain waits for what is too small",
        "model",
        "if pool.may_be_made_for(shape)]",
        "]",
    ),
    Fault(
        "a drain refuses everybody if it refuses anybody",
        "model",
        "[(w, reasons[w.shape]) for w in self._by_arrival() if w.shape in reasons]",
        "[(w, next(iter(reasons.values()))) for w in self._by_arrival()]",
    ),
    Fault(
        "newcomers wait for what is down",
        "scheduler",
        "if absence is not None and not is_coming:",
        "if False:",
    ),
    Fault(
        "nobody is told that the backends are down",
        "refusals",
        "        if absence is not None:\n",
        "        if False:\n",
    ),
    Fault(
        "the fullest deployment is chosen",
        "placement",
        "return max(pools, key",
        "return min(pools, key",
    ),
    Fault(
        "a failed ticket goes back to where it failed",
        "matcher",
        "fits = [pool for pool in fits if not self._shuns(waiter.shape, pool)]",
        "pass",
    ),
    # Widths, contexts, tenants.
    Fault("overtaking is unbounded", "matcher", "head.bypassed < limits.max_bypass", "True"),
    Fault(
        "overtaking is unbounded in time",
        "matcher",
        " and overtaken_for < limits.bypass_seconds",
        "",
    ),
    Fault(
        "slots are held where most are missing",
        "matcher",
        "return max(able, key",
        "return min(able, key",
    ),
    Fault(
        "a deployment with a full KV cache ends the search",
        "matcher",
        "            fits.remove(pool)\n",
        "            return None\n",
    ),
    Fault(
        "a prompt goes where its context is too small",
        "matcher",
        "            and (pool.ctx_per_slot is None or context <= pool.ctx_per_slot)\n",
        "",
    ),
    Fault(
        "slots are held that the first in line can never use",
        "matcher",
        "able = [pool for pool in free if self._could_take(head, pool)]",
        "able = [pool for pool in free if pool.holds(head.shape.context)]",
    ),
    Fault(
        "slots are held whose context is too small",
        "matcher",
        "able = [pool for pool in free if self._could_take(head, pool)]",
        "able = [pool for pool in free if pool.usable >= head.shape.width]",
    ),
    Fault(
        "what cannot be used counts as overtaking",
        "matcher",
        "if self._could_take(head, match.pool):",
        "if match:",
    ),
    Fault(
        "a deployment of unknown size refuses",
        "model",
        "if most > 0:",
        "if most >= 0:",
    ),
    Fault(
        "a width that fits exactly is too wide",
        "pool",
        "self.slots >= shape.width",
        "self.slots > shape.width",
    ),
    Fault(
        "a prompt may fill its whole context",
        "model",
        "place = bisect_right(contexts, tokens)",
        "place = bisect_right(contexts, tokens - 1)",
    ),
    Fault(
        "who can never fit any more waits on",
        "model",
        "        if not misfits:\n            return []\n",
        "        return []\n",
    ),
    Fault(
        "a tenant's cap is off by one",
        "tenants",
        "self.in_flight(tenant) >= cap",
        "self.in_flight(tenant) > cap",
    ),
    Fault(
        "a tenant below its cap again is forgotten",
        "tenants",
        "        self.closed.discard(tenant)\n        return True\n",
        "        self.closed.discard(tenant)\n        return False\n",
    ),
    Fault(
        "a tenant's part of the queue is off by one",
        "room",
        "of_tenant >= most",
        "of_tenant > most",
    ),
    # The return calendar.
    Fault("delays have no jitter", "calendar", "_JITTER = 0.1", "_JITTER = 0.0"),
    Fault("delays have no cap", "calendar", "if delay > cap:", "if False:"),
    Fault(
        "capped delays are not spread",
        "calendar",
        "return cap * (1 - _LAST_PART * self._dice.random())",
        "return cap",
    ),
    Fault(
        "everybody gets the same date",
        "calendar",
        "* per_second + 1",
        "* per_second",
    ),
    Fault(
        "the calendar runs away",
        "calendar",
        "min(base + ahead, 2 * cap)",
        "(base + ahead)",
    ),
    Fault(
        "dates never come due",
        "calendar",
        "self._booked / per_second - (now - self._booked_at)",
        "self._booked / per_second",
    ),
    Fault(
        "a date is kept as a time",
        "calendar",
        "self._booked / per_second",
        "self._booked / 0.35",
    ),
    Fault(
        "what requests took so far does not count",
        "calendar",
        "self._held_seconds / max(1, slots)",
        "10.0 / max(1, slots)",
    ),
    Fault(
        "idle time counts as draining",
        "calendar",
        "        if not is_backlogged:\n            self._since = None\n",
        "        if not is_backlogged:\n            pass\n",
    ),
]


def verdict(fault: Fault | None) -> tuple[str, float]:
    """Run the tests with the fault: "caught", "LIVES", or why it could not be planted."""
    began = perf_counter()
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        skip = shutil.ignore_patterns("__pycache__", "static")
        shutil.copytree(ROOT / "src", tree / "src", ignore=skip)
        shutil.copytree(ROOT / "tests" / "core", tree / "tests" / "core", ignore=skip)
        for part in ("__init__.py", "conftest.py"):
            shutil.copy(ROOT / "tests" / part, tree / "tests")
        shutil.copy(ROOT / "pyproject.toml", tree)
        if fault is not None:
            file = tree / "src" / "slotgate" / "core" / f"{fault.file}.py"
            source = file.read_text()
            if source.count(fault.old) != 1:
                return f"NOT PLANTED: its text is there {source.count(fault.old)} times", 0.0
            file.write_text(source.replace(fault.old, fault.new))
        result = run_tests(tree, "" if fault is None else fault.file)
    return result, perf_counter() - began


# The tests of a module, where they are not named after it.
FIRST = dict.fromkeys(("pace", "quarantine", "slot_looks", "stream_clocks", "stuck"), "watchdog")
# Tests that take long: after those of the module itself and the quick ones, the random lives last.
SLOW = (
    "residency_lives",
    "patience",
    "turns",
    "watchdog",
    "fairness",
    "forecast",
    "kv_budget",
    "lengths",
    "matcher",
    "meter",
    "lives",
    "machine",
)


def run_tests(tree: Path, module: str) -> str:
    first = FIRST.get(module, module)

    def turn(file: Path) -> int:
        name = file.stem.removeprefix("test_core_")
        return -1 if name == first else SLOW.index(name) + 1 if name in SLOW else 0

    files = sorted(tree.glob("tests/core/test_*.py"), key=turn)
    command = [sys.executable, "-m", "pytest", *map(str, files), "-x", "-q", "--no-header"]
    command += ["-p", "no:cacheprovider", "--hypothesis-profile=faults"]
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no verdict within {TIMEOUT_SECONDS} s"
    # 1: tests failed.  Anything else but 0 means that they did not even run.
    outcomes = {0: "LIVES", 1: "caught"}
    return outcomes.get(done.returncode, f"pytest ended with {done.returncode}")


def main(word: str = "") -> int:
    began = perf_counter()
    faults = [fault for fault in FAULTS if word in fault.name]
    healthy, seconds = verdict(None)
    if healthy != "LIVES":
        print("The tests fail without any fault; mend them first.")
        return 1
    print(f"{'no fault':<46} {seconds:5.1f} s  passes")
    caught = 0
    with ThreadPoolExecutor(PROCESSES) as pool:
        for fault, (result, seconds) in zip(faults, pool.map(verdict, faults), strict=True):
            print(f"{fault.name:<46} {seconds:5.1f} s  {result}", flush=True)
            caught += result == "caught"
    print(f"{caught} of {len(faults)} faults caught in {perf_counter() - began:.0f} s")
    return 0 if caught == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
