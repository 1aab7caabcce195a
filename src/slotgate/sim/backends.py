"""The simulated servers of a rehearsal, each advanced when it has something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.slotsim import SimulatedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from slotgate.sim.agenda import Agenda
    from slotgate.sim.clock import VirtualClock
    from slotgate.slotsim import Event, Job, ServerSpec


class Backends:
    """Servers by number.  `deliver` is told each event; its job knows where it runs."""

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        *,
        agenda: Agenda,
        clock: VirtualClock,
        deliver: Callable[[Event], None],
    ) -> None:
        self._agenda = agenda
        self._clock = clock
        self._deliver = deliver
        self._servers = [SimulatedServer(spec) for spec in specs]
        # By number: when the server is on the agenda; an entry for any other time is stale.
        self._due: list[float | None] = [None] * len(specs)

    def submit(self, number: int, job: Job) -> None:
        self._servers[number].submit(job, self._clock.now())
        self._arm(number)

    def disconnect(self, number: int, job_id: Hashable) -> None:
        self._servers[number].disconnect(job_id, self._clock.now())
        self._arm(number)

    def max_deferred(self) -> int:
        """How many requests have waited inside one server at worst."""
        return max(server.max_deferred for server in self._servers)

    def _arm(self, number: int) -> None:
        due = self._servers[number].next_event_time()
        if due != self._due[number]:
            self._due[number] = due
            self._agenda.note(due, self._advance, (number, due))

    def _advance(self, entry: tuple[int, float]) -> None:
        number, due = entry
        if self._due[number] != due:
            return
        self._due[number] = None
        for event in self._servers[number].advance(self._clock.now()):
            self._deliver(event)
        self._arm(number)
