"""What to know of a plan's slots and context: each check returns a message, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Memory
from slotgate.capacity.replan import halved, used_bytes
from slotgate.capacity.settings import MAX_SEQUENCES, padded
from slotgate.capacity.state_rows import rollbacks
from slotgate.capacity.units import show_size

if TYPE_CHECKING:
    from slotgate.capacity.replan import Replan

# What takes a smaller part of the context than this is not worth a sentence.
_NOTABLE_PERCENT = 5


def rounded_up(what: Replan) -> str | None:
    """llama.cpp gives slots whole multiples of 256 tokens."""
    wish, own = what.plan.wish, what.memory.n_ctx_seq
    if wish.ctx_size is not None and what.memory.n_ctx != wish.ctx_size:
        slots = "" if what.settings.unified else f", {own:,} a slot"
        return (
            f"{wish.ctx_size:,} tokens were asked for; llama.cpp rounds up to a multiple of 256"
            f"{'' if what.settings.unified else ' for each slot'} and allocates "
            f"{what.memory.n_ctx:,}{slots}."
        )
    if wish.ctx_per_slot is not None and wish.ctx_per_slot != padded(wish.ctx_per_slot):
        return (
            f"{wish.ctx_per_slot:,} tokens a slot were asked for; llama.cpp rounds up to a "
            f"multiple of 256 and allocates {padded(wish.ctx_per_slot):,}."
        )
    return None


def above_trained(what: Replan) -> str | None:
    """More memory than the slots can use."""
    trained = what.memory.n_ctx_train
    usable = what.settings.n_seq * padded(trained)
    if not 0 < usable < what.memory.n_ctx:
        return None
    wasted = -what.more_context(n_ctx=usable)
    return (
        f"The model was trained for {trained:,} tokens and a slot can use no more, but memory is "
        f"allocated for {what.own_tokens:,} each: {show_size(wasted)} are wasted. "
        f"Ask for {usable:,} tokens in all."
    )


# A context_length that files of Mistral Nemo have, and the one that its card speaks of.
_NEMO_TOKENS, _NEMO_CARD_TOKENS = 1_024_000, 131_072


def doubtful_training(what: Replan) -> str | None:
    """A trained context that its own makers do not claim."""
    if what.memory.n_ctx_train != _NEMO_TOKENS or what.plan.ctx_per_slot <= _NEMO_CARD_TOKENS:
        return None
    return (
        f"The file says that the model was trained for {_NEMO_TOKENS:,} tokens, as those of "
        f"Mistral Nemo do; its card says 128k. Ask for at most {_NEMO_CARD_TOKENS:,} tokens a slot "
        f"instead of {what.plan.ctx_per_slot:,}."
    )


def overcommitted(what: Replan) -> str | None:
    """One pool that promises more than it has."""
    plan, pool = what.plan, what.memory.n_ctx
    if not plan.overcommitted:
        return None
    promised = plan.slots * plan.ctx_per_slot
    own = halved(what.own_tokens, 0) or what.own_tokens
    return (
        f"{plan.slots} slots may take {plan.ctx_per_slot:,} tokens each, {promised:,} in all, of a "
        f"pool of {pool:,}: when together they want more than it has, llama.cpp fails all of them. "
        f"Limit each with --kv-unified-per-slot {own}, or make the pool {promised:,} tokens, "
        f"which takes {show_size(what.more_context(n_ctx=promised))} more."
    )


def window_caches(what: Replan) -> str | None:
    """Caches that grow with slots and micro-batch instead of with the context."""
    windows, half = what.memory.parts.get("window", 0), what.settings.n_ubatch // 2
    if what.settings.swa_full or not _notable(windows, what):
        return None
    text = (
        f"The window layers take {show_size(windows)} of the context's {_total(what)}: they grow "
        f"with --parallel and --ubatch-size, not with the context."
    )
    saved = -what.more(n_ubatch=half) if half else 0
    if saved > 0:
        text += (
            f" --ubatch-size {half} instead of {what.settings.n_ubatch} would save "
            f"{show_size(saved)}, scratch included, and read prompts slower."
        )
    return text


def unified_saves(what: Replan) -> str | None:
    """Windows of one pool overlap; those of slots of their own do not."""
    settings = what.settings
    has_windows = "window" in what.memory.parts and what.shape.row.memory is not Memory.COMPRESSED
    if settings.unified or settings.n_seq == 1 or not has_windows:
        return None
    saved = -what.more(unified=True)
    if not _notable(saved, what):
        return None
    return (
        f"Each of {settings.n_seq} slots has window caches of its own. "
        f"--kv-unified --kv-unified-per-slot {what.own_tokens} gives the slots the same "
        f"{what.own_tokens:,} tokens and saves {show_size(saved)}, scratch included."
    )


def windows_full(what: Replan) -> str | None:
    """--swa-full keeps the whole context where the model sees a window."""
    more = -what.more_context(swa_full=False)
    if not what.settings.swa_full or more <= 0:
        return None
    return (
        f"--swa-full keeps the whole context on layers that see a window of "
        f"{what.shape.window_tokens:,} tokens: {show_size(more)} more than without it."
    )


def compressed_unified(what: Replan) -> str | None:
    """deepseek4 has a stream for each slot whatever was asked, so one pool multiplies."""
    if what.shape.row.memory is not Memory.COMPRESSED or not what.settings.unified:
        return None
    separate = what.with_settings(unified=False)
    if what.settings.n_seq == 1 or separate is None:
        return None
    return (
        f"{what.shape.row.name} keeps the whole pool for each slot when it is unified: "
        f"{_total(what)} instead of {show_size(separate.context_bytes)}. Leave --kv-unified off "
        "(--no-kv-unified), which divides it."
    )


def without_flash(what: Replan) -> str | None:
    """Scratch that grows with heads x context x micro-batch."""
    grok = what.shape.row.name == "grok"
    if what.settings.flash_attn != "off" and not grok:
        return None
    text = (
        f"Without flash attention the scratch grows with heads x context x micro-batch: it is "
        f"{show_size(what.usage.compute.total)} here"
    )
    other = None if grok else what.with_settings(flash_attn="on")
    if other is not None:
        text += f", and {show_size(other.compute.total)} with it"
    ending = "grok cannot use it; a smaller --ubatch-size helps." if grok else "Leave it on."
    return f"{text}. Nor can the values be quantised. {ending}"


def recurrent_state(what: Replan) -> str | None:
    """A state for each slot, which no context and no cache type makes smaller."""
    state = what.memory.parts.get("state", 0)
    if not _notable(state, what):
        return None
    per_slot = state // what.settings.n_seq
    text = (
        f"Each slot has a recurrent state of {show_size(per_slot)}, {show_size(state)} in all, "
        "always f32: neither a shorter context nor --cache-type-k makes it smaller."
    )
    if 2 * state > what.memory.total:
        text += " Here the slots cost more than their context."
    return text


def state_copies(what: Replan) -> str | None:
    """Speculation keeps earlier states to go back to."""
    if what.settings.n_rs_seq == 0 or "state" not in what.memory.parts:
        return None
    kept = rollbacks(what.shape, what.settings)
    if not kept:
        return (
            f"{what.shape.row.name} cannot roll its states back, so speculation keeps none: "
            f"{what.settings.n_rs_seq} were asked for."
        )
    state = what.memory.parts["state"]
    return (
        f"Speculation keeps each state {1 + kept} times: {show_size(state)} instead of "
        f"{show_size(state // (1 + kept))}. "
        "A smaller --spec-draft-n-max keeps fewer."
    )


def batch_limits_slots(what: Replan) -> str | None:
    """llama.cpp aborts on more slots than a batch has tokens."""
    batch = what.memory.size.n_batch
    if batch >= MAX_SEQUENCES:
        return None
    return (
        f"A batch has {batch} tokens here, and llama.cpp aborts on more slots than that. "
        "For more slots, raise --batch-size, and the context with it."
    )


def no_context(what: Replan) -> str | None:
    """An encoder keeps nothing of what it read."""
    if what.shape.row.memory is not Memory.NONE:
        return None
    return (
        f"{what.shape.row.name} keeps no context: slots and tokens cost scratch only, "
        f"{show_size(used_bytes(what.usage) - what.usage.weights.total)} here."
    )


def _notable(part: int, what: Replan) -> bool:
    return part > 0 and 100 * part >= _NOTABLE_PERCENT * what.memory.total


def _total(what: Replan) -> str:
    return show_size(what.memory.total)
