"""Faults of llama.cpp that were reported or seen, and the builds that have them.

Builds have the numbers of their tags, bNNNN.  Where a report does not say with which build a fault
came or went, the nearest builds whose dates are known stand for it, and what lies between is in
doubt; `slotgate.capacity.builds` has the same for features.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

# The newest build in which the open faults were seen.
SEEN_UNTIL = 11434
# Builds whose dates are known.
_OF_2025_07, _OF_2025_09, _OF_2025_12, _OF_2026_03 = 5913, 6502, 7474, 8390
_OF_2026_06, _OF_2026_08 = 9489, 10662


class Presence(Enum):
    """Whether a build has a fault."""

    CERTAIN = auto()
    IN_DOUBT = auto()
    ABSENT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFault:
    """One fault.

    `since`: no build before this one has it.  `surely_since`: from here on they have it.
    `surely_until`: so far they have it.  `gone`: from this build on nobody has it; None: not mended
    in `SEEN_UNTIL`, and nothing is known of newer builds.  `is_of_cache`: only
    while prompts are kept in the host's memory (`--cache-ram`).
    """

    issues: str
    what: str
    leads_to: str
    mend: tuple[str, ...]
    since: int = 0
    surely_since: int = 0
    surely_until: int = SEEN_UNTIL
    gone: int | None = None
    is_of_cache: bool = False

    def presence(self, build: int) -> Presence:
        if build < self.since or (self.gone is not None and build >= self.gone):
            return Presence.ABSENT
        is_certain = self.surely_since <= build <= self.surely_until
        return Presence.CERTAIN if is_certain else Presence.IN_DOUBT

    @property
    def builds(self) -> str:
        """Which builds, in words."""
        first = "all builds" if not self.since else f"builds from {self.since} on"
        if self.gone is None:
            return f"{first}, as far as known: seen in {self.surely_until}"
        return f"builds before {self.gone}" if not self.since else f"{first}, before {self.gone}"


KNOWN_FAULTS = (
    KnownFault(
        issues="#15008, #14073, #15395",
        what="requests that wait inside it are not served in the order in which they came",
        leads_to="Under load some wait for ever.",
        mend=("Update llama.cpp.",),
        surely_until=_OF_2025_07,
        gone=_OF_2025_09,
    ),
    KnownFault(
        issues="#16467, #16486, #16109",
        what="requests whose clients left at once go on, and errors come inside an answer of 200",
        leads_to="Slots work for nobody, and clients take errors for answers.",
        mend=("Update llama.cpp.",),
        surely_until=_OF_2025_09,
        gone=_OF_2025_12,
    ),
    KnownFault(
        issues="#20684, #20817",
        what="its health does not answer while there are more requests than HTTP threads",
        leads_to="Whoever watches its health restarts a server that only works.",
        mend=("Update llama.cpp.", "--threads-http N, more than there are clients"),
        surely_until=_OF_2025_12,
        gone=_OF_2026_06,
    ),
    KnownFault(
        issues="#24866, #27041",
        what="slots and metrics do not answer while it reads a long prompt",
        leads_to="Monitors take it for dead, and gateways cannot see a slot get free.",
        mend=("Update llama.cpp to 10429 or newer.", "-b 512, or less"),
        surely_until=10428,
        gone=10429,
    ),
    KnownFault(
        issues="#27126, #27133",
        what="writing on a processor takes 10 to 15 times as long",
        leads_to="Everything waits. It was mended two days after build 10429.",
        mend=("Update llama.cpp.",),
        since=10429,
        surely_since=10429,
        surely_until=10429,
        gone=_OF_2026_08,
    ),
    KnownFault(
        issues="#24755",
        what="a request with id_slot for a busy slot overwrites the answer that is written there",
        leads_to="One user's answer goes on with what another one said.",
        mend=(
            "Have a gateway take id_slot out of requests; Slotgate does.",
            "--cache-ram 0, or --slot-prompt-similarity 0",
        ),
        since=_OF_2026_06 + 1,
        surely_since=SEEN_UNTIL,
        is_of_cache=True,
    ),
    KnownFault(
        issues="#27148",
        what="under load a slot may be given the kept prompt of another conversation",
        leads_to="An answer goes on with what another user said, and nothing tells.",
        mend=("--cache-ram 0, or --no-cache-idle-slots",),
        since=_OF_2025_09 + 1,
        surely_since=10429,
        surely_until=10429,
        is_of_cache=True,
    ),
    KnownFault(
        issues="#13262, #24496",
        what="requests whose client left while they waited inside it are worked off all the same, "
        "and answers in one piece are not stopped while another slot streams",
        leads_to="Slots work for nobody, just when they are short.",
        mend=(
            "Slotgate in front of it: nothing waits inside, and everything is asked for as a "
            "stream.",
        ),
    ),
)
