"""The document of `slotgate doctor --json`; docs/reference/doctor.md has its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotgate.doctor.judge import status_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.doctor.evidence import Answer, Evidence
    from slotgate.doctor.finding import Finding
    from slotgate.doctor.judge import Examined

Json = dict[str, Any]
# Changes when a key goes or changes its meaning; new ones may come.
FORMAT = 1


def document(examined: Sequence[Examined]) -> Json:
    """Everything that was found, and what it rests on."""
    return {
        "format": FORMAT,
        "exit_status": int(status_of(examined)),
        "servers": [_server(each) for each in examined],
    }


def _server(examined: Examined) -> Json:
    seen = examined.evidence
    return {
        "url": seen.url,
        "model": seen.model,
        "exit_status": int(examined.status),
        "make": seen.make.name.lower().replace("_", "-"),
        "build": seen.build,
        "models": [model.id for model in seen.models],
        "slots": seen.slots,
        "ctx_per_slot_tokens": seen.ctx_per_slot,
        "ctx_train_tokens": seen.trained,
        "process": None if seen.listener is None else seen.listener.pid,
        "listens_at": [] if seen.listener is None else list(seen.listener.listens_at),
        "flags_known_by": None if seen.flags is None else seen.flags.source,
        "is_sleeping": seen.is_sleeping,
        "requests_deferred": None if seen.counted is None else seen.counted.deferred,
        "asked": [_asked(route, answer) for route, answer in seen.answers.items()],
        "measured": _measured(seen),
        "findings": [_finding(each) for each in examined.findings],
    }


def _asked(route: str, answer: Answer) -> Json:
    return {
        "route": route,
        "status_without_key": answer.without_key,
        "status_with_key": answer.with_key,
        "trouble": None if answer.trouble is None else str(answer.trouble),
        "message": answer.message,
        "seconds": round(answer.seconds, 4),
    }


def _measured(seen: Evidence) -> Json | None:
    measured = seen.measured
    if measured is None:
        return None
    return {
        "decode_tokens_per_second": measured.decode_rate,
        "prefill_tokens_per_second": measured.prefill_rate,
        "prompt_tokens": measured.prompt_tokens,
        "piece_tokens": measured.piece_tokens,
        "usual_gap_seconds": measured.usual_gap,
        "worst_gap_seconds": measured.worst_gap,
        "lump_tokens": measured.lump_tokens,
        "lump_gap_seconds": measured.lump_gap,
        "refusal": measured.refusal,
        "failure": measured.failure,
    }


def _finding(finding: Finding) -> Json:
    return {
        "check": finding.check,
        "severity": str(finding.severity),
        "found": finding.found,
        "known_by": finding.known_by,
        "leads_to": finding.leads_to,
        "mend": list(finding.mend),
        "see": finding.see,
    }
