"""The reference tables of routes and errors, from the tables that the gateway works by."""

from __future__ import annotations

from slotgate.http.problems import TABLE
from slotgate.wire.routes import ROUTES, RouteKind
from slotgate.wire.tables import TABLES

_KINDS = {
    RouteKind.SLOT: "takes slots: goes through admission",
    RouteKind.FREE: "passes to a backend without a slot",
    RouteKind.OWN: "answered by the gateway itself",
}


def errors_reference() -> str:
    """Return the Markdown table of every code."""
    lines = [
        "| code | status | on `/v1/messages` | type | may be tried again | when |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for code, kind in TABLE.items():
        status, name = kind.anthropic
        again = "yes" if kind.should_retry else "no (`x-should-retry: false`)"
        cells = (f"`{code}`", kind.status, f"{status} `{name}`", f"`{kind.type}`", again, kind.when)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def admin_reference() -> str:
    """Return the Markdown of every table of the operator's, column by column."""
    lines = []
    for name, columns in TABLES.items():
        lines += [f"### `{name}`", "", "| column | title | meaning |", "| --- | --- | --- |"]
        for column in columns:
            title = column.title or "(JSON only)"
            lines.append(f"| `{column.name}` | {title} | {column.meaning} |")
        lines.append("")
    return "\n".join(lines)


def routes_reference() -> str:
    """Return the Markdown table of every route."""
    lines = ["| method | path | what happens |", "| --- | --- | --- |"]
    for (method, path), route in sorted(
        ROUTES.items(), key=lambda item: (item[1].kind, item[0][1])
    ):
        if method != "HEAD":
            streams = ", may stream" if route.streams else ""
            lines.append(f"| {method} | `{path}` | {_KINDS[route.kind]}{streams} |")
    return "\n".join(lines)
