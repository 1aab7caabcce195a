"""The tables of states and signals as the documentation shows them."""

from __future__ import annotations

from slotgate.core.health import STATES, TABLE, Signal, Step


def health_reference() -> str:
    """Return the tables, in Markdown."""
    lines = [f"| signal | {' | '.join(STATES)} |", "| --- |" + " --- |" * len(STATES)]
    for signal in Signal:
        steps = " | ".join(TABLE[state, signal] for state in STATES)
        lines.append(f"| `{signal}` | {steps} |")
    lines += ["", "| signal | what was noticed |", "| --- | --- |"]
    lines += [f"| `{signal}` | {signal.meaning} |" for signal in Signal]
    lines += ["", "| step | what it does |", "| --- | --- |"]
    lines += [f"| {step} | {step.meaning} |" for step in Step]
    return "\n".join(lines)
