"""`python -m bench`: every benchmark in turn, each prints one table.

They measure this machine now: compare figures within a table, not between machines.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    *("core_events", "net_client", "overhead", "first_token", "handover", "waiting", "real"),
    *(
        "capacity",
        "scheduling",
        "placement",
        "windows",
        "kv_budget",
        "simulation",
        "sockets",
        "real_overload",
    ),
    "drills",
)


def main() -> int:
    failed = []
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n== {name} ==", flush=True)
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
