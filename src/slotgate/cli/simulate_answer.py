"""Runs what `slotgate simulate` was asked for, and shows what came of it."""

from __future__ import annotations

import os
import random  # noqa: TID251 - each run's chance is made here, from its seed
from dataclasses import dataclass, replace
from time import process_time
from typing import TYPE_CHECKING

import typer

from slotgate.cli.terminal import standard_output
from slotgate.errors import ConfigError
from slotgate.load.render_html import as_html
from slotgate.load.render_json import as_document
from slotgate.load.render_table import groups, summary
from slotgate.load.render_table import show as shown
from slotgate.load.report import make_report
from slotgate.load.traces import TraceOptions, read_trace
from slotgate.load.workloads import Plan, Workload, make_workload
from slotgate.sim.policies import DEFAULT, configured, make_policy
from slotgate.sim.setting import faster
from slotgate.sim.study import Study

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slotgate.cli.simulate_options import Asked
    from slotgate.cli.terminal import Terminal
    from slotgate.config import Settings
    from slotgate.load.dice import Dice
    from slotgate.load.report import Report
    from slotgate.sim.rehearsal import MakesFront, Rehearsal

# The columns of a comparison: title, metric.
_COMPARED = (
    ("in target", "attainment"),
    ("goodput", "goodput_requests"),
    ("light tenants", "light_attainment"),
    ("refused", "refused"),
    ("expired", "expired"),
    ("left", "abandoned"),
    ("failed", "failed"),
    ("wasted", "wasted"),
    ("TTFT p95", "ttft_p95"),
    ("slots in use", "slot_utilisation"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A report for each policy, and what the rehearsals took."""

    reports: dict[str, Report]
    requests: int
    cpu_seconds: float
    core_events: int
    core_seconds: float


def answer(asked: Asked) -> Answer:
    """Rehearse each policy with each seed; all policies get the same loads."""
    draw, seeds = _load(asked)
    settings = _settings(asked.config)
    began = process_time()
    played: list[Rehearsal] = []
    reports = {}
    for name in asked.policies:
        study = Study(
            draw=draw,
            make_front=_front_of(name, asked, settings),
            specs=asked.servers.specs,
            client=asked.client,
            stopwatch=process_time,
        )
        rehearsals = [study.run(random.Random(seed)) for seed in seeds]  # noqa: S311 - no secret
        reports[name] = _report(asked, name, rehearsals, seeds)
        played += rehearsals
    return Answer(
        reports,
        requests=sum(len(each.records) for each in played),
        cpu_seconds=process_time() - began,
        core_events=sum(each.core_events for each in played),
        core_seconds=sum(each.core_seconds for each in played),
    )


def _load(asked: Asked) -> tuple[Callable[[Dice], Workload], Sequence[int]]:
    """How a load is drawn, and with which seeds: a trace is what it is."""
    if asked.trace is None:
        return lambda dice: _drawn(asked, dice), range(asked.seeds)
    workload = _traced(asked, asked.trace)
    return lambda _: workload, (0,)


def _drawn(asked: Asked, dice: Dice) -> Workload:
    plan = Plan(
        capacity=asked.servers,
        dice=dice,
        seconds=asked.duration,
        load=asked.load,
        hog_share=asked.hog_share,
        patience=asked.patience,
    )
    return make_workload(asked.load_name, plan)


def _traced(asked: Asked, path: Path) -> Workload:
    arrivals = read_trace(path, TraceOptions(patience=asked.patience))
    if asked.load is not None:
        offered = asked.servers.load_of(arrivals, max(arrivals[-1].at, 1.0))
        arrivals = faster(arrivals, asked.load / offered)
    arrivals = tuple(arrival for arrival in arrivals if arrival.at < asked.duration)
    seconds = min(asked.duration, max(arrivals[-1].at, 1.0))
    return Workload(name=path.name, seconds=seconds, arrivals=arrivals)


def _settings(path: Path | None) -> Settings | None:
    if path is None:
        return None
    from slotgate.config import load_settings

    return load_settings(path, overrides={}, env=os.environ)


def _front_of(name: str, asked: Asked, settings: Settings | None) -> Callable[[Dice], MakesFront]:
    if settings is None or name != DEFAULT:
        return lambda dice: make_policy(name, dice, asked.ttft)
    from slotgate.config.limits import limits_of, policies_of

    limits, policies = limits_of(settings), policies_of(settings.scheduling)
    return lambda dice: configured(dice, limits, policies)


def _report(
    asked: Asked, policy: str, rehearsals: Sequence[Rehearsal], seeds: Sequence[int]
) -> Report:
    runs = [each.as_run(seed) for each, seed in zip(rehearsals, seeds, strict=True)]
    facts = {
        "policy": policy if asked.config is None else f"{policy}, of {asked.config}",
        "servers": f"{asked.backends} of {asked.slots} slots, pace {asked.pace}",
        "clients": f"patience {asked.patience:g} s, retries {asked.client}",
        "most waiting inside a server": str(max(each.deferred for each in rehearsals)),
    }
    title = f"{asked.load_name} in virtual time"
    return make_report(runs, title=title, targets=asked.targets, facts=facts)


# Showing.


def show(found: Answer, *, html: Path | None, as_json: bool) -> None:
    """Write the answer where it is wanted."""
    if html is not None:
        (report,) = found.reports.values()
        try:
            html.write_text(as_html(report), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--html {html}: cannot be written: {error}") from error
    if as_json:
        _show_json(found)
    elif len(found.reports) == 1:
        (report,) = found.reports.values()
        _show_one(report, found, standard_output())
    else:
        _show_comparison(found, standard_output())


def _show_json(found: Answer) -> None:
    import json

    document = {
        "policies": {name: as_document(report) for name, report in found.reports.items()},
        "cost": {
            "requests": found.requests,
            "cpu_seconds": round(found.cpu_seconds, 3),
            "core_events": found.core_events,
            "core_cpu_seconds": round(found.core_seconds, 3),
        },
    }
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def _show_one(report: Report, found: Answer, terminal: Terminal) -> None:
    terminal.write(terminal.styled(report.title, "bold"))
    terminal.table([*report.facts.items()], left=2)
    terminal.title("All requests")
    terminal.table(summary(report), left=2)
    terminal.title("By tenant")
    terminal.table(groups(report.tenants), left=1)
    if len(report.classes) > 1:
        terminal.title("By class")
        terminal.table(groups(report.classes), left=1)
    _show_cost(found, terminal)


def _show_comparison(found: Answer, terminal: Terminal) -> None:
    first = next(iter(found.reports.values()))
    terminal.write(terminal.styled(first.title, "bold"))
    rows = [("", *(title for title, _ in _COMPARED))]
    for name, report in found.reports.items():
        cells = ((key, report.whole.values.get(key)) for _, key in _COMPARED)
        # Margins would not fit the line; they are in the JSON document.
        rows.append(
            (name, *("-" if v is None else shown(k, replace(v, margin=None)) for k, v in cells))
        )
    terminal.table(rows, left=1)
    _show_cost(found, terminal)


def _show_cost(found: Answer, terminal: Terminal) -> None:
    rate = found.requests / max(found.cpu_seconds, 1e-9) * 60
    each = found.core_seconds / max(found.core_events, 1) * 1e6
    terminal.write()
    terminal.write(
        f"{found.requests} requests in {found.cpu_seconds:.1f} s of CPU, {rate:,.0f} a minute; "
        f"{found.core_events} events of the scheduler at {each:.1f} us"
    )
