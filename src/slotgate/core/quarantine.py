"""Whether a deployment is kept from getting work, and until when.

It begins with a finding.  It ends when a minimum time is over *and* two good signs in a row have
been seen since: an answer of `/slots` in which all slots are idle or something has moved; where
there is no `/slots`, an answer of `/health`.  The minimum doubles each time, up to a bound, until a
stream has moved there again: a server that takes requests and answers none looks healthy at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.vitals import Question

if TYPE_CHECKING:
    from slotgate.core.slot_looks import SlotLooks
    from slotgate.core.vitals import Signs

_GOOD_SIGNS = 2


class Quarantine:
    """One deployment's.  `shortest` and `longest` are the minimum times, in seconds."""

    def __init__(self, *, shortest: float = 5.0, longest: float = 120.0) -> None:
        self._shortest = shortest
        self._longest = longest
        self._times = 0
        self._good = 0
        self.since: float | None = None
        self._begun_at = self._until = 0.0

    def begin(self, now: float) -> None:
        """Begin, or begin anew."""
        self._begun_at = now
        self.since = now if self.since is None else self.since
        self._until = now + min(self._shortest * 2.0**self._times, self._longest)
        self._times = min(self._times + 1, 32)
        self._good = 0

    def streamed(self) -> None:
        """Note that a stream has moved: it works."""
        self._times = 0

    def tick(self, signs: Signs, looks: SlotLooks) -> bool:
        """Take what is seen now, while it lasts; True if it ends with that."""
        self._count(signs, looks)
        if self._good < _GOOD_SIGNS or signs.now < self._until:
            return False
        self.since = None
        return True

    def _count(self, signs: Signs, looks: SlotLooks) -> None:
        if not signs.has_slots:
            self._good = self._good + 1 if signs.health is Question.ANSWERED else 0
        elif signs.slots is Question.TIMED_OUT:
            self._good = 0
        elif looks.is_new and looks.latest is not None and looks.latest.sent_at >= self._begun_at:
            self._good = self._good + 1 if looks.is_newly_idle or looks.has_moved else 0
