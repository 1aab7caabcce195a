"""How long a request's prompt is: estimated for nothing, counted where the decision hangs on it.

A backend counts a prompt without a slot (`wire.counting`), but that takes a round trip.
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
from slotgate.wire.counting import question_of

if TYPE_CHECKING:
    from slotgate.core.ticket import Ticket
    from slotgate.http.call import Call
    from slotgate.http.request import Request
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.fleet import Fleet
    from slotgate.wire.counting import Question
    from slotgate.wire.request import Prepared

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

        Raises `ProblemError` when a prompt was counted and fits no slot, and
        `ExchangeClosedError` when the client leaves meanwhile.
        """
        ticket = call.ticket
        if not self._must_be_counted(ticket, size):
            return ticket
        question = question_of(call.route, call.prepared.body)
        if question is None:
            return ticket
        lengths = await self._count(call.request, question, ticket.model)
        if not lengths:
            return ticket
        largest = self._fleet.largest_context(ticket.model)
        if largest is not None and max(lengths) >= largest:
            raise ProblemError(context_exceeded(max(lengths), largest))
        # A ticket has one length, and several prompts may fit where that does not.
        if largest is not None and sum(lengths) >= largest:
            return ticket
        return replace(ticket, input_tokens=sum(lengths), input_is_exact=True)

    def _must_be_counted(self, ticket: Ticket, size: PromptSize) -> bool:
        if self._fleet.kv_pool_tokens(ticket.model) is not None and size.tokens > SHORT_TOKENS:
            return True
        contexts = self._fleet.contexts(ticket.model)
        may_not_fit = bool(contexts) and size.high >= max(contexts)
        if may_not_fit or any(size.low < context <= size.high for context in contexts):
            return self._fleet.is_busy()
        return self._driver.hangs_on_length(ticket, size.low, size.high)

    async def _count(self, request: Request, question: Question, model: str) -> list[int]:
        """Ask a backend for the length of each prompt; none if it cannot tell in time."""
        backend = self._fleet.any_backend(model)
        if backend is None:
            return []
        headers = forwarded_headers(request)
        try:
            with Interruption() as counting:
                request.on_leaving(counting.interrupt)
                async with asyncio.timeout(COUNT_SECONDS):
                    counted = [
                        await backend.count_tokens(question.target, body, headers)
                        for body in question.bodies
                    ]
                    return [*counted, *question.known]
        except (BackendError, TimeoutError):
            return []  # an older build, or a busy one
        finally:
            request.on_leaving(None)
        raise ExchangeClosedError("the client left while its prompt was counted")
