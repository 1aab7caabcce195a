"""What the documentation says of the architectures, made from their rows."""

from __future__ import annotations

from slotgate.capacity.architectures import (
    ARCHITECTURES,
    Architecture,
    Indexer,
    Latent,
    Memory,
    OwnCache,
    Pattern,
    Recurrent,
    When,
    Window,
)

_HEAD = "| architecture | keeps | window | state | layers with a state | besides | verified |"

# What `layers` and `refusals` know besides.
_NOTES = {
    "graniteswitch": "one layer of one head more, its router",
    "minimax-01": "slots of their own must divide the batch",
    "minimax-m3": "only so many slots of their own",
    "nanbeige": "each layer num_loops times",
    "t5": "one slot, or a unified pool",
}


def architectures_reference() -> str:
    """Return a table of the architectures that have rules of their own, and the names of others."""
    plain = [row for row in ARCHITECTURES.values() if _is_plain(row)]
    special = sorted(
        (row for row in ARCHITECTURES.values() if not _is_plain(row)), key=lambda row: row.name
    )
    names = ", ".join(f"`{row.name}`" for row in sorted(plain, key=lambda row: row.name))
    return "\n".join(
        [
            "## The plain cache",
            "",
            "Keys and values of every layer, for the whole context:",
            f"{names}.",
            "",
            "## Rules of their own",
            "",
            _HEAD,
            "| --- " * _HEAD.count(" | ") + "| --- |",
            *map(_line, special),
        ]
    )


def _is_plain(row: Architecture) -> bool:
    return (
        row.name not in _NOTES and row.verified and row == Architecture(row.name, m_rope=row.m_rope)
    )


def _line(row: Architecture) -> str:
    cells = (
        f"`{row.name}`",
        _memory(row),
        _window(row.window),
        row.state.value if row.state else "",
        _recurrent(row),
        "; ".join(_besides(row)),
        "yes" if row.verified else "no",
    )
    return f"| {' | '.join(cells)} |"


def _memory(row: Architecture) -> str:
    if row.latent is not Latent.NO:
        when = "" if row.latent is Latent.REQUIRED else f" {row.latent.value}"
        state = ", and a state" if row.memory is Memory.HYBRID else ""
        return f"one latent row for keys and values{when}{state}"
    return {
        Memory.CACHE: "keys and values",
        Memory.NONE: "nothing",
        Memory.RECURRENT: "a state",
        Memory.HYBRID: "keys and values, and a state",
        Memory.COMPRESSED: "a window, and rows that stand for 4 or 128 tokens",
    }[row.memory]


def _window(window: Window | None) -> str:
    if window is None:
        return ""
    size = f"{window.tokens:,} tokens" if window.tokens else "of the file's size"
    if window.tokens and not window.fixed:
        size += " if the file does not say"
    when = "" if window.when is When.ALWAYS else f", {window.when.value}"
    return f"{size}; {_layers(window)}{when}"


def _layers(window: Window) -> str:
    if window.pattern is Pattern.LAST_FULL:
        return f"all layers but every {_ordinal(window.period)}"
    if window.pattern is Pattern.FIRST_FULL:
        return f"all layers but the first of every {window.period}"
    return window.pattern.value


def _ordinal(number: int) -> str:
    return f"{number}{'nd' if number == 2 else 'th'}"


def _recurrent(row: Architecture) -> str:
    if row.recurrent is Recurrent.INTERVAL:
        return f"all but every {row.interval}th, if the file does not say"
    return row.recurrent.value if row.recurrent else ""


def _besides(row: Architecture) -> list[str]:
    said = [_NOTES[row.name]] if row.name in _NOTES else []
    if row.indexer is not Indexer.NO:
        said.append(f"an indexer: {row.indexer.value}")
    if row.own_cache_layers is OwnCache.BUT_SHARED:
        said.append(f"own cache: {row.own_cache_layers.value}")
    elif isinstance(row.own_cache_layers, int):
        said.append(f"own cache: the first {row.own_cache_layers or 'no'} layers")
    if row.rollback:
        said.append("the state can be rolled back, for speculation")
    return said
