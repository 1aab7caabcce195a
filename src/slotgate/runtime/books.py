"""What the shell knows of its leases on each deployment, beside what the core does.

Rule: the number of slots held is kept, not summed: it is looked at with each grant.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RunningLease:
    """What the shell knows of a lease that the core does not need.

    `started_at` is when the backend's response head came (its slot has certainly started),
    `closed_at` when the exchange was closed before its end (the lease is settling since).
    `has_written`: its first token had come by then.
    """

    lease: str
    width: int
    started_at: float | None = None
    closed_at: float | None = None
    has_written: bool = False


class DeploymentBooks:
    """The leases of one deployment, by id: those that run and those that settle.

    `width` is how many slots they may hold on the backend now.  The collections are for looking.
    `served` counts the answers that came to their end, `errors` the answers "Compute error" since.
    """

    __slots__ = ("_peak", "errors", "running", "served", "settling", "width")

    def __init__(self) -> None:
        self.running: dict[str, RunningLease] = {}
        self.settling: dict[str, RunningLease] = {}
        self.width = self.served = self.errors = 0
        self._peak = 0

    @property
    def is_empty(self) -> bool:
        return not self.running and not self.settling

    def granted(self, entry: RunningLease) -> None:
        self.running[entry.lease] = entry
        self.width += entry.width
        self._peak = max(self._peak, self.width)

    def ended(self, lease: str) -> None:
        """Strike off a lease that runs: its slots are free.  Does nothing the second time."""
        self._strike(self.running, lease)

    def answered(self) -> None:
        """Count an answer that came to its end."""
        self.served += 1
        self.errors = 0

    def closed(self, lease: str, now: float, *, has_written: bool = True) -> None:
        """Let a lease that runs settle.  Does nothing the second time."""
        entry = self.running.pop(lease, None)
        if entry is not None:
            entry.closed_at = now
            entry.has_written = has_written
            self.settling[lease] = entry

    def settled(self, lease: str) -> bool:
        """Strike off a lease that settles; False if it does not."""
        return self._strike(self.settling, lease)

    def take_peak(self) -> int:
        """Return the most slots held at once since the last call."""
        peak, self._peak = self._peak, self.width
        return peak

    def _strike(self, entries: dict[str, RunningLease], lease: str) -> bool:
        entry = entries.pop(lease, None)
        if entry is None:
            return False
        self.width -= entry.width
        return True
