"""Whether it is known what the server was started with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import Evidence, Make
from slotgate.doctor.finding import NOTE, OK, fine, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.evidence import Listener
    from slotgate.doctor.finding import Finding


@check(
    "flags-read",
    asks="Is it known what it was started with?",
    by="The process that listens at the address, where that is of this machine and this user "
    "may read it.",
    severities=(NOTE, OK),
    of_models=False,
)
def flags_read(seen: Evidence) -> Iterator[Finding]:
    listener = seen.listener
    if listener is None or seen.make not in {Make.LLAMA_SERVER, Make.ROUTER}:
        return
    if listener.flags is not None:
        yield fine("What it was started with was read.", listener.flags.source)
    elif seen.stated.flags is None:
        shown = f" {listener.pid} ({listener.program})" if listener.pid is not None else ""
        yield note(
            "What it was started with could not be read, though it is on this machine.",
            f"the process{shown} that listens there: {listener.problem}",
            "What no route tells, like whether its slots share their context, is a guess.",
            "Say it: --flags '-c 32768 -np 4 ...'",
            _way_out(listener),
        )


def _way_out(listener: Listener) -> str:
    if listener.is_hidden:
        return "Ask as the user that runs it, or as root."
    return "If that is a proxy: examine the server behind it, by its own address."
