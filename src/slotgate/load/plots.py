"""The plots of a report, as SVG written by hand.

Colours come from the page's style (`plot.css`), so that one picture serves light and dark.
Every series is also told apart by its dashes or its place, for those who do not see the colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

from slotgate.load.timeline import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slotgate.load.report import Group, Report

WIDTH: Final = 760
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 40, 46
_NAMES: Final = {
    "good": "met the targets",
    "late": "served late",
    "refused": "refused",
    "expired": "expired",
    "abandoned": "abandoned",
    "failed": "failed",
}
_MOST_BARS: Final = 20


@dataclass(frozen=True, slots=True)
class _Frame:
    """Two linear axes from 0, and where a value is on the picture."""

    title: str
    across: str
    up: str
    right: float
    top: float
    height: int = HEIGHT

    def x(self, value: float) -> float:
        return round(_LEFT + value / self.right * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = min(value / self.top, 1.0)
        return round(self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM), 1)

    def open(self) -> Iterator[str]:
        yield (
            f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {WIDTH} {self.height}"><title>{escape(self.title)}</title>'
        )
        yield f'<text x="{_LEFT}" y="18" class="head">{escape(self.title)}</text>'
        bottom = self.height - _BOTTOM
        for value in _ticks(self.top):
            y = self.y(value)
            yield f'<path class="grid" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4}" class="end">{value:g}</text>'
        for value in _ticks(self.right):
            yield f'<text x="{self.x(value)}" y="{bottom + 17}" class="mid">{value:g}</text>'
        yield f'<path class="axis" d="M{_LEFT} {bottom}H{WIDTH - _RIGHT}"/>'
        yield f'<text x="{WIDTH - _RIGHT}" y="{self.height - 10}" class="end">{self.across}</text>'
        yield f'<text x="{_LEFT}" y="{_TOP - 7}">{self.up}</text>'

    def line(self, points: Sequence[tuple[float, float] | None], style: str) -> Iterator[str]:
        """A line through the points, broken where there is none."""
        path, is_down = [], False
        for point in points:
            if point is not None:
                place = f"{self.x(point[0])} {self.y(point[1])}"
                # A point alone is a line of no length, whose round ends make a dot.
                path.append(f"L{place}" if is_down else f"M{place}h0")
            is_down = point is not None
        if path:
            yield f'<path class="line {style}" d="{"".join(path)}"/>'

    def level(self, value: float, name: str) -> Iterator[str]:
        """A horizontal line at a target, if it is in the picture."""
        if value <= self.top:
            y = self.y(value)
            yield f'<path class="target" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>'
            yield f'<text x="{WIDTH - _RIGHT - 4}" y="{y - 5}" class="end">{escape(name)}</text>'


def outcomes(report: Report) -> str:
    """What became of the requests, by when they came: areas on top of each other."""
    line = report.timeline
    bins = range(len(line.ttfts))
    totals = [sum(line.rates[kind][at] for kind in KINDS) for at in bins]
    frame = _Frame(
        "What became of the requests", "seconds", "requests/s",
        report.seconds, _nice(max(totals, default=1.0)),
    )  # fmt: skip
    parts = list(frame.open())
    below = [0.0] * len(totals)
    shown = [kind for kind in KINDS if any(line.rates[kind])]
    for kind in shown:
        above = [low + rate for low, rate in zip(below, line.rates[kind], strict=True)]
        steps = (
            _steps(frame, above, line.bin_seconds) + _steps(frame, below, line.bin_seconds)[::-1]
        )
        path = " ".join(f"{x},{y}" for x, y in steps)
        parts.append(f'<polygon class="{kind}" points="{path}"/>')
        below = above
    return "\n".join([*parts, *_legend(shown), "</svg>"])


def first_tokens(report: Report) -> str:
    """The time to first token over the load, against its target."""
    line = report.timeline
    highest = max((each[1] for each in line.ttfts if each is not None), default=1.0)
    target = report.targets.ttft
    frame = _Frame(
        "Time to first token, median and 95th percentile (dashed)", "seconds", "seconds",
        report.seconds, _nice(max(highest, target if target < 10 * highest else 0.0)),
    )  # fmt: skip
    middles = [(at + 0.5) * line.bin_seconds for at in range(len(line.ttfts))]
    pairs = list(zip(middles, line.ttfts, strict=True))
    parts = [
        *frame.open(),
        *frame.level(target, f"target {target:g} s"),
        *frame.line([None if e is None else (x, e[1]) for x, e in pairs], "tail"),
        *frame.line([None if e is None else (x, e[0]) for x, e in pairs], "middle"),
    ]
    return "\n".join([*parts, "</svg>"])


def quantiles(report: Report) -> str:
    """How many of those that got a first token had it within which time."""
    found = report.timeline.ttft_quantiles
    right = _nice(found[-1]) if found else 1.0
    frame = _Frame("Time to first token of those that got one", "seconds", "% within", right, 100.0)
    points = [(value, 100 * at / (len(found) - 1)) for at, value in enumerate(found)]
    return "\n".join([*frame.open(), *frame.line(points, "middle"), "</svg>"])


def bars(report: Report) -> str:
    """The share of each tenant's requests that met the targets, with its margin."""
    largest = sorted(report.tenants, key=lambda group: -(group.mean("requests") or 0))
    shown = sorted(largest[:_MOST_BARS], key=lambda group: group.name)
    height = _TOP + _BOTTOM + 26 * len(shown)
    frame = _Frame("Met the targets, by tenant", "% of requests", "", 100.0, 1.0, height)
    parts = [
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {WIDTH} {height}"><title>{frame.title}</title>',
        f'<text x="{_LEFT}" y="18" class="head">{frame.title}</text>',
    ]
    for value in _ticks(100.0):
        x = frame.x(value)
        parts.append(f'<path class="grid" d="M{x} {_TOP}V{height - _BOTTOM}"/>')
        parts.append(f'<text x="{x}" y="{height - _BOTTOM + 17}" class="mid">{value:g}</text>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{height - 10}" class="end">{frame.across}</text>')
    for at, group in enumerate(shown):
        parts += _bar(frame, group, _TOP + 26 * at + 4)
    return "\n".join([*parts, "</svg>"])


def _bar(frame: _Frame, group: Group, y: float) -> Iterator[str]:
    met = group.values["attainment"]
    width = frame.x(100 * met.mean) - _LEFT
    yield f'<text x="{_LEFT - 8}" y="{y + 13}" class="end">{escape(group.name[:9])}</text>'
    yield f'<rect class="good" x="{_LEFT}" y="{y}" width="{max(width, 1):.1f}" height="18"/>'
    if met.margin:
        low, high = max(met.mean - met.margin, 0), min(met.mean + met.margin, 1)
        yield f'<path class="margin" d="M{frame.x(100 * low)} {y + 9}H{frame.x(100 * high)}"/>'
    is_long = met.mean > 0.85
    x, style = (frame.x(100 * met.mean) - 6, "end inside") if is_long else (_LEFT + width + 6, "")
    halo = "" if is_long else " halo"
    yield f'<text x="{x:.1f}" y="{y + 13}" class="{style}{halo}">{met.mean * 100:.0f} %</text>'


def _steps(frame: _Frame, values: Sequence[float], each: float) -> list[tuple[float, float]]:
    points = []
    for at, value in enumerate(values):
        y = frame.y(value)
        points += [(frame.x(at * each), y), (frame.x((at + 1) * each), y)]
    return points


def _legend(kinds: Sequence[str]) -> Iterator[str]:
    x = WIDTH - _RIGHT
    for kind in reversed(kinds):
        name = _NAMES[kind]
        x -= 7 * len(name) + 26
        yield f'<rect class="{kind}" x="{x}" y="9" width="11" height="11"/>'
        yield f'<text x="{x + 15}" y="18">{name}</text>'


def _nice(value: float) -> float:
    """The next number up that a scale may end with."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(
        power * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * step >= value * 0.999
    )


def _ticks(top: float) -> list[float]:
    """Four to six values from 0 to the end of the scale."""
    rough = top / 5
    power = 10.0 ** floor(log10(rough))
    step = min((power * s for s in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - rough))
    return [step * at for at in range(ceil(top / step) + 1) if step * at <= top * 1.0001]
