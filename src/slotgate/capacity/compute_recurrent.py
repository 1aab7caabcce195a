"""Recurrent layers: a convolution over the batch and what came before, and a scan of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Recurrent, State
from slotgate.capacity.compute_facts import Fact
from slotgate.capacity.compute_work import ELEMENT_BYTES, Work, spilled
from slotgate.capacity.state_rows import rollbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def recurrent_phases(work: Work) -> Mapping[str, int]:
    """The phase of a recurrent layer, in bytes; none for a model without."""
    kind = work.shape.row.state
    if kind is None or not any(work.shape.state.layers):
        return {}
    if work.is_(Fact.GATED_QUERIES):
        return {"recurrent": _delta_net(work)}
    return {"recurrent": _PHASES[kind](work)}


def _states(work: Work) -> int:
    """Bytes of one layer's state, of all sequences."""
    return ELEMENT_BYTES * work.shape.state.state * work.settings.n_seq


def _kept(work: Work) -> int:
    """The same with the steps that it can be rolled back."""
    return _states(work) * (1 + rollbacks(work.shape, work.settings))


def _inner(work: Work) -> int:
    return work.keys.number("ssm.inner_size")


def _channels(work: Work) -> int:
    """Elements that the convolution runs over."""
    return _inner(work) + 2 * _grouped(work)


def _grouped(work: Work) -> int:
    return work.keys.number("ssm.group_count", 0) * work.keys.number("ssm.state_size")


def _convolved(work: Work, channels: int) -> int:
    """Bytes of the batch with the columns that came before it, for each sequence."""
    columns = max(work.keys.number("ssm.conv_kernel") - 1, 0) * work.settings.n_seq
    return ELEMENT_BYTES * channels * (work.tokens + columns)


def _scan(work: Work) -> int:
    """State space: the first product, the convolution's input and result, and the scan's."""
    inner, channels = _inner(work), _channels(work)
    product = 2 * inner + 2 * _grouped(work) + work.keys.number("ssm.time_step_rank", 0)
    if work.is_(Fact.WIDE_STATE):
        product, channels = 2 * inner, inner
    convolved = _convolved(work, channels)
    scanned = work.rows(inner) + _kept(work)
    if scanned <= convolved and not work.is_(Fact.WIDE_STATE):
        # The scan takes the place of the convolution's input; its result is then copied.
        end = work.rows(inner)
    else:
        end = scanned + _states(work) * (work.settings.n_seq - 1) // work.settings.n_seq
    return work.rows(product + channels + _kept_of_attention(work)) + convolved + end


def _kept_of_attention(work: Work) -> int:
    if work.shape.row.recurrent is not Recurrent.BESIDE_ATTENTION:
        return 0
    return spilled([work.mixed], [work.shape.n_embd])


def _delta_net(work: Work) -> int:
    """Gated delta net: the same in another order, with queries and keys from the convolution."""
    channels, states = work.rows(_channels(work)), _states(work)
    convolved = _convolved(work, _channels(work))
    result = work.rows(_inner(work)) + _kept(work)
    if states <= work.row:
        compared = _inner(work) if work.is_(Fact.REPEATED_KEYS) else _grouped(work)
        return channels + max(convolved, work.rows(2 * compared) + result)
    # The state takes the place of the first product, or that of the convolution's result.
    return channels + convolved + result + max(channels, states)


def _kda(work: Work) -> int:
    inner = work.heads * work.keys.number("kda.head_dim")
    return work.rows(5 * inner) + _states(work) + _kept(work)


def _rwkv(work: Work) -> int:
    states = _states(work)
    late = spilled([states], [work.row])
    if work.shape.row.name in {"rwkv7", "arwkv7"}:
        return 15 * work.row + states + late
    return 21 * work.row // 2 + states + (late + work.row if late else 0)


def _short_convolution(work: Work) -> int:
    return 3 * work.row


def _lightning(work: Work) -> int:
    """Queries, keys and values, and two matrices of tokens x tokens for each head."""
    return work.rows(5 * work.queries + 2 * work.heads * work.tokens)


_PHASES: dict[State, Callable[[Work], int]] = {
    State.SSM: _scan,
    State.SSM_GROUPS: _scan,
    State.RWKV: _rwkv,
    State.SHORT_CONV: _short_convolution,
    State.KDA: _kda,
    State.LIGHTNING: _lightning,
}
