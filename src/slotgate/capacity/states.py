"""The recurrent state of a model: which layers keep one, and how large it is.

It does not grow with the context, is always f32, and each slot has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Architecture, Recurrent, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.capacity.heads import Heads
    from slotgate.capacity.layers import Layers
    from slotgate.capacity.metadata import Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """The state of one slot, in elements.

    `shifted` and `state` are llama.cpp's R and S of each layer in `layers`; `history` is kept
    besides on the layers in `history_layers` (qwen4exp's n-gram embeddings).
    """

    layers: tuple[bool, ...]
    shifted: int = 0
    state: int = 0
    history: int = 0
    history_layers: tuple[int, ...] = ()


def recurrent_layers(keys: Keys, row: Architecture, layers: Layers) -> tuple[bool, ...]:
    """For each layer, whether it keeps a recurrent state."""
    if row.recurrent is Recurrent.INTERVAL:
        return _by_interval(keys, row, layers)
    return tuple(n < layers.trunk and _is_recurrent(row, layers, n) for n in range(layers.all))


def _is_recurrent(row: Architecture, layers: Layers, layer: int) -> bool:
    if row.recurrent is Recurrent.NO_KV_HEADS:
        return layers.kv_heads[layer] == 0
    if row.recurrent is Recurrent.NO_KV_HEADS_NO_FFN:
        return layers.kv_heads[layer] == 0 and layers.feed_forward[layer] == 0
    return row.recurrent is not None


def _by_interval(keys: Keys, row: Architecture, layers: Layers) -> tuple[bool, ...]:
    key = "attention.recurrent_layers"
    if keys.has(key):
        return tuple(map(bool, keys.per_layer(key, layers.all)))
    interval = keys.positive("full_attention_interval", row.interval)
    return tuple(n < layers.trunk and (n + 1) % interval != 0 for n in range(layers.all))


def recurrent_state(
    keys: Keys, row: Architecture, recurrent: tuple[bool, ...], heads: Heads, query_heads: int
) -> RecurrentState:
    """The sizes of the state; `query_heads` are those of the first layer."""
    if row.state is None:
        return RecurrentState(layers=recurrent)
    shifted, state = _SIZES[row.state](keys, heads, query_heads)
    history_layers = keys.array("ple.layers") or ()
    return RecurrentState(
        layers=recurrent,
        shifted=shifted,
        state=state,
        history=_history(keys) if history_layers else 0,
        history_layers=history_layers,
    )


def _history(keys: Keys) -> int:
    kernel, ngram = keys.number("ple.conv_kernel"), keys.number("ple.ngram_size")
    streams = keys.number("hyper_connection.count")
    return (kernel - 1) * ngram * streams * keys.number("embedding_length")


def _ssm(keys: Keys, _heads: Heads, _query_heads: int) -> tuple[int, int]:
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    return _kept(keys.number("ssm.conv_kernel")) * inner, state * inner


def _ssm_groups(keys: Keys, _heads: Heads, _query_heads: int) -> tuple[int, int]:
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    channels = inner + 2 * keys.number("ssm.group_count") * state
    return _kept(keys.number("ssm.conv_kernel")) * channels, state * inner


def _rwkv(keys: Keys, _heads: Heads, _query_heads: int) -> tuple[int, int]:
    n_embd = keys.number("embedding_length")
    return keys.number("token_shift_count", 2) * n_embd, n_embd * keys.number("wkv.head_size")


def _short_conv(keys: Keys, _heads: Heads, _query_heads: int) -> tuple[int, int]:
    return keys.number("embedding_length") * (keys.number("shortconv.l_cache") - 1), 0


def _kda(keys: Keys, _heads: Heads, query_heads: int) -> tuple[int, int]:
    size, conv = keys.number("kda.head_dim"), keys.number("ssm.conv_kernel")
    return 3 * (_kept(conv) if conv > 0 else 3) * query_heads * size, size * size * query_heads


def _lightning(_keys: Keys, heads: Heads, query_heads: int) -> tuple[int, int]:
    return 0, heads.key * heads.key * query_heads


def _kept(conv_kernel: int) -> int:
    # The oldest column of a convolution is shifted out each time and need not be kept.
    return max(conv_kernel - 1, 0)


_SIZES: dict[State, Callable[[Keys, Heads, int], tuple[int, int]]] = {
    State.SSM: _ssm,
    State.SSM_GROUPS: _ssm_groups,
    State.RWKV: _rwkv,
    State.SHORT_CONV: _short_conv,
    State.KDA: _kda,
    State.LIGHTNING: _lightning,
}
