"""The plan: how many slots of how much context a model is given, what that takes, and why.

A plan is a value: everything that a report, a program or a chart shows of it is in it.  It never
counts on a pool that could overflow: unless the user asks for that in so many words, each slot's
tokens are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slotgate.capacity.command import command_of
from slotgate.capacity.host_costs import HostCosts, host_costs
from slotgate.capacity.search import Search
from slotgate.capacity.settings import PAD_TOKENS
from slotgate.capacity.table import TableRow, table_of
from slotgate.capacity.usage import Usage, Uses
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.devices import DeviceSet
    from slotgate.capacity.model import Model
    from slotgate.capacity.wish import Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was planned of what was asked.

    `usage` is the chosen row.  `table` is what else would fit.
    `bytes_per_token` is what a token more takes in one slot beyond the windows, `bytes_per_slot`
    what a slot more takes at the same context; 0 where there can be no more.
    """

    model: Model
    devices: DeviceSet
    wish: Wish
    usage: Usage
    host: HostCosts
    table: tuple[TableRow, ...]
    bytes_per_token: int
    bytes_per_slot: int
    command: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.usage.fits

    @property
    def slots(self) -> int:
        return self.usage.settings.n_seq

    @property
    def ctx_per_slot(self) -> int:
        """Tokens that each slot can use, as `/slots` will show them."""
        memory, settings = self.usage.memory, self.usage.settings
        if settings.unified and self.wish.ctx_size is None:
            return min(settings.n_ctx // settings.n_seq, memory.n_ctx_train)
        return memory.n_ctx_slot

    @property
    def overcommitted(self) -> bool:
        """Whether the slots together may want more than the pool has, which would fail them all."""
        return self.ctx_per_slot * self.slots > self.usage.memory.n_ctx

    def concurrent_requests(self, tokens: int) -> int:
        """How many requests of so many tokens, prompt and answer, run at once without waiting."""
        if tokens > self.ctx_per_slot:
            return 0
        if self.overcommitted:
            return min(self.slots, self.usage.memory.n_ctx // tokens)
        return self.slots


def make_plan(model: Model, devices: DeviceSet, wish: Wish) -> Plan:
    """Choose what the wish leaves open, and work out what that takes.

    Raises PlanRefused where llama.cpp would refuse what was asked, ConfigError if no memory is
    known.  What does not fit is planned nevertheless: the plan says so.
    """
    uses = Uses(model, devices, wish)
    usage = Search(model, uses, wish).choose()
    layers = usage.placement.n_gpu_layers
    host = host_costs(model, usage, wish)
    return Plan(
        model=model,
        devices=devices,
        wish=wish,
        usage=usage,
        host=host,
        table=table_of(model, devices, wish, layers),
        bytes_per_token=_more_tokens(uses, usage) // PAD_TOKENS,
        bytes_per_slot=_one_slot_more(uses, usage),
        command=command_of(model, usage, wish, host),
    )


def _more_tokens(uses: Uses, usage: Usage) -> int:
    """Bytes of context for one step of tokens more in one slot."""
    settings = usage.settings
    streams = settings.n_seq if not settings.unified else 1
    longer = replace(settings, n_ctx=usage.memory.n_ctx + streams * PAD_TOKENS)
    more = uses.of(longer, usage.placement.n_gpu_layers).context_bytes - usage.context_bytes
    return more // streams


def _one_slot_more(uses: Uses, usage: Usage) -> int:
    """Bytes of context and scratch for one slot more of the same context."""
    settings = usage.settings
    each = usage.memory.n_ctx // settings.n_seq
    try:
        wider = replace(settings, n_seq=settings.n_seq + 1, n_ctx=each * (settings.n_seq + 1))
        more = uses.of(wider, usage.placement.n_gpu_layers)
    except PlanRefused:
        return 0
    return more.context_bytes - usage.context_bytes
