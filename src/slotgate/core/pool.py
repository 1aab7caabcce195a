"""The slots of one deployment: who holds them, and how many may be handed out now.

A lease is *running* from its grant until its ticket leaves, and may then be *settling*: the
upstream is closed, but llama-server may need up to a whole batch to notice, and until then the
slot is not free.  Handing it out early would queue the next request inside llama-server, where
there is no deadline and no leaving.

A running lease is *reading* until its first token comes, then *writing*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from slotgate.core.affinity import Prefixes, Stay
from slotgate.core.deployment import State
from slotgate.core.free_pools import FreePools
from slotgate.core.speeds import Speeds
from slotgate.core.waiter import BEYOND, SHORT_PROMPT_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.core.deployment import DeploymentReport
    from slotgate.core.limit import ConcurrencyPolicy
    from slotgate.core.residency import Seat
    from slotgate.core.speeds import Pace
    from slotgate.core.ticket import Ticket
    from slotgate.core.waiter import Shape, Waiter

# States in which it may serve newcomers; a tuple, as the hash of a state is slow.
_UP = (State.READY, State.DEGRADED)
_STANDINGS = {State.READY: 2, State.DEGRADED: 1}
# What it says when its slots hold nothing any more, or nobody knows what.
_RESTARTING = (State.STARTING, State.LOADING, State.DOWN)


@dataclass(slots=True, eq=False, kw_only=True)
class Lease:
    """The right to some slots of a deployment, and what has been used by it so far.

    `kv_tokens` of a shared cache are kept for it, and each of its sequences may write at most
    `output_clamp` (None: as much as it asks).  `billed_input` is what its tenant was charged for
    the prompt, `held_back` how many of its slots count for its class, which leaves some to others,
    and `is_stopped` says that it was told to end.  The rest is for measuring: how long
    it is expected to last (mean, deviation) and when that was thought; when its first token came;
    and when it last told of tokens and how many sequences of the deployment wrote then; and
    `stay`, which is set at its grant, knows what of its prompt the cache should have, so that
    `unread` tokens of it are left to read.
    """

    id: str
    waiter: Waiter
    pool: SlotPool
    since: float
    settles_by: float | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    output_clamp: int | None = None
    kv_tokens: int = 0
    billed_input: int = 0
    first_token_at: float | None = None
    rest: tuple[float, float] = (0.0, 0.0)
    rest_seen_at: float = -inf
    held_back: int = 0
    is_stopped: bool = False
    metered_at: float = 0.0
    metered_writing: int = 0
    stay: Stay = field(init=False, repr=False)
    unread: float = 0.0

    @property
    def width(self) -> int:
        """Slots that it takes."""
        return self.waiter.shape.width

    @property
    def prompt_tokens(self) -> int:
        """The length of its prompt: as counted by the backend, or else as estimated."""
        return self.input_tokens or self.waiter.ticket.input_tokens

    @property
    def written(self) -> int:
        """Tokens that each of its sequences has written, on average."""
        return self.output_tokens // self.waiter.shape.width

    @property
    def output_bound(self) -> float:
        """The most that each of its sequences may write by our word."""
        return inf if self.output_clamp is None else self.output_clamp

    @property
    def left_behind(self) -> int:
        """Tokens that its slot holds for its session; none of a prompt that was not read."""
        return 0 if self.first_token_at is None else self.prompt_tokens + self.written

    @property
    def is_long_read(self) -> bool:
        """Whether its prompt is a long one, and not yet read."""
        return self.first_token_at is None and self.unread > SHORT_PROMPT_TOKENS


class SlotPool:
    """The books of one deployment.

    The number of slots may change at any time.  Lowering it below what is held revokes nothing:
    leases end by themselves, and none starts meanwhile.
    """

    def __init__(self, report: DeploymentReport, concurrency: ConcurrencyPolicy) -> None:
        self.id = report.id
        # The more, the earlier it was added to its model.
        self.seniority = 0
        self.speeds = Speeds()
        # Slots taken, by whomever; and its speeds with one sequence more, as of when they were
        # first asked for since the last report, grant or end (None: not yet).
        self.busy = 0
        self._pace: Pace | None = None
        # What its slots hold of the sessions that it served last.
        self.prefixes = Prefixes()
        # How many slots are worth using, by the gaps between tokens.
        self.limit = BEYOND
        self.concurrency = concurrency
        # Where it is listed while it has slots to hand out.
        self._free = FreePools()
        # Tokens of prompts that are being read, without what the cache should have of them: of all,
        # and of the long ones.
        self.unread = self.long_reading = 0.0
        # Leases that read anything; sequences that write; and since when nothing is read.
        self._reading = self.writing = 0
        self.quiet_since = -inf
        # Its place in the memory of a router, where it belongs to one.
        self.seat: Seat | None = None
        # When a lease last began, and when the last one ended.
        self.begun_at = self.ended_at = -inf
        # Tokens of a shared KV cache that are kept for leases.
        self.kv_reserved = 0
        # Slots held by classes that leave a part of them free.
        self.held_back = 0
        # Lease id -> lease, by grant.
        self.running: dict[str, Lease] = {}
        # Lease id -> lease, by the end of their running.
        self.settling: dict[str, Lease] = {}
        self._held_slots = 0
        # The operator's hold: PAUSED, DRAINING or DOWN; None leaves it to the reported state.
        self.hold: State | None = None
        # Whether it has ever said that it is ready, hence how many slots it has.
        self.was_ready = False
        # Until when it is expected back, if it is down.
        self.expected_until = -inf
        # How often it has come back from where it took no newcomers.
        self.revivals = 0
        self.state = State.DOWN
        self.reported = report.state
        # Whether nothing better serves the model, so that it is used however it fails.
        self._is_best = False
        self.update(report, -inf)

    # Events.

    def attach(self, free: FreePools, number: int) -> None:
        """Be listed in `free`, and nowhere else, as long as slots may be handed out."""
        if self._free is not free:
            self._free.discard(self)
            self._free, self.seniority = free, -number
            self._recount_headroom()

    def update(self, report: DeploymentReport, now: float) -> None:
        """Take over what was learned; what the operator holds stays held."""
        if self.reported in _UP and report.state not in _UP:
            self.expected_until = now + report.restart_grace
        if report.state in _RESTARTING:
            self.forget_sessions()
        self.model = report.model
        self.slots = report.slots
        self.outside = report.outside
        self.ctx_per_slot = report.ctx_per_slot
        self.kv_pool_tokens = report.kv_pool_tokens
        self.reported = report.state
        self.is_ejected = report.is_ejected
        self.was_ready = self.was_ready or report.state in _UP
        self.is_removed = False
        self._recount()

    def forget_sessions(self) -> None:
        """Note that its slots hold nothing any more."""
        self.prefixes = Prefixes()

    def sit(self, seat: Seat | None) -> None:
        """Take a seat, or one that was opened or closed since; None: it needs none."""
        self.seat = seat
        self._recount_headroom()

    def remove(self) -> None:
        """Serve nothing any more, and start afresh with the next report, if there is one."""
        self.is_removed = True
        self.expected_until = -inf
        self.hold = None
        self.was_ready = False
        self._recount()

    def set_hold(self, hold: State | None) -> None:
        """Put the operator's hold on it, or lift it."""
        self.hold = hold
        self._recount()

    def set_best(self, *, is_best: bool) -> None:
        """Use it to its whole limit, however it fails, or only as far as it is trusted."""
        if self._is_best is not is_best:
            self._is_best = is_best
            self._recount()

    def begin(self, lease: Lease) -> None:
        """Hand out the slots of the lease."""
        self.running[lease.id] = lease
        self.begun_at = lease.since
        ticket = lease.waiter.ticket
        lease.stay = self.prefixes.begin(ticket.affinity, ticket.input_tokens)
        lease.unread = ticket.input_tokens - lease.stay.expected
        width, _, _, holdback, *_ = lease.waiter.shape
        self._held_slots += width
        self.kv_reserved += lease.kv_tokens
        lease.held_back = width if holdback else 0
        self.held_back += lease.held_back
        self._reading += 1
        self.unread += lease.unread
        self.long_reading += lease.unread if lease.is_long_read else 0.0
        self._recount_held()

    def started_writing(self, lease: Lease, now: float) -> None:
        """Note that the lease's first token has come: its prompt is read."""
        self._stop_reading(lease, now)
        lease.first_token_at = now
        self.writing += lease.width
        if self.seat is not None:
            self.seat.answered(now)

    def _stop_reading(self, lease: Lease, now: float) -> None:
        if lease.is_long_read:
            self.long_reading -= lease.unread
        self.unread -= lease.unread
        self._reading -= 1
        if not self._reading:
            # Sums of fractions leave a rest.
            self.unread = self.long_reading = 0.0
            self.quiet_since = now
        if self.headroom:
            self._free.add(self)

    def _stop_running(self, lease: Lease, now: float) -> None:
        if lease.first_token_at is None:
            self._stop_reading(lease, now)
        else:
            self.writing -= lease.width

    def know_prompt(self, lease: Lease, bound: int) -> None:
        """Keep no more of a shared cache for a prompt than it has, now that it was counted."""
        if lease.kv_tokens:
            surplus = bound - lease.input_tokens
            lease.kv_tokens -= surplus
            self.kv_reserved -= surplus

    def keep(self, lease: Lease, tokens: int) -> None:
        """Keep so many tokens of a shared cache for a lease, instead of what was kept."""
        self.kv_reserved += tokens - lease.kv_tokens
        lease.kv_tokens = tokens

    def settle(self, lease: Lease, now: float) -> None:
        """Stop counting the lease as running, but not yet its slots as free."""
        self.settling[lease.id] = self.running.pop(lease.id)
        self._stop_running(lease, now)

    def end(self, lease: Lease, now: float) -> None:
        """Take the slots of the lease back."""
        if self.running.pop(lease.id, None) is not None:
            self._stop_running(lease, now)
        else:
            del self.settling[lease.id]
        self.ended_at = now
        self._held_slots -= lease.waiter.shape.width
        self.kv_reserved -= lease.kv_tokens
        self.held_back -= lease.held_back
        lease.stay.end(lease.id, lease.left_behind)
        self._recount_held()

    def relimit(self, now: float) -> bool:
        """Ask anew how many slots are worth using; True if more are than before."""
        before = self.limit
        limit = self.concurrency.limit(self.slots, self.speeds.gaps, now)
        # All of them is no limit, nor is it one when there are more.
        self.limit = limit if limit < self.slots else BEYOND
        self._recount_headroom()
        return self.limit > before

    def _recount(self) -> None:
        # What it can be used for now: the operator's word, unless it is down anyway.
        was_up = self.state in _UP
        learned = self.reported
        if learned is State.DOWN and self.is_ejected and self._is_best:
            learned = State.DEGRADED
        if self.is_removed or learned is State.DOWN:
            self.state = State.DOWN
        else:
            self.state = learned if self.hold is None else self.hold
        if self.state in _UP and not was_up:
            self.revivals += 1
        # Whether it has failed, and has to show with one request at a time that it serves again.
        self.is_on_trial = self.state is State.DEGRADED and not self._is_best
        # Slots that are ours to hand out, free or not; none while it serves no newcomers.
        self.usable = self.slots - self.outside if self.state in _UP else 0
        if self.is_on_trial:
            self.usable = min(1, self.usable)
        self._recount_held()

    def _recount_held(self) -> None:
        self.busy = busy = min(self.slots, self._held_slots + self.outside)
        self.prefixes.keep_only(self.slots - busy)
        self._pace = None
        self._recount_headroom()

    def _recount_headroom(self) -> None:
        # Slots that may be handed out now: within the limit, and whatever the limit.
        self.slack = max(0, self.usable - self._held_slots)
        self.headroom = max(0, min(self.usable, self.limit) - self._held_slots)
        if self.awaits_turn:
            self.slack = self.headroom = 0
        if self.headroom:
            self._free.add(self)
        else:
            self._free.discard(self)

    # Questions.

    @property
    def pace(self) -> Pace:
        """Its speeds with one sequence more."""
        if self._pace is None:
            self._pace = self.speeds.pace(self.busy + 1)
        return self._pace

    @property
    def standing(self) -> int:
        """How far it is to be trusted: ready, on trial, ejected; negative if it cannot be used."""
        if self.is_removed or self.hold is not None:
            return -1
        if self.reported is State.DOWN and self.is_ejected:
            return 0
        return _STANDINGS.get(self.reported, -1)

    @property
    def awaits_turn(self) -> bool:
        """Whether it is a router's, and must not be asked for before its turn."""
        return self.seat is not None and not self.seat.is_open

    @property
    def is_gone(self) -> bool:
        """Whether it was removed, and its last lease has ended."""
        return self.is_removed and self.is_empty

    def had_to_load(self, lease: Lease) -> bool:
        """Whether the lease's first token had to wait until the model was loaded."""
        return self.seat is not None and self.seat.has_loaded_for(lease.since)

    @property
    def is_quiet(self) -> bool:
        """Whether no prompt is being read, which would stall those that write."""
        return self._reading == 0

    def unread_of(self, ticket: Ticket) -> float:
        """Return the tokens of a prompt that would have to be read here."""
        tokens, session = ticket.input_tokens, ticket.affinity
        return tokens if session is None else tokens - self.prefixes.expected(session, tokens)

    def leases(self) -> Iterator[Lease]:
        """Return all leases, running and settling."""
        return chain(self.running.values(), self.settling.values())

    @property
    def count(self) -> int:
        """How many leases there are."""
        return len(self.running) + len(self.settling)

    def leaves_free(self, shape: Shape) -> bool:
        """Whether the shape's class would still leave its part of the slots to others."""
        most = self.usable - int(shape.holdback * self.usable)
        return self.held_back + shape.width <= most

    @property
    def kv_left(self) -> float:
        """Tokens of a shared KV cache that nobody has been promised; infinite if none is shared."""
        return inf if self.kv_pool_tokens is None else self.kv_pool_tokens - self.kv_reserved

    @property
    def kv_used(self) -> int:
        """Tokens of a shared KV cache that our leases have in it, as far as is known."""
        return sum(lease.prompt_tokens + lease.output_tokens for lease in self.leases())

    def is_expected(self, now: float) -> bool:
        """Whether it went away a moment ago, and may be back in another to serve newcomers."""
        is_taking = self.hold is None or self.hold is State.PAUSED
        return self.reported is State.DOWN and is_taking and now < self.expected_until

    @property
    def is_empty(self) -> bool:
        """Whether no lease is left, running or settling."""
        return not self.running and not self.settling

    def holds(self, context: int) -> bool:
        """Whether a slot has that much context; an unknown context is taken to be enough."""
        return self.ctx_per_slot is None or context <= self.ctx_per_slot

    def is_made_for(self, shape: Shape) -> bool:
        """Whether the shape is known to fit, were it ready and nobody else there."""
        return self.was_ready and self.may_be_made_for(shape)

    def may_be_made_for(self, shape: Shape) -> bool:
        """Whether nothing that is known of it says that the shape never fits."""
        is_wide_enough = not self.was_ready or self.slots >= shape.width
        return is_wide_enough and self.holds(shape.context)

    def could_fit(self, shape: Shape) -> bool:
        """Whether the shape would fit if all our leases ended."""
        return self.usable >= shape.width and self.holds(shape.context)
