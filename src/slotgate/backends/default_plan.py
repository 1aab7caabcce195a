"""How many slots of what context, until memory is taken into account: a simple, safe choice.

The number of slots is llama.cpp's own default.  Its default context is not taken: it gives every
slot the whole of one shared pool, which overflows when several slots fill up, and then *all* of
them fail.  Here each slot has a context of its own.
"""

from __future__ import annotations

DEFAULT_SLOTS = 4
# Room for a conversation of some length; four of these cost about 2 GB with an 8B model.
DEFAULT_SLOT_TOKENS = 4096
# llama.cpp rounds a slot's context up to a multiple of this.
PAD_TOKENS = 256


def plan_default(
    parallel: int | None, ctx_size: int | None, n_ctx_train: int | None
) -> tuple[int, int, str]:
    """Choose what the user left open.

    Returns slots, context of all slots together in tokens (what `--ctx-size` means), and a
    sentence for the user.  `n_ctx_train` is what the model was trained for, None if not known.
    """
    slots = parallel or DEFAULT_SLOTS
    trained = f"the model was trained for {n_ctx_train:,}" if n_ctx_train else ""
    if ctx_size:
        slot_tokens = ctx_size // slots
        why = f"{ctx_size:,} tokens as asked, divided evenly"
        if n_ctx_train and slot_tokens > n_ctx_train:
            why += f"; more than it can use: {trained}"
        return slots, ctx_size, _sentence(slots, slot_tokens, why)
    slot_tokens = min(DEFAULT_SLOT_TOKENS, n_ctx_train or DEFAULT_SLOT_TOKENS)
    slot_tokens = -(-slot_tokens // PAD_TOKENS) * PAD_TOKENS
    why = trained or "enough for a conversation of some length"
    return slots, slots * slot_tokens, _sentence(slots, slot_tokens, why)


def _sentence(slots: int, slot_tokens: int, why: str) -> str:
    things = "1 slot" if slots == 1 else f"{slots} slots"
    each = "" if slots == 1 else " each"
    return (
        f"{things} of {slot_tokens:,} tokens{each} ({why}); "
        "change it with --parallel and --ctx-size"
    )
