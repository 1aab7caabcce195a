"""What the loop sends, and to whom."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from slotgate.slotsim.job import Cancelled, Pinged
from slotgate.slotsim.readers import Readers

if TYPE_CHECKING:
    from slotgate.slotsim.job import Event
    from slotgate.slotsim.readers import Reader


class Results(Readers):
    """The readers, and what happened since the last `take`.

    A reader that gave up gets nothing more, and then nobody is woken either.
    """

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self._events: list[Event] = []
        # Readers that found their client gone, or got an error, just now.  They tell the loop so
        # only after it has gone on: it is faster than they are.
        self._departing: list[Reader] = []

    def send(self, reader: Reader, event: Event) -> None:
        if not reader.cancelled:
            self._events.append(event)
            self.answer(reader, event.at)

    def answer(self, reader: Reader, now: float) -> None:
        """Send something that is no event; a stream sees then whether its client is there."""
        self.notify(now)
        reader.since = now
        reader.answered = True
        if reader.job.stream and reader.gone_at is not None:
            self._departing.append(reader)

    def look(self, now: float) -> None:
        """A second has passed in silence."""
        reader = self.next_to_look()
        if reader.gone_at is not None:
            self._departing.append(reader)
        else:
            reader.since = now
            self._events.append(Pinged(now, reader.job.id))

    def close_tasks(self, reader: Reader, count: int, now: float) -> None:
        """So many of the reader's sequences are over, in whatever way."""
        reader.open_tasks -= count
        if reader.cancelled and reader.open_tasks == 0 and reader.gone_at is not None:
            self._events.append(
                Cancelled(now, reader.job.id, reader.input_tokens, reader.output_tokens)
            )

    @property
    def told_at(self) -> float:
        """When the first of what was not taken yet happened."""
        return self._events[0].at if self._events else inf

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def fail(self, reader: Reader, event: Event) -> None:
        """An error is the last thing that a reader takes."""
        if not reader.cancelled:
            self.send(reader, event)
            self.cancel(reader)
            self._departing.append(reader)

    def take_departing(self) -> list[Reader]:
        departing, self._departing = self._departing, []
        parted = []
        for reader in departing:
            if reader.open_tasks and not reader.has_parted:
                reader.has_parted = True
                parted.append(reader)
        return parted
