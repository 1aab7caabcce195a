"""What a source tells of the cards it sees, before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card as its source describes it.

    Without sizes it has no memory of its own and takes what it likes of the host's.  `shares_host`
    with sizes is a part of the host's memory that the system lets it use.
    """

    name: str
    uuid: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    shares_host: bool = False
    has_display: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The cards a program would see, in the order its runtime numbers them.

    `notes` are for the user to read.  `hints` say why a source could tell nothing, which matters
    where no other could, or where the vendor's card is known to be there.
    """

    cards: tuple[Card, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a machine, or of a container on it."""

    total_bytes: int
    free_bytes: int
