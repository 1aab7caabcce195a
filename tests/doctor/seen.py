"""Evidence for the rules, built by hand, and the findings of one check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotgate.doctor.checks import CHECKS
from slotgate.doctor.evidence import (
    HEALTH,
    MODELS,
    PROPS,
    SLOTS,
    Answer,
    Evidence,
    Look,
)
from slotgate.doctor.finding import Severity
from slotgate.doctor.judge import judge
from slotgate.doctor.stated import Stated, parse_flags
from slotgate.runtime.kv_pool import Sharing
from slotgate.wire.llama_cpp import Health, HealthState, Props, SlotView
from slotgate.wire.models import ListedModel

if TYPE_CHECKING:
    from slotgate.doctor.finding import Finding

ERROR, WARNING, NOTE, OK = Severity
GOOD = Answer(without_key=200)
GUARDED = Answer(without_key=401, with_key=200)
HEALTHY = Health(state=HealthState.OK, message="ok")
CHECK_BY_ID = {check.id: check for check in CHECKS}


def slot(number: int = 0, *, n_ctx: int | None = 8192, **more: Any) -> SlotView:
    """An idle slot, never used; with `task` one that works."""
    task = more.pop("task", None)
    return SlotView(
        id=number,
        n_ctx=n_ctx,
        is_processing=more.pop("is_processing", task is not None),
        id_task=task,
        n_decoded=more.pop("decoded", None),
        n_prompt_tokens=more.pop("tokens", None),
        raw={},
        **more,
    )


def props(**more: Any) -> Props:
    given: dict[str, Any] = {
        "slots": 2,
        "ctx_per_slot": 8192,
        "build_info": "b11434-abc",
        "chat_template": "{{ x }}",
        "endpoint_slots": True,
        "endpoint_metrics": True,
    }
    return Props(**(given | more))


def looks(*moments: tuple[SlotView, ...], every: float = 1.2) -> tuple[Look, ...]:
    return tuple(Look(at=100 + every * at, slots=slots) for at, slots in enumerate(moments))


def seen(**more: Any) -> Evidence:
    """A healthy llama-server on this machine with two slots of its own and no keys."""
    given: dict[str, Any] = {
        "url": "http://127.0.0.1:8080",
        "answers": {HEALTH: GOOD, MODELS: GOOD, PROPS: GOOD, SLOTS: GOOD},
        "health": HEALTHY,
        "props": props(),
        "models": (ListedModel(id="m", ctx_train=32768, size_bytes=4 << 30),),
        "looks": looks((slot(0), slot(1))),
        "sharing": Sharing.SEPARATE,
    }
    return Evidence(**(given | more))


def stated(flags: str | None = None, **more: Any) -> Stated:
    return Stated(flags=None if flags is None else parse_flags(flags), **more)


def found(check: str, evidence: Evidence) -> list[Finding]:
    """What one check finds; it keeps to the severities that the documentation promises."""
    findings = [each for each in judge(evidence).findings if each.check == check]
    assert {each.severity for each in findings} <= set(CHECK_BY_ID[check].severities)
    for each in findings:
        assert each.found.endswith(".")
        assert each.known_by
        if each.severity in {ERROR, WARNING}:
            assert each.leads_to.endswith(".")
            assert each.mend
    return findings


def only(check: str, evidence: Evidence) -> Finding:
    (finding,) = found(check, evidence)
    return finding


def severity(check: str, evidence: Evidence) -> Severity | None:
    """That of the one finding, None if there is none."""
    findings = found(check, evidence)
    assert len(findings) <= 1
    return findings[0].severity if findings else None
