"""The arithmetic of a context's memory, line by line: slots, cells, rows, states."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from slotgate.capacity.architectures import Memory
from slotgate.capacity.explain_lines import equation, number, product, sum_of
from slotgate.capacity.ggml_types import BY_NAME
from slotgate.capacity.settings import padded
from slotgate.capacity.state_rows import ELEMENT_BYTES, rollbacks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.capacity.caches import Cache
    from slotgate.capacity.plan import Plan
    from slotgate.capacity.settings import padded
from slotgate.capacity.state_rows import StateRow

_PARTS = {
    "full": "for the whole context",
    "latent": "one row for keys and values together, for the whole context",
    "window": "for the last tokens only",
    "indexer": "the rows that tokens are chosen by",
    "compressed": "rows that stand for several tokens each",
    "state": "of the recurrent layers, whatever the context",
}


class _Row(NamedTuple):
    """What the layers of a group have in common."""

    kv_heads: int
    key: int
    value: int
    value_elements: int


def size_lines(plan: Plan) -> Iterator[str]:
    """From the settings to slots, cells and micro-batch."""
    usage = plan.usage
    settings, memory, size = usage.settings, usage.memory, usage.memory.size
    asked = settings.n_ctx or memory.n_ctx_train
    yield equation("pool", f"up256({number(asked)})", padded(asked), "tokens")
    if settings.unified:
        if plan.wish.ctx_size is None:
            limit = f"{number(memory.n_ctx)} // {settings.n_seq}"
            each = memory.n_ctx // settings.n_seq
            yield equation("slot", limit, each, "tokens", "its limit in the pool of all")
    else:
        divided = f"up256({number(padded(asked))} // {settings.n_seq})"
        yield equation("slot", divided, memory.n_ctx_seq, "tokens", "each has cells of its own")
        slots = product(memory.n_ctx_seq, settings.n_seq)
        yield equation("all slots", slots, memory.n_ctx, "tokens")
    if memory.n_ctx_train < memory.n_ctx_seq and not settings.unified:
        capped = f"min({number(memory.n_ctx_seq)}, {number(memory.n_ctx_train)})"
        words = "what it can use of them: the trained context"
        yield equation("slot", capped, memory.n_ctx_slot, "tokens", words)
    # Only causal models cut the batch to the context.
    of = [asked] if plan.model.shape.causal else []
    limits = [*of, settings.n_batch, settings.n_ubatch or settings.n_batch]
    least = f"min({', '.join(map(number, limits))})"
    yield equation("micro-batch", least, size.n_ubatch, "tokens")


def context_lines(plan: Plan) -> Iterator[str]:
    """Every cache by groups of equal layers, the states, and their sum."""
    memory = plan.usage.memory
    for part in memory.parts:
        results: list[int] = []
        yield f"  {part}, {_PARTS[part]}"
        if part == "state":
            for line, result in _states(plan):
                results += [result] if result else []
                yield line
        else:
            for cache in memory.caches:
                if cache.part == part and cache.layers:
                    yield from _cells(plan, cache)
                    yield from _groups(plan, cache, results)
        if len(results) > 1:
            yield equation(f"{part} in all", sum_of(results), sum(results), "bytes")
    parts = {part: n_bytes for part, n_bytes in memory.parts.items() if n_bytes}
    words = " + ".join(parts) or "this architecture keeps none"
    yield equation("context", sum_of(list(parts.values())), memory.total, "bytes", words)


def _cells(plan: Plan, cache: Cache) -> Iterator[str]:
    """How many cells there are, where it is not the slot's context."""
    shape, settings, memory = plan.model.shape, plan.usage.settings, plan.usage.memory
    context = number(memory.n_ctx_seq)
    compressed = shape.row.memory is Memory.COMPRESSED
    if cache.part == "window" and not settings.swa_full:
        windows = settings.n_seq if settings.unified and not compressed else 1
        needed = f"{product(shape.window_tokens or 0, windows)} + {memory.size.n_ubatch}"
        words = "context, or window x windows + micro-batch"
        yield equation("cells", f"up256(min({context}, {needed}))", cache.cells, "cells", words)
    elif compressed and cache.part != "window":
        ratio = shape.compress_ratios[cache.layers[0]]
        text = f"up256(ceil({context} / {ratio}))"
        yield equation("cells", text, cache.cells, "cells", "context / tokens of a row")


def _groups(plan: Plan, cache: Cache, results: list[int]) -> Iterator[str]:
    """The lines of each group of equal layers; its bytes go to `results`."""
    groups: dict[_Row, int] = {}
    for layer in cache.layers:
        row = _row(cache, layer)
        groups[row] = groups.get(row, 0) + 1
    for row, layers in groups.items():
        terms = _terms(plan, row, layers)
        for label, text, result, words in terms:
            yield equation(label, text, result, "bytes a token", words)
        token = sum(term.result for term in terms)
        if len(terms) > 1:
            both = sum_of(term.result for term in terms)
            yield equation("together", both, token, "bytes a token")
        if token:
            results.append(token * cache.cells * cache.streams)
            text, words = product(token, cache.cells, cache.streams), "a token x cells x streams"
            yield equation(cache.part, text, results[-1], "bytes", words)


def _row(cache: Cache, layer: int) -> _Row:
    heads = cache.heads
    return _Row(
        kv_heads=heads.kv_heads[layer],
        key=heads.key_size(layer),
        value=heads.value_size(layer),
        value_elements=0 if heads.latent else cache.value_elements(layer),
    )


class _Term(NamedTuple):
    label: str
    text: str
    result: int
    words: str


def _terms(plan: Plan, row: _Row, layers: int) -> list[_Term]:
    """What a token takes on some equal layers: in one line if keys and values are alike."""
    keys, values = plan.usage.settings.type_k, plan.usage.settings.type_v
    key_elements = row.kv_heads * row.key
    if keys == values and row.value == row.key and row.value_elements == key_elements:
        alike = (2, layers, row.kv_heads, row.key)
        return _term("a token", alike, keys, "keys and values x layers x KV heads x head size")
    label, size = ("a row", "row size") if row.value_elements == 0 else ("keys", "key size")
    terms = _term(label, (layers, row.kv_heads, row.key), keys, f"layers x KV heads x {size}")
    if row.value_elements == 0:
        return terms
    if row.value_elements == row.kv_heads * row.value:
        factors = (layers, row.kv_heads, row.value)
        return terms + _term("values", factors, values, "layers x KV heads x value size")
    words = "layers x elements of the widest row, as values are stored without flash attention"
    return terms + _term("values", (layers, row.value_elements), values, words)


def _term(label: str, factors: tuple[int, ...], kind: str, words: str) -> list[_Term]:
    """One term, or none if it is nothing."""
    elements = prod(factors)
    if not elements:
        return []
    block, n_bytes = BY_NAME[kind].block_elements, BY_NAME[kind].block_bytes
    text, per = product(*factors), f"bytes of {kind}"
    if block > 1:
        text, per = f"{text} / {block}", f"{kind}, {block} elements in {n_bytes} bytes"
    result = elements // block * n_bytes
    return [_Term(label, f"{text} x {n_bytes}", result, f"{words} x {per}")]


def _states(plan: Plan) -> Iterator[tuple[str, int]]:
    """The states of equal layers, each with its bytes; other lines come with 0."""
    settings, state = plan.usage.settings, plan.model.shape.state
    kept = 1 + rollbacks(plan.model.shape, settings)
    groups: dict[tuple[int, int], list[StateRow]] = {}
    for row in plan.usage.memory.states:
        groups.setdefault((row.elements, row.n_bytes), []).append(row)
    for (elements, n_bytes), rows in groups.items():
        if elements == state.shifted + state.state:
            text = f"{number(state.shifted)} + {number(state.state)}"
            yield equation("slot", text, elements, "elements", "R + S of a layer"), 0
        padding = n_bytes - elements * ELEMENT_BYTES * settings.n_seq * kept
        text = product(elements, ELEMENT_BYTES, settings.n_seq, *([kept] if kept > 1 else []))
        words = f"elements x bytes of f32 x slots{' x states kept' if kept > 1 else ''}"
        if padding:
            text, words = f"{text} + {padding}", f"{words} + padding"
        yield equation("layer", text, n_bytes, "bytes", words), 0
        total = n_bytes * len(rows)
        yield (
            equation("state", product(n_bytes, len(rows)), total, "bytes", "layer x layers"),
            total,
        )
