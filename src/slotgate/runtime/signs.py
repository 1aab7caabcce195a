"""What a backend's probe has asked, and what was answered: the watchdog's evidence."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from slotgate.core.vitals import Look, Question, SlotSigns
from slotgate.errors import BackendError, BackendTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.wire.llama_cpp import SlotView


class Asked:
    """How the latest questions of each kind fared, and the latest look at the slots."""

    def __init__(self) -> None:
        self.health = self.slots = Question.NONE
        self.look: Look | None = None

    @contextmanager
    def asking_health(self) -> Iterator[None]:
        """Note how the question within the block fares."""
        self.health = Question.OPEN
        try:
            yield
        except BackendError as error:
            self.health = _of(error)
            raise
        self.health = Question.ANSWERED

    @contextmanager
    def asking_slots(self) -> Iterator[None]:
        """Note how the question within the block fares."""
        self.slots = Question.OPEN
        try:
            yield
        except BackendError as error:
            self.slots = _of(error)
            raise
        self.slots = Question.ANSWERED

    def looked(self, slots: tuple[SlotView, ...], sent_at: float) -> None:
        """Keep what `/slots` has shown, as it was asked then."""
        number = 0 if self.look is None else self.look.number + 1
        signs = tuple(
            SlotSigns(
                id=slot.id,
                is_processing=slot.is_processing,
                task=slot.id_task,
                decoded=slot.n_decoded,
                read=slot.n_prompt_processed,
            )
            for slot in slots
        )
        self.look = Look(number=number, sent_at=sent_at, slots=signs)


def _of(error: BackendError) -> Question:
    # Whoever refuses a connection does not hang: it is down, which is another matter.
    return Question.TIMED_OUT if isinstance(error, BackendTimeoutError) else Question.NONE
