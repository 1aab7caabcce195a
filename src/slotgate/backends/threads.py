"""How many threads llama.cpp may use on this machine.

Its threads meet at spin barriers several times per layer: while one of them does not run, all
others burn their cores waiting for it.  So:

- one thread per *physical* core: a second thread on a core shares its arithmetic units;
- one core less than there are, for the gateway, the clients and the rest of the machine.  With as
  many threads as cores, every bit of other work stalls the whole step;
- never more than the CPU quota of the container: a thread that is throttled stalls the others.

At least one, of course: on a machine with two cores this gives one.
"""

from __future__ import annotations

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def pick_threads() -> int:
    """Threads for decoding and for reading prompts."""
    return threads_for(physical_cores=count_cores(), quota=cpu_quota())


def threads_for(*, physical_cores: int, quota: float | None) -> int:
    usable = physical_cores - 1
    if quota is not None:
        usable = min(usable, int(quota))
    return max(1, usable)


def allowed_cpus() -> set[int]:
    """The logical CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def count_cores(cpus: Path = _CPUS) -> int:
    """Physical cores this process may run on; logical ones where the system does not tell."""
    siblings = set()
    for cpu in allowed_cpus():
        try:
            siblings.add((cpus / f"cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            siblings.add(f"cpu{cpu}")
    return max(1, len(siblings))


def cpu_quota(cpu_max: Path = _QUOTA) -> float | None:
    """CPUs that the control group grants, None without a limit or where there is no such thing."""
    try:
        quota, period = cpu_max.read_text().split()
        return None if quota == "max" else float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
