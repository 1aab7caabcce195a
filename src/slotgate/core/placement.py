"""Where a ticket runs: which of the deployments that it fits.

Placement says *where* the next ticket runs, never *whose* turn it is: that is the queue's, and so
no session gets ahead of others for being remembered somewhere.
"""

from __future__ import annotations

from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket


_PREFERENCE = attrgetter("headroom", "seniority")
# Seconds a token while nothing is known of any deployment; only their proportion matters.
_USUAL_READ, _USUAL_GAP = 0.001, 0.03


class Placement(Protocol):
    """Chooses a deployment for a ticket, at the moment of its grant."""

    def choose(self, ticket: Ticket, pools: Sequence[SlotPool], lengths: Lengths) -> SlotPool:
        """Return one of the pools; there is at least one, and the ticket fits each.

        Slots and context, that is: the KV budget is asked for the chosen one alone, and where that
        has no room, the others are offered again.
        """


class MostHeadroom:
    """The deployment with the most free slots; among equals, the one added first.

    Every running sequence slows down its neighbours, so spreading them is faster than packing.
    """

    def choose(self, ticket: Ticket, pools: Sequence[SlotPool], lengths: Lengths) -> SlotPool:
        """Return the pool with the most headroom."""
        return max(pools, key=_PREFERENCE) if len(pools) > 1 else pools[0]


class PredictedFinish:
    """The deployment where the answer is expected to be complete first, stalling few others.

        seconds = (unread + (prompt - cached) stalled) read + E[output] gap(busy + 1)

    with the deployment's own speeds as they were measured: `read` seconds for a prompt token, `gap`
    from token to token with one more sequence than there are.  `unread` is what it still has to
    read for others, and `cached` what it is expected to hold of the ticket's session.  So fast
    machines get more than slow ones, the work spreads over equal ones, and a session goes where it
    was before if a slot is free there, unless another place is faster all the same.

    A prompt that is read stalls all who write there, so its time counts for each of them too:
    `stalled` is 1 and as many as are busy on average where the ticket might run.  Counted once, it
    would be worth less than a place with two or three sequences fewer: sessions wander, a third
    fewer of their tokens are found in a cache, and all are later for it, as everybody waits while
    everything is read again (`python -m bench.placement`).

    What is not known of a deployment is taken to be as good as the best of the others, so that a
    new one is tried and then known.  Equals go by headroom, then seniority.
    """

    def choose(self, ticket: Ticket, pools: Sequence[SlotPool], lengths: Lengths) -> SlotPool:
        """Return the pool with the fewest seconds to the end."""
        if len(pools) == 1:
            return pools[0]
        # Lists and no generators: a gateway may have many deployments.
        output = lengths.mean(ticket)
        stalled = 1 + sum([pool.busy for pool in pools]) / len(pools)
        paces = [pool.pace for pool in pools]
        usual_read = min([read for read, _ in paces if read], default=_USUAL_READ)
        usual_gap = min([gap for _, gap in paces if gap], default=_USUAL_GAP)
        unread: float = ticket.input_tokens
        best, fewest = pools[0], inf
        for pool, (read, gap) in zip(pools, paces, strict=True):
            if ticket.affinity is not None:
                unread = pool.unread_of(ticket)
            tokens = pool.unread + stalled * unread
            seconds = tokens * (read or usual_read) + output * (gap or usual_gap)
            if seconds < fewest or (seconds == fewest and _PREFERENCE(pool) > _PREFERENCE(best)):
                best, fewest = pool, seconds
        return best
