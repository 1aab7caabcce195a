"""The chart of `slotgate plan --plot`: slots against the largest context of each, one line a type.

Both axes are logarithmic: what fits is a hyperbola, slots x context = memory, which is straight
there.  It is written as SVG by hand, so that nothing needs to be installed.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from slotgate.capacity.table import TableRow, table_of
from slotgate.capacity.units import show_size
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slotgate.capacity.plan import Plan

SUFFIXES: Final = (".svg", ".html")
SLOTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WIDTH: Final = 760
HEIGHT: Final = 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 110, 60, 60
# Colours that differ for every kind of sight, and dashes for those who see none.
_STYLES: Final = (("#0072b2", ""), ("#d55e00", "8 4"), ("#009e73", "3 3"), ("#a0457f", "10 3 2 3"))
_FONT: Final = 'font-family="sans-serif" font-size="13" fill="#222"'


class _Point(NamedTuple):
    slots: int
    tokens: int


def check_suffix(path: Path) -> None:
    """Raise ConfigError unless the file can be drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--plot {path}: it can be {' or '.join(SUFFIXES)}")


def write_chart(path: Path, plan: Plan) -> None:
    """Draw the plan into the file; ConfigError if it cannot be written."""
    rows = table_of(
        plan.model, plan.devices, plan.wish, plan.usage.placement.n_gpu_layers, slots=SLOTS
    )
    picture = svg(plan, rows)
    text = picture if path.suffix.lower() == ".svg" else _page(plan, rows, picture)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--plot {path}: cannot be written: {error.strerror}") from error


def svg(plan: Plan, rows: tuple[TableRow, ...]) -> str:
    """The chart as one SVG document."""
    lines = {row.cache_type: _points(row) for row in rows}
    planned = _Point(plan.slots, plan.ctx_per_slot)
    axes = _Axes([point for points in lines.values() for point in points] + [planned])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(_headline(plan))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24" {_FONT} font-weight="bold">{escape(_headline(plan))}</text>',
        f'<text x="{_LEFT}" y="42" {_FONT}>{escape(_memory(plan))}</text>',
        *axes.draw(),
        *axes.limit(plan.model.shape.n_ctx_train),
    ]
    for (kind, points), (colour, dash) in zip(lines.items(), _STYLES, strict=False):
        parts += axes.line(kind, points, colour, dash)
    parts += axes.mark(planned, fits=plan.fits)
    return "\n".join([*parts, "</svg>\n"])


class _Axes:
    """Turns slots and tokens into places on the picture."""

    def __init__(self, points: list[_Point]) -> None:
        tokens = [point.tokens for point in points]
        self._low = math.floor(math.log2(min(tokens)))
        self._high = max(math.ceil(math.log2(max(tokens))), self._low + 1)
        self._slots = max(SLOTS[-1], *(point.slots for point in points))
        # Names of lines must not cover each other.
        self._taken: list[float] = []

    def x(self, slots: int) -> float:
        share = math.log2(slots) / math.log2(self._slots)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, tokens: int) -> float:
        share = (math.log2(tokens) - self._low) / (self._high - self._low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    def draw(self) -> Iterator[str]:
        """The grid, its numbers, and what they are of."""
        right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        for power in range(int(math.log2(self._slots)) + 1):
            x = self.x(1 << power)
            yield f'<path d="M{x} {_TOP}V{bottom}" stroke="#ddd"/>'
            yield (
                f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" {_FONT}>{1 << power}</text>'
            )
        for power in range(self._low, self._high + 1):
            y = self.y(1 << power)
            yield f'<path d="M{_LEFT} {y}H{right}" stroke="#ddd"/>'
            yield (
                f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end" {_FONT}>{1 << power:,}</text>'
            )
        middle = (_TOP + bottom) / 2
        yield (
            f'<text x="{(_LEFT + right) / 2}" y="{HEIGHT - 14}" text-anchor="middle" {_FONT}>'
            "slots (number, logarithmic)</text>"
        )
        yield (
            f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})" '
            f"{_FONT}>largest context of a slot (tokens, logarithmic)</text>"
        )

    def limit(self, trained: int) -> Iterator[str]:
        """What the model was trained for, if that is in the picture."""
        if not self._low <= math.log2(max(trained, 1)) <= self._high:
            return
        y = self.y(trained)
        yield f'<path d="M{_LEFT} {y}H{WIDTH - _RIGHT}" stroke="#888" stroke-dasharray="2 4"/>'
        yield self._name("trained", y, "#666")

    def line(self, kind: str, points: list[_Point], colour: str, dash: str) -> Iterator[str]:
        if not points:
            return
        path = " ".join(f"{self.x(point.slots)},{self.y(point.tokens)}" for point in points)
        yield (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dash}"/>'
        )
        yield self._name(kind, self.y(points[-1].tokens), colour)

    def mark(self, planned: _Point, *, fits: bool) -> Iterator[str]:
        """The plan itself: a full dot, or an empty one if it does not fit."""
        x, y = self.x(planned.slots), self.y(planned.tokens)
        fill = "#222" if fits else "#fff"
        yield f'<circle cx="{x}" cy="{y}" r="6" fill="{fill}" stroke="#222" stroke-width="2"/>'
        word = "planned" if fits else "asked, does not fit"
        halo = 'stroke="#fff" stroke-width="4" paint-order="stroke"'
        yield f'<text x="{x + 10}" y="{y - 8}" {_FONT} {halo}>{word}</text>'

    def _name(self, text: str, y: float, colour: str) -> str:
        """Name a line at its right end, above the names that are there."""
        while any(abs(y - taken) < 14 for taken in self._taken):
            y -= 14
        self._taken.append(y)
        return (
            f'<text x="{WIDTH - _RIGHT + 8}" y="{y + 4}" font-family="sans-serif" font-size="13" '
            f'font-weight="bold" fill="{colour}">{escape(text)}</text>'
        )


def _points(row: TableRow) -> list[_Point]:
    return [
        _Point(count, tokens) for count, tokens in zip(SLOTS, row.tokens, strict=True) if tokens
    ]


def _headline(plan: Plan) -> str:
    return f"{plan.model.name}: how many slots of which context fit"


def _memory(plan: Plan) -> str:
    devices = [*plan.devices.gpus, *([plan.devices.host] if not plan.devices.gpus else [])]
    sizes = ", ".join(
        f"{device.name} {show_size(device.free_bytes)}" for device in devices if device
    )
    return f"on {sizes}; weights {show_size(plan.usage.weights.total)}"


def _page(plan: Plan, rows: tuple[TableRow, ...], picture: str) -> str:
    """The chart as a page, with its numbers below it."""
    head = "".join(f"<th>{escape(row.cache_type)}</th>" for row in rows)
    body = "\n".join(
        f"<tr><th>{count}</th>{''.join(f'<td>{_cell(row, at)}</td>' for row in rows)}</tr>"
        for at, count in enumerate(SLOTS)
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(_headline(plan))}</title>
<style>
body {{ font: 15px sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; }}
th, td {{ text-align: right; padding: 0.1em 1em; }}
</style>
{picture}<table>
<caption>Largest context of a slot, in tokens</caption>
<tr><th>slots</th>{head}</tr>
{body}
</table>
</html>
"""


def _cell(row: TableRow, at: int) -> str:
    if row.refusal:
        return "refused"
    return f"{row.tokens[at]:,}" if row.tokens[at] else "-"
