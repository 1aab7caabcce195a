"""Let a simulated server run, and say what happened in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotgate.slotsim import (
    Cancelled,
    Failed,
    Finished,
    Generated,
    Job,
    Pace,
    Pinged,
    Progressed,
    Prompt,
    Result,
    ServerSpec,
    SimulatedServer,
    Started,
)

if TYPE_CHECKING:
    from slotgate.slotsim import Event

FOREVER = 1e9


def server(slots: int = 1, **spec: Any) -> SimulatedServer:
    """Ten tokens a second and slot, prompts at a hundred a second."""
    pace = spec.pop("pace", Pace.constant(10, slots=slots, prefill=100))
    return SimulatedServer(ServerSpec(slots=slots, pace=pace, **({"ctx": 1000} | spec)))


def job(id: str, read: int = 10, write: int = 10, **more: Any) -> Job:
    """A stream of so many tokens in and out, unless `more` says otherwise."""
    text = more.pop("text", b"")
    given: dict[str, Any] = {"stream": True, "max_tokens": write, "prompts": (Prompt(read, text),)}
    return Job(id=id, **(given | more))


def run(server: SimulatedServer, until: float = FOREVER) -> list[Event]:
    """Let it run until then, or until nothing is left to do."""
    events: list[Event] = []
    while (due := server.next_event_time()) <= until:
        events += server.advance(due)
    if until < FOREVER:
        events += server.advance(until)
    return events


def told(events: list[Event], *, tokens: bool = False) -> list[str]:
    """Each event as `TIME WHAT JOB`; tokens only on request."""
    return [_line(event) for event in events if tokens or not isinstance(event, Generated)]


def _line(event: Event) -> str:
    what = {
        Started: "started",
        Progressed: "progressed",
        Generated: "generated",
        Finished: "finished",
        Failed: "failed",
        Pinged: "pinged",
        Cancelled: "cancelled",
    }[type(event)]
    index = getattr(event, "index", 0)
    return f"{event.at:.2f} {what} {event.job}{index or ''}"


def result_of(event: Event) -> Result:
    assert isinstance(event, Finished)
    return event.result


def busy(server: SimulatedServer, now: float) -> list[bool]:
    return [slot.is_processing for slot in server.slots(now)]
