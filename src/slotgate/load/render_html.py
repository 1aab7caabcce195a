"""A report as one HTML page that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from slotgate.load import plots
from slotgate.load.render_table import Rows, groups, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.load.report import Report

# Colours that differ for every kind of sight, on white and on near-black.
STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --ink: #1c2024; --soft: #5c6670; --grid: #e3e6e9;
  --good: #0072b2; --late: #7fbfe8; --refused: #e69f00; --expired: #d55e00; --abandoned: #a0457f;
  --failed: #222; --on: #fff; }
@media (prefers-color-scheme: dark) { :root { --back: #15181b; --ink: #e8eaec; --soft: #9aa4ad;
  --grid: #2c3238; --good: #3d9fd8; --late: #24587a; --refused: #e8ab2e; --expired: #e2733a;
  --abandoned: #c77ab0; --failed: #d8d8d8; --on: #0d0f11; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em;
  background: var(--back); color: var(--ink); }
h1 { font-size: 1.5em; margin-bottom: 0.2em; }
h2 { font-size: 1.15em; margin-top: 2em; }
.facts, .note, footer { color: var(--soft); }
.note { border-left: 3px solid var(--refused); padding-left: 0.7em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.2em 0.9em 0.2em 0; white-space: nowrap; }
tr > :first-child { text-align: left; font-weight: normal; }
tr + tr > * { border-top: 1px solid var(--grid); }
thead th { color: var(--soft); font-weight: normal; border-bottom: 1px solid var(--soft); }
.plot { width: 100%; height: auto; margin: 1em 0; }
.plot text { font: 12.5px system-ui, sans-serif; fill: var(--soft); }
.plot .head { font-weight: bold; fill: var(--ink); }
.plot .end { text-anchor: end; } .plot .mid { text-anchor: middle; }
.plot .inside { fill: var(--on); }
.plot .halo { stroke: var(--back); stroke-width: 4; paint-order: stroke; }
.plot .grid { stroke: var(--grid); } .plot .axis { stroke: var(--soft); }
.plot .line { fill: none; stroke: var(--good); stroke-width: 2; stroke-linecap: round; }
.plot .tail { stroke: var(--expired); stroke-dasharray: 5 4; }
.plot .target { stroke: var(--soft); stroke-dasharray: 2 4; }
.plot .margin { stroke: var(--ink); stroke-width: 2; }
.plot .good { fill: var(--good); } .plot .late { fill: var(--late); }
.plot .refused { fill: var(--refused); } .plot .expired { fill: var(--expired); }
.plot .abandoned { fill: var(--abandoned); } .plot .failed { fill: var(--failed); }
"""


def as_html(report: Report) -> str:
    return "\n".join(_page(report)) + "\n"


def _page(report: Report) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>{escape(report.title)}</title>\n<style>{STYLE}</style>"
    yield f"<h1>{escape(report.title)}</h1>"
    yield f'<p class="facts">{escape(facts_of(report))}</p>'
    yield from (f'<p class="note">{escape(note)}</p>' for note in report.notes)
    yield plots.outcomes(report)
    yield plots.first_tokens(report)
    yield plots.quantiles(report)
    if len(report.tenants) > 1:
        yield plots.bars(report)
    yield "<h2>All requests</h2>"
    yield from _table(summary(report), has_head=False)
    if len(report.tenants) > 1:
        yield "<h2>By tenant</h2>"
        yield from _table(groups(report.tenants), has_head=True)
    if len(report.classes) > 1:
        yield "<h2>By class</h2>"
        yield from _table(groups(report.classes), has_head=True)
    yield f"<footer><p>{escape(FOOT)}</p></footer>\n</html>"


FOOT: Final = (
    "Times count from when a request was due, with its first attempt. Margins are half of a 95 % "
    "confidence interval over the runs."
)


def facts_of(report: Report) -> str:
    """What was run, in one line."""
    targets = [f"first token within {report.targets.ttft:g} s"]
    if report.targets.tpot != float("inf"):
        targets.append(f"{report.targets.tpot * 1000:g} ms a token")
    facts = [f"{name} {value}" for name, value in report.facts.items()]
    runs = f"{len(report.seeds)} runs" if len(report.seeds) > 1 else "one run"
    return "; ".join([*facts, f"{runs} of {report.seconds:g} s", "targets: " + ", ".join(targets)])


def _table(rows: Rows, *, has_head: bool) -> Iterator[str]:
    yield '<div class="wide"><table>'
    if has_head:
        cells = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        yield f"<thead><tr>{cells}</tr></thead>"
    for row in rows[has_head:]:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table></div>"
