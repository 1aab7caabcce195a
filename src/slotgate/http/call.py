"""One call on its way through the data plane: what it carries along, and how it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slotgate.http.problems import predicted_wait_header, queue_position_header
from slotgate.http.replies import answer
from slotgate.runtime.failover import Tries
from slotgate.telemetry.metrics import Outcome, Phase
from slotgate.wire.clamp import lowers
from slotgate.wire.cutoff import cut_off

if TYPE_CHECKING:
    from slotgate.core.decision import Granted
    from slotgate.core.ticket import Ticket
    from slotgate.http.problems import Problem
    from slotgate.http.replies import Headers
    from slotgate.http.request import Request
    from slotgate.wire.request import Prepared
    from slotgate.wire.resume import Written
    from slotgate.wire.routes import Route, Shape

# How often one that was stopped to save others is: it may have been the wrong one.
SPARED = 1
# How often an answer that broke after its first byte is gone on with, where its client asked.
RESUMPTIONS = 2
# What ends a frame that was begun, so that an event of ours can follow.
FRAME_END = b"\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCall:
    """A request that takes no slot, and what is asked of the backend for it."""

    request: Request
    shape: Shape | None
    target: str
    body: bytes


@dataclass(slots=True, kw_only=True)
class Call:
    """What one call carries along.

    `deadline_setting` names what set its deadline.  `shows_wait`: its client wants to see comments
    while it waits.  Then `head_sent` may be true long before `has_begun`, which says that the
    backend's answer has begun: until then it can still be tried elsewhere.  After it, the rest of
    an answer can be, if the client has asked for that; `written` is what it has of it then, and
    `asked` the request as it was, `prepared` being that for the rest.
    """

    request: Request
    route: Route
    shape: Shape
    prepared: Prepared
    ticket: Ticket
    deadline_setting: str
    shows_wait: bool = False
    tries: Tries = field(default_factory=Tries)
    spared: int = SPARED
    resumptions: int = RESUMPTIONS
    written: Written | None = None
    asked: Prepared | None = None
    backend: str = ""
    phase: Phase = Phase.WAITING
    head_sent: bool = False
    has_begun: bool = False
    is_between_frames: bool = True
    # The last bytes of its answer that were sent, and how many tokens came in all.
    last_sent: bytes = b""
    output_tokens: int = 0
    outcome: Outcome = Outcome.FAILED
    reason: str = ""

    @property
    def may_resume(self) -> bool:
        """Whether its answer may be gone on with elsewhere, should it break now."""
        return self.prepared.may_resume and self.resumptions > 0

    def granted_headers(self, granted: Granted) -> Headers:
        """What an answer says of its way through admission."""
        self.backend = granted.deployment
        headers = [
            (b"x-request-id", self.request.id.encode()),
            (b"x-slotgate-backend", granted.deployment.encode()),
            (b"x-slotgate-queue-ms", b"%d" % round(granted.waited * 1000)),
            queue_position_header(granted.position),
        ]
        if granted.waited > 0:
            headers += predicted_wait_header(granted.predicted_wait)
        clamp = granted.output_clamp
        if lowers(self.shape, self.prepared, clamp):
            headers.append((b"x-slotgate-output-clamp", b"%d" % (clamp or 0)))
        return headers

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the head, unless comments had to have one."""
        if not self.head_sent:
            self.head_sent = True
            await self.request.send_head(status, headers)

    async def end_with(self, problem: Problem) -> None:
        """End with an error of ours: an answer, or an event in what has begun."""
        if self.head_sent:
            await self.end_in_band(problem.event(self.shape))
        else:
            await answer(self.request, self.shape, problem)

    async def fail_with(self, problem: Problem) -> None:
        """End with a backend's failure."""
        self.outcome, self.reason = Outcome.FAILED, problem.code
        await self.end_with(problem)

    async def end_stopped(self, problem: Problem) -> None:
        """End what the scheduler has stopped: like an answer at its limit if it has begun."""
        width, tokens = self.ticket.width, self.output_tokens
        end = cut_off(self.shape, self.last_sent, width=width, output_tokens=tokens)
        if end is None:
            await self.end_with(problem)
        else:
            await self.request.send_part(end, is_last=True)

    async def end_in_band(self, event: bytes) -> None:
        """End a stream that has begun with one more event."""
        gap = b"" if self.is_between_frames else FRAME_END
        await self.request.send_part(gap + event, is_last=True)
