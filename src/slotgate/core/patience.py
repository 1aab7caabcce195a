"""How long a ticket is held back for the deployment that remembers its session.

    until = arrival + min(half of the saved seconds, the operator's patience, a fifth of its budget)

if that deployment has no slot for it just now, and saves more than the wait for one is expected to
take.  What is saved is the reading of what it holds of the prompt, where the ticket would run
instead.  Until then the ticket *lingers*: others pass, and it runs there as soon as it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.core.forecast import Forecast
    from slotgate.core.matcher import Match
    from slotgate.core.pool import SlotPool
    from slotgate.core.waiter import Waiter

_PART_OF_SAVED = 0.5
_PART_OF_BUDGET = 0.2


class Hope(NamedTuple):
    """Where a ticket would rather run than where it may now, and until when it waits for that."""

    pool: SlotPool
    until: float


def hope_of(
    match: Match,
    pools: Iterable[SlotPool],
    *,
    patience: float,
    forecast: Forecast,
    others: Iterable[Waiter],
    now: float,
) -> Hope | None:
    """Return what to wait for instead of running where the match is; None if nothing.

    `pools` are those in which it could ever run, `others` those that linger already.
    """
    waiter, here, _, _ = match
    ticket, width = waiter.ticket, waiter.shape.width
    patience = min(patience, _PART_OF_BUDGET * (ticket.deadline - ticket.arrival))
    if waiter.since + patience <= now or waiter.patience_ends <= now:
        return None
    # Most that waits is remembered nowhere else.
    best, unread = here, here.unread_of(ticket)
    for pool in pools:
        if pool.headroom < width and (its := pool.unread_of(ticket)) < unread:
            best, unread = pool, its
    read = here.pace.read or best.pace.read
    if best is here or read is None:
        return None
    saved = (here.unread_of(ticket) - unread) * read
    until = min(waiter.since + min(patience, _PART_OF_SAVED * saved), waiter.patience_ends)
    if until <= now:
        return None
    ahead = sum(other.shape.awaits == best.id for other in others)
    wait = forecast.wait_at(best, waiter, ahead, now)
    return Hope(best, until) if wait is not None and wait < saved else None
