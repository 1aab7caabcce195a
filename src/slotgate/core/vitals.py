"""What is seen of a deployment from outside, at one moment: the watchdog's evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Question(StrEnum):
    """How the latest question for its state fared: `/health`, or `/slots`."""

    NONE = "none"  # it was not asked
    OPEN = "open"  # it has not answered yet
    ANSWERED = "answered"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSigns:
    """A lease that runs there.

    `received` is how many bytes of its answer have come, the head included; None where nothing is
    to come before all of it is there.  `is_held`: we take no more of it in, for its client does
    not.
    """

    lease: str
    ticket: str
    width: int = 1
    prompt_tokens: int = 0
    output_tokens: int = 0
    received: int | None = 0
    is_held: bool = False

    @property
    def is_writing(self) -> bool:
        """Whether its first token has come."""
        return self.output_tokens > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSigns:
    """A slot, as `/slots` shows it; None where the build does not tell.

    `decoded` and `read` are the tokens that its task has written, and read of its prompt.
    """

    id: int
    is_processing: bool
    task: int | None = None
    decoded: int | None = None
    read: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """An answer of `/slots`; `number` counts them, `sent_at` is when it was asked."""

    number: int
    sent_at: float
    slots: tuple[SlotSigns, ...]

    @property
    def processing(self) -> int:
        """How many slots are busy."""
        return sum(slot.is_processing for slot in self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Everything that is seen of a deployment at one moment.

    `prefill` is prompt tokens a second, and `gap` seconds a token of one stream among as many as
    write now, both as measured; None while unknown.  `leaves_reading`: a lease settles whose prompt
    may still be read.  `may_load`: it sleeps or is a router, so that a request may have to wait for
    its model.  `look` is the latest answer of `/slots`, None if there is none or none is to be had
    (`has_slots`).  `outside` and `zombies` are slots that work for others, and for requests
    of ours that are over.  `served` counts the answers that have come to their end, and `errors`
    the answers "Compute error" since the latest of those.
    """

    now: float
    streams: tuple[StreamSigns, ...] = ()
    prefill: float | None = None
    gap: float | None = None
    leaves_reading: bool = False
    may_load: bool = False
    health: Question = Question.ANSWERED
    slots: Question = Question.ANSWERED
    has_slots: bool = True
    look: Look | None = None
    outside: int = 0
    zombies: int = 0
    served: int = 0
    errors: int = 0
