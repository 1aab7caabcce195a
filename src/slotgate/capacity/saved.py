"""What llama-server keeps in host memory or on disk of a slot: prompts, checkpoints, slot files.

    a cache       = 4 + 4 x streams + 16 + 12 x its tensors + cells x (12 + 12 if placed + row)
    a state       = 20 + sum over recurrent layers of 24 + 4 x (R + S)
    a prompt      = all caches + the state                 (--cache-ram keeps these)
    a checkpoint  = the window caches + the state          (--ctx-checkpoints of them for a slot)
    a slot file   = a prompt + 28 + 4 x tokens             (--slot-save-path)

`cells` are the prompt's tokens, in a window cache those of them that the last one still sees.
All sizes are in bytes.  Source: llama.cpp build 11434, what it writes when it saves a sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Memory
from slotgate.capacity.caches import HEAVY_RATIO, SPARSE_RATIO, Cache
from slotgate.capacity.context import memory_of
from slotgate.capacity.ggml_types import row_bytes
from slotgate.capacity.shapes import Shape, shape_of
from slotgate.capacity.state_rows import ELEMENT_BYTES

if TYPE_CHECKING:
    from slotgate.capacity.context import ContextMemory
    from slotgate.capacity.metadata import Meta
    from slotgate.capacity.settings import Settings

_STREAM_BYTES = 4
_DATA_HEAD_BYTES = 16
_TENSOR_HEAD_BYTES = 12
_CELL_BYTES = 12
# The place in an image, or in what an n-gram saw.
_PLACE_BYTES = 12
_FILE_HEAD_BYTES = 28
_TOKEN_BYTES = 4
# deepseek4 writes its compressed rows and states in a form of its own.
_COMPRESSED_HEAD_BYTES = 12
_ROWS_HEAD_BYTES = 16
_STATE_HEAD_BYTES = 24
_LAYER_HEAD_BYTES = 4
_MATRIX_HEAD_BYTES = 28


def saved_prompt_bytes(meta: Meta, settings: Settings, tokens: int) -> int:
    """A prompt of so many tokens in the prompt cache; PlanRefused as for `context_memory`."""
    return _Saved(shape_of(meta), settings, tokens).everything()


def checkpoint_bytes(meta: Meta, settings: Settings, tokens: int) -> int:
    """One context checkpoint made after so many tokens; 0 where llama-server makes none."""
    shape = shape_of(meta)
    if not makes_checkpoints(shape, settings):
        return 0
    return _Saved(shape, settings, tokens).what_cannot_be_rolled_back()


def slot_file_bytes(meta: Meta, settings: Settings, tokens: int) -> int:
    """A file that `POST /slots/N?action=save` writes of so many tokens.

    Builds from about 11549 on append the slot's checkpoints, which are not counted here.
    """
    return saved_prompt_bytes(meta, settings, tokens) + _FILE_HEAD_BYTES + _TOKEN_BYTES * tokens


def makes_checkpoints(shape: Shape, settings: Settings) -> bool:
    """Whether there is something that cannot be rolled back: a window, or a recurrent state."""
    if shape.row.memory in {Memory.RECURRENT, Memory.HYBRID, Memory.COMPRESSED}:
        return True
    has_memory = shape.row.memory is not Memory.NONE
    return has_memory and bool(shape.window_tokens) and not settings.swa_full


class _Saved:
    def __init__(self, shape: Shape, settings: Settings, tokens: int) -> None:
        self.shape = shape
        self.settings = settings
        self.tokens = tokens
        self.memory: ContextMemory = memory_of(shape, settings)

    def everything(self) -> int:
        if self.shape.row.memory is Memory.COMPRESSED:
            rows = sum(map(self._rows, self.memory.caches[2:]))
            plain = sum(map(self._cache, self.memory.caches[:2]))
            return _COMPRESSED_HEAD_BYTES + plain + rows + self._compressors()
        return sum(map(self._cache, self.memory.caches)) + self._state()

    def what_cannot_be_rolled_back(self) -> int:
        windows = sum(self._cache(one) for one in self.memory.caches if one.part == "window")
        if self.shape.row.memory is Memory.COMPRESSED:
            return _COMPRESSED_HEAD_BYTES + windows + self._compressors()
        return windows + self._state()

    def _cache(self, cache: Cache) -> int:
        heads = _STREAM_BYTES + _STREAM_BYTES * cache.streams
        cells = self._seen() if cache.part == "window" else self.tokens
        if cells == 0:
            return heads
        tensors = len(cache.layers) * (1 if cache.heads.latent else 2)
        place = _PLACE_BYTES if self._is_placed(cache) else 0
        per_cell = _CELL_BYTES + place + sum(self._row(cache, layer) for layer in cache.layers)
        return heads + _DATA_HEAD_BYTES + _TENSOR_HEAD_BYTES * tensors + cells * per_cell

    def _seen(self) -> int:
        """How many of the tokens the last one sees in its window."""
        window, tokens = self.shape.row.window, self.shape.window_tokens or 0
        if window is not None and window.chunked and self.tokens:
            return (self.tokens - 1) % tokens + 1
        return min(self.tokens, tokens)

    def _is_placed(self, cache: Cache) -> bool:
        by_rope = self.shape.m_rope and cache.part != "indexer"
        return by_rope or self.shape.state.history > 0

    def _row(self, cache: Cache, layer: int) -> int:
        keys = row_bytes(self.settings.type_k, cache.heads.key_row(layer))
        if cache.heads.latent:
            return keys
        return keys + row_bytes(self.settings.type_v, cache.heads.value_row(layer))

    def _state(self) -> int:
        if self.shape.row.memory not in {Memory.RECURRENT, Memory.HYBRID}:
            return 0
        state = self.shape.state
        n_bytes = 20
        for row in self.memory.states:
            n_bytes += 2 * _TENSOR_HEAD_BYTES + ELEMENT_BYTES * row.elements
            n_bytes += 8 if row.layer in state.history_layers else 0
        return n_bytes

    def _rows(self, cache: Cache) -> int:
        """Compressed rows: one for each of so many tokens, as many as are whole."""
        heavy = self.shape.compress_ratios[cache.layers[0]] if cache.layers else 0
        ratio = HEAVY_RATIO if heavy == HEAVY_RATIO else SPARSE_RATIO
        rows = min(cache.cells, self.tokens // ratio)
        layers = (self._row(cache, layer) * rows + _LAYER_HEAD_BYTES for layer in cache.layers)
        return _ROWS_HEAD_BYTES + sum(layers) + _MATRIX_HEAD_BYTES * len(cache.layers)

    def _compressors(self) -> int:
        n_bytes = 3 * _STATE_HEAD_BYTES
        for row in self.memory.states:
            is_sparse = self.shape.compress_ratios[row.layer] == SPARSE_RATIO
            kinds = 2 if is_sparse else 1
            n_bytes += kinds * (_LAYER_HEAD_BYTES + 2 * _MATRIX_HEAD_BYTES)
            n_bytes += ELEMENT_BYTES * row.elements
        return n_bytes
