"""What is known of the build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import PROPS, Evidence, Make
from slotgate.doctor.finding import NOTE, OK, WARNING, fine, note, warning
from slotgate.doctor.known_faults import KNOWN_FAULTS, SEEN_UNTIL, KnownFault, Presence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.finding import Finding

_MAKES = (Make.LLAMA_SERVER, Make.ROUTER)


@check(
    "build-unknown",
    asks="Does it tell its build?",
    by="`GET /props`: `build_info`.",
    severities=(NOTE,),
    of_models=False,
)
def build_unknown(seen: Evidence) -> Iterator[Finding]:
    if seen.make in _MAKES and seen.build is None and seen.props is not None:
        told = seen.props.build_info
        yield note(
            "Its build is not known, so neither are the faults of that build.",
            f"GET {PROPS}: build_info is {'missing' if told is None else repr(told)}",
            "",
            "Compare the version of your llama.cpp with the table that the page below has.",
        )


@check(
    "build-fault",
    asks="Is its build one with a known fault?",
    by="`GET /props`: `build_info`, and the table below.  A warning where a newer build mends it.",
    severities=(WARNING, NOTE, OK),
    of_models=False,
)
def known_faults(seen: Evidence) -> Iterator[Finding]:
    build = seen.build
    if seen.make not in _MAKES or build is None:
        return
    keeps_none = seen.flags is not None and seen.flags.cache_ram_mib == 0
    faults = (fault for fault in KNOWN_FAULTS if not (fault.is_of_cache and keeps_none))
    found = [(fault, fault.presence(build)) for fault in faults]
    present = [(fault, how) for fault, how in found if how is not Presence.ABSENT]
    for fault, how in present:
        yield _finding(fault, build, how)
    if not any(fault.gone for fault, _ in present):
        yield fine(f"Build {build} has no fault that a newer one is known to mend.", _source(build))


def _finding(fault: KnownFault, build: int, how: Presence) -> Finding:
    is_certain = how is Presence.CERTAIN
    has = "has a known fault" if is_certain else "may have a known fault"
    newer = build > SEEN_UNTIL
    doubt = f"; nobody has looked at builds after {SEEN_UNTIL}" if newer else ""
    # What no update mends is no reason for alarm each day.
    make = warning if is_certain and fault.gone is not None else note
    return make(
        f"Build {build} {has}: {fault.what}.",
        f"{_source(build)}; {fault.issues}: {fault.builds}{doubt}",
        fault.leads_to,
        *fault.mend,
    )


def _source(build: int) -> str:
    return f"GET {PROPS}: build_info b{build}"
