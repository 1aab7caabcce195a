"""How long a request's prompt is: estimated for nothing, counted where the decision hangs on it.

A backend counts a prompt without a slot (its `input_tokens` routes), but that takes a round trip.
It is worth one in three cases:

- the pool is busy, and the prompt may or may not fit a context of its deployments: who cannot fit
  is told now, not after it has waited for a slot;
- the slots share one pool of context, and the prompt is not short: what is reserved there must be
  right, or all that runs there dies;
- the scheduler says that it hangs on the length whether there is time enough.

Rule: counting never fails a request.  What cannot be counted in time stays estimated, and an
estimate alone never refuses for its length: it stays below the largest context.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from slotgate.errors import BackendError, ExchangeClosedError
from slotgate.http.problems import context_exceeded
from slotgate.http.replies import forwarded_headers
from slotgate.http.request import ProblemError
from slotgate.net.interruption import Interruption
from slotgate.runtime.prompt_sizes import PromptSize, PromptSizes
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from slotgate.core.ticket import Ticket
    from slotgate.http.call import Call
    from slotgate.http.request import Request
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.fleet import Fleet
    from slotgate.wire.request import Prepared

# Where a prompt's exact length can be asked without taking a slot.
COUNTING_TARGETS = {
    Shape.CHAT: "/v1/chat/completions/input_tokens",
    Shape.RESPONSES: "/v1/responses/input_tokens",
    Shape.MESSAGES: "/v1/messages/count_tokens",
}
COUNT_SECONDS = 1.0
# A prompt this short is reserved well enough by estimate.
SHORT_TOKENS = 64


class Measuring:
    """Gives tickets the length of their prompts."""

    def __init__(self, driver: Driver, fleet: Fleet, sizes: PromptSizes) -> None:
        self._driver = driver
        self._fleet = fleet
        self.sizes = sizes

    def estimated(self, tenant: str, model: str, prepared: Prepared) -> PromptSize:
        """Return how long a prompt probably is; its `tokens` are below the largest context."""
        size = self.sizes.estimate(tenant, model, prepared.text_bytes)
        largest = self._fleet.largest_context(model)
        if largest is None or size.tokens < largest:
            return size
        return PromptSize(largest - 1, size.low, size.high)

    async def measured(self, call: Call, size: PromptSize) -> Ticket:
        """Return the ticket of a call, with its prompt's length counted if it must be.

        Raises `ProblemError` when the prompt was counted and fits no slot, and
        `ExchangeClosedError` when the client leaves meanwhile.
        """
        ticket = call.ticket
        target = COUNTING_TARGETS.get(call.shape)
        if target is None or not self._must_be_counted(ticket, size):
            return ticket
        counted = await self._count(call.request, target, call.prepared, ticket.model)
        if counted is None:
            return ticket
        largest = self._fleet.largest_context(ticket.model)
        if largest is not None and counted >= largest:
            raise ProblemError(context_exceeded(counted, largest))
        return replace(ticket, input_tokens=counted, input_is_exact=True)

    def _must_be_counted(self, ticket: Ticket, size: PromptSize) -> bool:
        if self._fleet.kv_pool_tokens(ticket.model) is not None and size.tokens > SHORT_TOKENS:
            return True
        contexts = self._fleet.contexts(ticket.model)
        may_not_fit = bool(contexts) and size.high >= max(contexts)
        if may_not_fit or any(size.low < context <= size.high for context in contexts):
            return self._fleet.is_busy()
        return self._driver.hangs_on_length(ticket, size.low, size.high)

    async def _count(
        self, request: Request, target: str, prepared: Prepared, model: str
    ) -> int | None:
        """Ask a backend; None if it cannot tell in time."""
        backend = self._fleet.any_backend(model)
        if backend is None:
            return None
        headers = forwarded_headers(request)
        try:
            with Interruption() as counting:
                request.on_leaving(counting.interrupt)
                async with asyncio.timeout(COUNT_SECONDS):
                    return await backend.count_tokens(target, prepared.body, headers)
        except (BackendError, TimeoutError):
            return None  # an older build, or a busy one
        finally:
            request.on_leaving(None)
        raise ExchangeClosedError("the client left while its prompt was counted")
