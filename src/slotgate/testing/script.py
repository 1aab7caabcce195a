"""A scheduler test as a script: events sent, decisions expected, and a diff where they differ.

    Script(ready("left"), ready("right")).run('''
        0.0  submit a                  -> granted a on left
        0.0  submit b width=1          -> granted b on right
        0.5  submit c within=5
        5.5  tick                      -> refused c queue_timeout
        6.0  leave a abandoned
        7.0  settled a
    ''')

A step is a time, an event with its arguments, and the decisions that it causes, in order and
separated by commas; a line that begins with `->` continues the step before it.  A refusal may name
its setting, `refused c queue_full by queue.max_waiting`, or leave it out.  Lines that begin with
`#` are remarks.  Events:

    submit TICKET [exact] [width= tenant= class= model= within= tokens= output= bytes= affinity=]
    leave TICKET [served|failed|abandoned|killed] [free|busy]
    settled TICKET [N]          the ticket's Nth lease, by default its first
    requeue TICKET [free|busy] [rest] [within= tokens= output=]
    charge TICKET [input= cached= output=]
    timed TICKET [prompt= prompt_seconds= output= output_seconds=]
    deployment ID [slots= state= outside= ctx= kv= model= room= loaded=]   what is left out stays
    remove | pause | resume | drain | disable | enable ID
    begin_draining
    tick
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import ndiff
from typing import TYPE_CHECKING

from slotgate.core.decision import Abort, Decision, Ending, Granted, Refused
from slotgate.core.deployment import DeploymentReport, Residence, State
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing.clock import FakeClock, FakeDice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.core.clock import Dice
    from slotgate.core.limits import Limits
    from slotgate.core.policies import Policies

_MODEL = "m"
_WITHIN = "30"  # seconds that a ticket waits, where the script does not say


def ready(
    id: str,
    *,
    slots: int = 1,
    model: str = _MODEL,
    ctx_per_slot: int | None = None,
    kv_pool_tokens: int | None = None,
    residence: Residence | None = None,
) -> DeploymentReport:
    """Return the report of a deployment that is ready."""
    return DeploymentReport(
        id=id,
        model=model,
        slots=slots,
        state=State.READY,
        ctx_per_slot=ctx_per_slot,
        kv_pool_tokens=kv_pool_tokens,
        residence=residence,
    )


def routed(
    *models: str, room: int = 1, slots: int = 1, router: str = "router"
) -> tuple[DeploymentReport, ...]:
    """Return the reports of a router's deployments, each named as its model; none is loaded."""
    residence = Residence(router=router, room=room, is_loaded=False)
    return tuple(ready(name, slots=slots, model=name, residence=residence) for name in models)


class Script:
    """Runs steps against a scheduler of its own; `scheduler` and `clock` are there to be asked.

    `run` may be called again, to go on from where the last one ended.
    """

    def __init__(
        self,
        *deployments: DeploymentReport,
        limits: Limits | None = None,
        dice: Dice | None = None,
        policies: Policies | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.scheduler = Scheduler(
            clock=self.clock, dice=dice or FakeDice(), limits=limits, policies=policies
        )
        # Every decision so far, in order.
        self.decisions: list[Decision] = []
        # Ticket id -> the ids of its leases, in order.
        self._leases: dict[str, list[str]] = {}
        # Deployment id -> its last report.
        self._reports: dict[str, DeploymentReport] = {}
        for report in deployments:
            self._reports[report.id] = report
            self.scheduler.deployment(report)

    def run(self, script: str) -> Script:
        """Send each event at its time; AssertionError with a diff if the decisions differ."""
        wanted, got = [], []
        for step in _parse(script):
            decisions = self._send(step)
            self._note(decisions)
            wanted.append(step.with_decisions(step.expected))
            got.append(step.with_decisions(_as_expected(decisions, step.expected)))
        if wanted != got:
            diff = "\n".join(line for line in ndiff(wanted, got) if not line.startswith("?"))
            raise AssertionError(f"the decisions differ (- expected, + decided):\n{diff}")
        return self

    def _note(self, decisions: list[Decision]) -> None:
        self.decisions += decisions
        for decision in decisions:
            if isinstance(decision, Granted):
                self._leases.setdefault(decision.ticket.id, []).append(decision.lease)

    def _send(self, step: _Step) -> list[Decision]:
        self.clock.advance_to(step.time)
        special = getattr(self, f"_send_{step.words[0]}", None)
        decisions: list[Decision]
        if special is not None:
            decisions = special(step)
        else:
            # Events that take the id of a deployment, or nothing.
            name = {"remove": "remove_deployment"}.get(step.words[0], step.words[0])
            decisions = getattr(self.scheduler, name)(*step.words[1:])
        return decisions

    def _send_submit(self, step: _Step) -> list[Decision]:
        return self.scheduler.submit(self._ticket(step))

    def _send_leave(self, step: _Step) -> list[Decision]:
        ending = next((Ending(w) for w in step.words[2:] if w in set(Ending)), Ending.SERVED)
        return self.scheduler.leave(step.word(1), ending, slot_free=step.slot_free())

    def _send_settled(self, step: _Step) -> list[Decision]:
        nth = int(step.word(2) or 1)
        return self.scheduler.settled(self._leases[step.word(1)][nth - 1])

    def _send_requeue(self, step: _Step) -> list[Decision]:
        rest = self._ticket(step) if "rest" in step.words else None
        slot_free = step.slot_free() or False
        return self.scheduler.requeue(step.word(1), slot_free=slot_free, rest=rest)

    def _send_charge(self, step: _Step) -> list[Decision]:
        kinds = ("input", "cached", "output")
        tokens = {f"{kind}_tokens": int(step.options.get(kind, 0)) for kind in kinds}
        return self.scheduler.charge(step.word(1), **tokens)

    def _send_timed(self, step: _Step) -> list[Decision]:
        get = step.options.get
        return self.scheduler.timed(
            step.word(1),
            prompt_tokens=int(get("prompt", 0)),
            prompt_seconds=float(get("prompt_seconds", 0)),
            output_tokens=int(get("output", 0)),
            output_seconds=float(get("output_seconds", 0)),
        )

    def _send_deployment(self, step: _Step) -> list[Decision]:
        return self.scheduler.deployment(self._report(step))

    def _ticket(self, step: _Step) -> Ticket:
        get = step.options.get
        return Ticket(
            id=step.word(1),
            arrival=step.time,
            deadline=step.time + float(get("within", _WITHIN)),
            tenant=get("tenant", "default"),
            priority_class=get("class", "standard"),
            model=get("model", _MODEL),
            width=int(get("width", 1)),
            input_tokens=int(get("tokens", 0)),
            input_is_exact="exact" in step.words,
            output_tokens=int(get("output", 0)) or None,
            size_bytes=int(get("bytes", 0)),
            affinity=get("affinity"),
        )

    def _report(self, step: _Step) -> DeploymentReport:
        get = step.options.get
        old = self._reports.get(step.word(1)) or ready(step.word(1))
        ctx, kv = get("ctx", old.ctx_per_slot), get("kv", old.kv_pool_tokens)
        new = DeploymentReport(
            id=old.id,
            model=get("model", old.model),
            slots=int(get("slots", old.slots)),
            state=State(get("state", old.state)),
            ctx_per_slot=None if ctx is None else int(ctx),
            outside=int(get("outside", old.outside)),
            kv_pool_tokens=None if kv is None else int(kv),
            restart_grace=old.restart_grace,
            is_ejected="ejected" in step.words,
            residence=_residence(old.residence, step),
        )
        self._reports[old.id] = new
        return new


def _residence(old: Residence | None, step: _Step) -> Residence | None:
    if old is None:
        return None
    get = step.options.get
    is_loaded = get("loaded", "yes" if old.is_loaded else "no") == "yes"
    return replace(old, room=int(get("room", old.room)), is_loaded=is_loaded)


@dataclass(frozen=True, slots=True)
class _Step:
    time: float
    words: tuple[str, ...]
    options: dict[str, str]
    text: str
    expected: tuple[str, ...]

    def word(self, place: int) -> str:
        return self.words[place] if place < len(self.words) else ""

    def slot_free(self) -> bool | None:
        words = self.words[2:]
        return True if "free" in words else False if "busy" in words else None

    def with_decisions(self, decisions: Iterable[str]) -> str:
        joined = ", ".join(decisions)
        return f"{self.text:<40} -> {joined}" if joined else self.text


def _parse(script: str) -> Iterator[_Step]:
    lines: list[list[str]] = []
    for line in map(str.strip, script.splitlines()):
        if line.startswith("->"):
            lines[-1].append(line.removeprefix("->"))
        elif line and not line.startswith("#"):
            lines.append(line.split("->"))
    for event, *decisions in lines:
        time, *arguments = event.split()
        expected = (" ".join(d.split()) for part in decisions for d in part.split(","))
        yield _Step(
            time=float(time),
            words=tuple(a for a in arguments if "=" not in a),
            options=dict(a.split("=", 1) for a in arguments if "=" in a),
            text=" ".join([f"{float(time):6.1f} ", *arguments]),
            expected=tuple(d for d in expected if d),
        )


def _as_expected(decisions: list[Decision], expected: tuple[str, ...]) -> Iterator[str]:
    """Write each decision as briefly as the script has written it."""
    for place, decision in enumerate(decisions):
        brief, full = _texts(decision)
        yield brief if brief in expected[place : place + 1] else full


def _texts(decision: Decision) -> tuple[str, str]:
    match decision:
        case Granted(ticket=ticket, deployment=deployment):
            text = f"granted {ticket.id} on {deployment}"
            return text, text
        case Refused(ticket=ticket, reason=reason, setting=setting):
            text = f"refused {ticket.id} {reason}"
            return text, f"{text} by {setting}" if setting else text
        case Abort(ticket_id=ticket_id, reason=why):
            return f"abort {ticket_id}", f"abort {ticket_id} {why}"
