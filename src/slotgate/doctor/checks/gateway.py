"""A gateway of ours: itself, and what it says of the servers behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import HEALTH, READY, Evidence, Make
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.evidence import Behind
    from slotgate.doctor.finding import Finding

# Its words for servers that get requests, that an operator holds, and that are waited for.
_SERVES, _HELD, _COMES = {"ready", "degraded"}, {"paused", "draining"}, {"starting", "loading"}


@check(
    "gateway",
    asks="Is it Slotgate?",
    by="`GET /health` counts a queue.",
    severities=(NOTE,),
)
def gateway(seen: Evidence) -> Iterator[Finding]:
    if seen.make is Make.SLOTGATE:
        names = ", ".join(each.name for each in seen.behind)
        yield note(
            "It is Slotgate itself: what it shows is the sum of the servers behind it"
            + (f": {names}." if names else "."),
            f"GET {HEALTH}: it counts a queue" + (f"; GET {READY}" if names else ""),
            "Flags can only be judged of each server.",
            "Examine the servers behind it, by their own addresses.",
        )


@check(
    "backend-state",
    asks="Of Slotgate: does every server behind it serve?",
    by="`GET /ready`: the state of each backend, and why.",
    severities=(ERROR, WARNING, NOTE, OK),
)
def backend_state(seen: Evidence) -> Iterator[Finding]:
    is_last = not any(each.state in _SERVES for each in seen.behind)
    others = [each for each in seen.behind if each.state != "ready"]
    for each in others:
        yield _not_ready(each, is_last=is_last)
    if seen.behind and not others:
        yield fine("Every server behind it serves.", f"GET {READY}: all of them are ready")


def _not_ready(behind: Behind, *, is_last: bool) -> Finding:
    known_by = f"GET {READY}: {behind.why}"
    found = f"{behind.name}, behind it, is {behind.state}"
    if behind.state in _HELD or behind.state in _COMES:
        held = f"`slotgate resume {behind.name}`, when it shall serve again"
        return (warning if is_last else note)(
            f"{found}{', and nothing else serves' if is_last else ''}.",
            known_by,
            "It gets no new requests; those for its models alone wait.",
            held if behind.state in _HELD else "Wait, and examine it then.",
        )
    if behind.state in _SERVES:
        return warning(
            f"{found}.",
            known_by,
            "It has failed, and gets a request now and then to show that it serves again.",
            "Examine it by its own address, and read its log.",
        )
    return (error if is_last else warning)(
        f"{found}{', and nothing else serves' if is_last else ''}.",
        known_by,
        "Requests wait for it to their deadlines and are refused then."
        if is_last
        else "Its slots are missed, and requests for its models alone wait or are refused.",
        "Start it, or mend what the reason says.",
        f"`slotgate enable {behind.name}`, if an operator disabled it",
    )


@check(
    "gateway-queue",
    asks="Of Slotgate: do requests wait in its queue?",
    by="`GET /health`: `queue`.",
    severities=(NOTE, OK),
)
def queue(seen: Evidence) -> Iterator[Finding]:
    if seen.make is not Make.SLOTGATE or seen.health is None:
        return
    waiting = seen.health.queue
    if waiting:
        yield note(
            f"{waiting} {'request waits' if waiting == 1 else 'requests wait'} in its queue.",
            f"GET {HEALTH}: queue {waiting}",
            "Each has a place and a deadline; `slotgate show tickets` tells who waits.",
        )
    else:
        yield fine("No request waits in its queue.", f"GET {HEALTH}: queue 0")
