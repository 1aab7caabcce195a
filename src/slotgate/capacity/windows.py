"""Which layers of a model see only a window of the context, and how large it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Architecture, Indexer, Memory, Pattern, When, Window
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.layers import Layers
    from slotgate.capacity.metadata import Keys

_SIZE = "attention.sliding_window"
_PATTERN = "attention.sliding_window_pattern"


def window_of(
    keys: Keys, row: Architecture, layers: Layers, recurrent: tuple[bool, ...]
) -> tuple[int | None, tuple[bool, ...]]:
    """The window's tokens (None: no window), and for each layer whether it has the window.

    A window of 0 tokens is one nevertheless: its caches hold a batch.
    """
    window = _window_of_draft(keys) if row.name == "dflash" else row.window
    if window is None or not _is_on(keys, window, layers):
        return None, (False,) * layers.all
    fixed = window.tokens if window.fixed else None
    tokens = keys.number(_SIZE, window.tokens) if fixed is None else fixed
    windowed = _windowed(keys, window, layers, recurrent)
    if row.memory is Memory.CACHE and row.indexer is Indexer.NO and not any(windowed):
        raise PlanRefused("the model has a window that none of its layers uses; llama.cpp aborts")
    return tokens, windowed


def _window_of_draft(keys: Keys) -> Window:
    if keys.number("hyper_connection.count", 0) > 0:
        return Window(Pattern.ALL)
    return Window(Pattern.LISTED, when=When.KEY_POSITIVE)


def _is_on(keys: Keys, window: Window, layers: Layers) -> bool:
    if window.when is When.KEY_POSITIVE:
        return keys.number(_SIZE, 0) > 0
    if window.when is When.KEY_NOT_ZERO:
        return keys.number(_SIZE, 1) != 0
    return window.when is When.ALWAYS or layers.trunk == 64


def _windowed(
    keys: Keys, window: Window, layers: Layers, recurrent: tuple[bool, ...]
) -> tuple[bool, ...]:
    if window.pattern is Pattern.ALL:
        return (True,) * layers.all
    if window.pattern is Pattern.ATTENTION:
        return tuple(not recurrent[n] and n < layers.trunk for n in range(layers.all))
    listed = keys.array(_PATTERN)
    if listed is not None:
        return tuple(bool(n < len(listed) and listed[n]) for n in range(layers.all))
    if window.pattern is Pattern.LISTED:
        raise PlanRefused(f"the model lacks the array {keys.architecture}.{_PATTERN}")
    period = keys.number(_PATTERN, window.period)
    return tuple(n < layers.trunk and _in_period(n, period, window) for n in range(layers.all))


def _in_period(layer: int, period: int, window: Window) -> bool:
    if period == 0:
        return True
    if window.pattern is Pattern.FIRST_FULL:
        return layer % period != 0
    return layer % period < period - 1
