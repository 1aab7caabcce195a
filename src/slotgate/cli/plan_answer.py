"""What `slotgate plan` answers: the plan and what is said of it, for a report or a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from slotgate.capacity.devices import parse_memory
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.remedies import remedies_of
from slotgate.capacity.replan import Replan
from slotgate.capacity.warnings import PlanWarning, warnings_of
from slotgate.cli.plan_options import SPEC_ROLLBACK, Asked, wish_of

if TYPE_CHECKING:
    from slotgate.backends.plan_server import RunningServer
    from slotgate.backends.plan_source import PlanSource
    from slotgate.capacity.outcomes import Remedy
    from slotgate.cli.plan_devices import Devices


class Size(NamedTuple):
    """So many slots of so many tokens."""

    slots: int
    tokens: int


class Request(NamedTuple):
    """How many requests of so many tokens run at once.

    `at_once` do in the plan, none if it does not fit; `most` would if that were all they had.
    """

    tokens: int
    at_once: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer.

    `command` starts the plan.  `room` is what would fit where the plan does not.
    `notes` are of where the model was found, `server` is who was asked.
    `arithmetic` is what `--explain` shows.
    """

    plan: Plan
    command: tuple[str, ...]
    warnings: tuple[PlanWarning, ...]
    remedies: tuple[Remedy, ...]
    notes: tuple[str, ...] = ()
    room: tuple[Size, ...] = ()
    request: Request | None = None
    server: RunningServer | None = None
    arithmetic: tuple[str, ...] = ()


def answer(
    asked: Asked, source: PlanSource, devices: Devices, server: RunningServer | None
) -> Answer:
    """Plan what was asked.

    Raises PlanRefused where llama.cpp would refuse it, ConfigError if no memory is known.
    """
    wish = wish_of(asked, source.model.shape.n_ctx_train)
    plan = make_plan(source.model, devices.of(wish), wish)
    what = Replan(plan)
    build = asked.build or (server.build if server else None)
    return Answer(
        plan=plan,
        command=_command(plan, source, asked),
        warnings=(*warnings_of(plan, build=build), *_of_a_draft(asked)),
        remedies=remedies_of(plan),
        notes=(*source.notes, *(server.notes if server else ()), *_beside(asked, server)),
        room=() if plan.fits else _room(what),
        request=_request(what, asked.request) if asked.request else None,
        server=server,
        arithmetic=_arithmetic(plan) if asked.explain else (),
    )


def _beside(asked: Asked, server: RunningServer | None) -> tuple[str, ...]:
    """What is measured while a server runs is what that leaves free."""
    if server is None or parse_memory(asked.memory) is not None:
        return ()
    return ("memory is what is free beside that server; for all of the card, give --memory",)


def _command(plan: Plan, source: PlanSource, asked: Asked) -> tuple[str, ...]:
    program, *rest = plan.command
    # The plan names the model as a file; the source knows how it is loaded.
    return (program, *source.arguments, *rest[2:], *asked.speculation)


def _room(what: Replan) -> tuple[Size, ...]:
    """As many slots as fit of the context that was asked, and as long ones as fit."""
    tokens, slots = what.own_tokens, what.settings.n_seq
    sizes = (
        Size(what.most_slots(what.plan.wish, tokens), tokens),
        Size(slots, what.largest_context(what.plan.wish, slots)),
    )
    return tuple(size for size in sizes if all(size))


def _request(what: Replan, tokens: int) -> Request:
    trained = what.memory.n_ctx_train
    most = what.most_slots(what.plan.wish, tokens) if tokens <= trained else 0
    at_once = what.plan.concurrent_requests(tokens) if what.plan.fits else 0
    return Request(tokens, at_once, most)


def _of_a_draft(asked: Asked) -> tuple[PlanWarning, ...]:
    """Speculation by a model of its own, of which nothing is known here."""
    kinds = set((asked.spec_type or "").split(",")) & {"draft-simple", *SPEC_ROLLBACK[1:]}
    if not kinds:
        return ()
    return (
        PlanWarning(
            "draft-model",
            f"{' and '.join(sorted(kinds))} needs a model of its own, with weights, context and "
            "scratch. They are not in this plan: leave room for them.",
        ),
    )


def _arithmetic(plan: Plan) -> tuple[str, ...]:
    from slotgate.capacity.explain import explain

    return tuple(explain(plan))
