"""Waiting in sight of the client: comments in the stream, for clients that asked for them.

A client that holds its head can be refused with a status, and its SDK tries again.  That is worth
more than to see the queue, so comments are only for those who say `x-slotgate-wait: comments`:
after their first second of waiting the head is sent, and then a comment each second, or when the
position changes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.http.problems import queue_position_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.core.clock import Clock
    from slotgate.core.decision import Granted
    from slotgate.core.snapshot import WaitingView
    from slotgate.http.call import Call
    from slotgate.http.replies import Headers
    from slotgate.runtime.lease import Lease

WAIT_HEADER = b"x-slotgate-wait"
WITH_COMMENTS = b"comments"
# Who gets a slot sooner never sees a comment, and can still be refused with a status.
QUIET_SECONDS = 1.0
COMMENT_SECONDS = 1.0
# Positions are looked at so often, for all clients of a tenant together.
LOOK_SECONDS = 0.25

HEAD: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
]


class Positions:
    """Where the waiting stand, asked of the scheduler at most every `LOOK_SECONDS` a tenant."""

    def __init__(self, waiting_of: Callable[[str], tuple[WaitingView, ...]], clock: Clock) -> None:
        self._waiting_of = waiting_of
        self._clock = clock
        # Tenant -> when it was asked, and how its tickets stand, by id.
        self._seen: dict[str, tuple[float, dict[str, WaitingView]]] = {}

    def of(self, tenant: str, ticket_id: str) -> WaitingView | None:
        """Return how a ticket stands; None if it does not wait."""
        now = self._clock.now()
        asked, views = self._seen.get(tenant, (-LOOK_SECONDS, {}))
        if now - asked >= LOOK_SECONDS or ticket_id not in views:
            views = {view.ticket.id: view for view in self._waiting_of(tenant)}
            self._seen[tenant] = (now, views)
        return views.get(ticket_id)


@dataclass(slots=True)
class Comments:
    """Which comments one waiting client gets."""

    said_after: float = QUIET_SECONDS - COMMENT_SECONDS
    position: int | None = None

    def due(self, waited: float, position: int) -> bytes | None:
        """Return what to say after so many seconds of waiting, None if nothing is due."""
        has_moved = self.position is not None and position != self.position
        if waited < QUIET_SECONDS:
            return None
        if not has_moved and waited - self.said_after < COMMENT_SECONDS:
            return None
        self.said_after, self.position = waited, position
        return b": queued position=%d wait=%.1fs\n\n" % (position, waited)


async def wait_with_comments(
    call: Call, lease: Lease, positions: Positions, clock: Clock
) -> Granted:
    """Wait for the grant, as `Lease.wait` does, and say how it goes meanwhile."""
    comments = Comments()
    ticket = call.ticket
    while True:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await lease.wait()
        except TimeoutError:
            # A decision that came in the same moment is found in the next round.
            view = positions.of(ticket.tenant, ticket.id)
        if view is None:
            continue
        comment = comments.due(clock.now() - ticket.arrival, view.position)
        if comment is not None:
            await call.begin(200, [*HEAD, *_known_headers(call, view)])
            await call.request.send_part(comment)


def _known_headers(call: Call, view: WaitingView) -> Headers:
    request_id = (b"x-request-id", call.request.id.encode())
    return [request_id, queue_position_header(view.first_position)]
