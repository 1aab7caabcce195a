"""What a micro-batch brings along: its tokens, masks, and where its rows go in the caches."""

from __future__ import annotations

from slotgate.capacity.caches import SPARSE_RATIO
from slotgate.capacity.compute_facts import Fact
from slotgate.capacity.compute_work import ELEMENT_BYTES, Work

_ALIGNMENT = 32
_TOKEN, _PLACE = 4, 8
# Rows of the model's width that are always there; without mixing, none is for a mixed batch.
_ROWS, _ROWS_UNMIXED = 5, 3
# deepseek4 has two rows less, and many small inputs for its compressors.
_ROWS_COMPRESSED, _COMPRESSOR_INPUTS = 2, 200
# Where embeddings are several streams, all streams are there so often.
_STREAMS, _STREAMS_COMPRESSED = 2, 3
# minimax-m3 orders blocks by their place; before anything is read, there are so many places.
_PLACES = 256


def mask_bytes(work: Work) -> int:
    """All masks: which cells each token may see, a number for each."""
    number = mask_element(work)
    if work.sees_batch_alone:
        return work.tokens * work.tokens * number
    total = 0
    for cache in work.caches:
        if cache.part != "indexer":
            total += cache.cells * work.tokens * number
        elif _is_masked(work):
            # As with flash attention, always.
            total += cache.cells * work.tokens * 2
    return total


def _is_masked(work: Work) -> bool:
    """Whether an indexer has a mask of its own."""
    if work.shape.row.name == "deepseek4":
        return True
    return has_indexer(work) and not work.is_(Fact.BLOCK_MASK)


def mask_element(work: Work) -> int:
    """Bytes of a mask's number: f16 for flash attention, else f32."""
    return 4 if work.without_flash else 2


def index_bytes(work: Work) -> int:
    """Tokens, places, and for each cache the cells to write."""
    tokens = work.tokens
    places = 4 if work.shape.m_rope else 1
    sizes = [_TOKEN * tokens, _TOKEN * tokens * places, _TOKEN * work.outputs]
    if not work.is_(Fact.NO_MIXING):
        sizes += [_TOKEN * tokens, _PLACE * tokens]
    for cache in work.caches:
        sizes.append(_PLACE * tokens)
        if not cache.heads.latent and cache.part != "indexer":
            # Transposed values are written element by element.
            elements = cache.heads.widest_value_row() if work.without_flash else 1
            sizes.append(_PLACE * tokens * elements)
    return sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes) + _special(work)


def row_bytes_always(work: Work) -> int:
    """The rows that are there in every phase."""
    streams = 0
    if work.is_(Fact.HYPER_CONNECTED):
        streams = work.keys.number("hyper_connection.count", 0)
    if work.shape.row.name == "deepseek4":
        return (_ROWS_COMPRESSED + _STREAMS_COMPRESSED * streams) * work.row
    rows = _ROWS_UNMIXED if work.is_(Fact.NO_MIXING) else _ROWS
    return (rows + _STREAMS * streams) * work.row


def _special(work: Work) -> int:
    name = work.shape.row.name
    if name == "t5":
        trained = work.shape.n_ctx_train
        states = ELEMENT_BYTES * work.shape.n_embd * trained
        return work.rows(work.cells) + states + trained * work.tokens * mask_element(work)
    if name == "t5encoder":
        return work.rows(work.tokens)
    if work.is_(Fact.DECAY_MATRIX):
        return work.heads * work.rows(work.tokens + 2)
    if name == "deepseek4":
        layers = work.shape.compress_ratios.count(SPARSE_RATIO)
        chosen = min(work.keys.number("attention.indexer.top_k", 0), compressed_cells(work))
        numbers = layers * chosen * mask_element(work)
        return work.tokens * (numbers + _COMPRESSOR_INPUTS)
    return _indexer(work)


def _indexer(work: Work) -> int:
    if not has_indexer(work):
        return 0
    if work.is_(Fact.BLOCK_MASK):
        # The mask is copied as f32.
        return work.rows(_PLACES + 1 + work.cells)
    # Each of its layers has a list of zeros, one for each cell chosen, and all lists are there.
    chosen = min(work.keys.number("attention.indexer.top_k", 0), work.cells)
    rotation = ELEMENT_BYTES * work.keys.number("attention.indexer.key_length") ** 2
    return sum(work.shape.indexed) * work.rows(chosen) + rotation


def has_indexer(work: Work) -> bool:
    """Whether cells are chosen before they are attended."""
    if not any(cache.part == "indexer" for cache in work.caches):
        return False
    if work.is_(Fact.BLOCK_MASK):
        return not work.without_flash and work.sequences_apart
    return work.shape.heads.latent


def compressed_cells(work: Work) -> int:
    """Cells of the least compressed cache (deepseek4)."""
    return max((cache.cells for cache in work.caches if cache.part == "compressed"), default=0)
