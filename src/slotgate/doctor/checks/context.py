"""What the slots can hold, and whether they can all hold it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.builds import features_missing
from slotgate.capacity.settings import padded
from slotgate.doctor.check import check
from slotgate.doctor.evidence import MODELS, PROPS, SLOTS, Evidence, Make
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning
from slotgate.runtime.kv_pool import Sharing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.finding import Finding

# llama.cpp's own least when it fits a context to a device (--fit-ctx).
SMALL_TOKENS = 4096
_OVERFLOWS = (
    "When together they want more than there is, every running request ends with 500 "
    '"Context size has been exceeded." (#23652).'
)
_SHARES = {Sharing.PRESUMED: "probably share", Sharing.DOUBTED: "may share"}


@check(
    "context-too-small",
    asks="Does a slot hold the longest request?",
    by="`n_ctx` of the slots, against `--context`.",
    severities=(ERROR, OK),
)
def too_small(seen: Evidence) -> Iterator[Finding]:
    needed = seen.stated.context
    if seen.size is None or needed is None:
        return
    slots, context = seen.size
    if context >= needed:
        yield fine(f"A slot holds the {needed:,} tokens of your longest request.", _sizes(seen))
        return
    yield error(
        f"A slot holds {context:,} tokens, and your longest request needs {needed:,}.",
        f"{_sizes(seen)}; --context {needed}",
        "Longer prompts are refused with 400 exceed_context_size_error, and longer answers are "
        "cut off.",
        f"-c {padded(needed) * slots} -np {slots}: as many slots, more memory "
        "(`slotgate plan` says whether it fits)",
        *_fewer_slots(seen, needed),
    )


def _fewer_slots(seen: Evidence, needed: int) -> Iterator[str]:
    slots, context = seen.size or (0, 0)
    enough = slots * context // padded(needed)
    if shared_by(seen) is Sharing.SEPARATE and enough:
        yield f"-c {slots * context} -np {enough}: in the memory that it has now"


@check(
    "context-divided",
    asks="Do the slots share out a context that was meant for each?",
    by="`n_ctx` and number of the slots, against `n_ctx_train` of `/v1/models`.  Below 4,096 "
    "tokens a slot it is a warning.",
    severities=(WARNING, NOTE, OK),
)
def divided(seen: Evidence) -> Iterator[Finding]:
    if seen.size is None or seen.size[0] < 2 or shared_by(seen) is not Sharing.SEPARATE:
        return
    slots, context = seen.size
    whole = slots * context
    if seen.stated.context is not None or seen.trained is None or context >= seen.trained:
        yield fine(f"{slots} slots have {context:,} tokens each.", _sizes(seen))
        return
    is_sure = is_surely_separate(seen)
    yield (warning if context < SMALL_TOKENS else note)(
        f"The context is {'' if is_sure else 'most likely '}divided: {slots} slots have "
        f"{context:,} tokens each, of {whole:,}.",
        f"{_sizes(seen)}, as -np divides -c unless -kvu is given; GET {MODELS}: n_ctx_train "
        f"{seen.trained:,}{f'; {seen.flags.source}' if seen.flags is not None else ''}",
        f"A request of more than {context:,} tokens, prompt and answer together, is refused or "
        "cut off, though all slots together hold more: with -np, -c is what they share out.",
        f"-c {slots * min(whole, seen.trained)} -np {slots}: {min(whole, seen.trained):,} tokens "
        "for each, if there is memory (`slotgate plan`)",
        f"-c {whole} -np 1: all of it for one request at a time",
        f"If {context:,} tokens are enough for you, nothing: say --context N to have it checked.",
    )


@check(
    "slots-differ",
    asks="Does it have as many slots as it was started with?",
    by="The number of slots, against `-np` of its flags.",
    severities=(WARNING,),
)
def slots_differ(seen: Evidence) -> Iterator[Finding]:
    flags = seen.flags
    asked = None if flags is None else flags.parallel
    if (
        flags is None
        or asked is None
        or asked < 1
        or seen.slots in {None, asked}
        or seen.make is Make.SLOTGATE
    ):
        return
    yield warning(
        f"It was asked for {asked} {_slots(asked)}, and has {seen.slots}.",
        f"GET {SLOTS if seen.looks else PROPS}; -np {asked}, of {flags.source}",
        "Whoever counts on the flag sends too much or too little, and the context is not what was "
        "planned. Builds of late 2025 gave four slots for -np 1 (#17300).",
        "Believe what the server says, not the flag.",
        "Update llama.cpp, or correct the flags that you gave.",
    )


@check(
    "context-overcommitted",
    asks="Can the slots together want more context than there is?",
    by="Its flags, where they are known.  Else by sight: an idle slot that lost its tokens "
    "while others worked was emptied for them, which only a shared pool does.  Else by what is "
    "usual: four slots are llama-server's own choice, and then they share one pool; of any "
    "other number they most likely do not, which is a note.  The server itself does not tell.",
    severities=(WARNING, NOTE, OK),
)
def overcommitted(seen: Evidence) -> Iterator[Finding]:
    if seen.size is None or seen.size[0] < 2:
        return
    slots, context = seen.size
    sharing = shared_by(seen)
    promised, pool = slots * context, _pool(seen)
    if sharing is Sharing.SEPARATE and not is_surely_separate(seen):
        yield _may_share(seen, slots, context)
    elif sharing is Sharing.SEPARATE or (pool is not None and pool >= promised):
        yield fine("Its slots have context enough for all of them.", _pool_known_by(seen, sharing))
    elif sharing is not None:
        size = "perhaps no more than that" if pool is None else f"{pool:,} in all"
        yield (note if sharing is Sharing.DOUBTED else warning)(
            f"{slots} slots {_SHARES.get(sharing, 'share')} one pool of context: each may take "
            f"{context:,} tokens, and there are {size}.",
            _pool_known_by(seen, sharing),
            _OVERFLOWS,
            *_ways_out(seen, slots, context, pool),
        )


def _may_share(seen: Evidence, slots: int, context: int) -> Finding:
    return note(
        f"Whether its {slots} slots share one pool of context is not known: each may take "
        f"{context:,} tokens.",
        f"{_sizes(seen)}: a number that was asked for with -np, which separates them unless -kvu "
        "was given too; no route tells",
        f"If they share: {_OVERFLOWS[0].lower()}{_OVERFLOWS[1:]}",
        "Say --flags, or ask on its own machine, where its process tells.",
        "--measure: that shows whether idle slots are emptied, as those of one pool are.",
    )


def _ways_out(seen: Evidence, slots: int, context: int, pool: int | None) -> Iterator[str]:
    yield f"-c {pool or context} -np {slots}: divides it, {(pool or context) // slots:,} for each"
    if not _lacks(seen, "slot-limit"):
        yield (
            f"-np {slots} -kvu --kv-unified-per-slot {context}, and no -c: enough for all, with "
            "the memory that takes"
        )
    yield "Slotgate in front of it, which admits no more than fits (`kv_pool`)"
    if shared_by(seen) in _SHARES:
        yield "If it was started with -np and without -kvu, nothing: say so with --flags."


def shared_by(seen: Evidence) -> Sharing | None:
    """How it is known whether the slots share: by the operator, by sight, or by what is usual."""
    if seen.flags is not None:
        return Sharing.CONFIGURED if seen.flags.is_unified else Sharing.SEPARATE
    # Before four slots became the default, whoever has four asked for them.
    if seen.sharing is Sharing.PRESUMED and _lacks(seen, "automatic-slots"):
        return Sharing.SEPARATE
    return seen.sharing


def is_surely_separate(seen: Evidence) -> bool:
    """Whether the slots are known not to share; most that were asked for do not, but may."""
    return shared_by(seen) is Sharing.SEPARATE and (
        seen.flags is not None or _lacks(seen, "separate-slots")
    )


def _pool(seen: Evidence) -> int | None:
    """Tokens of all slots together, if the flags tell."""
    if seen.flags is None or seen.size is None:
        return None
    return seen.flags.pool_tokens(*seen.size, seen.trained)


def _pool_known_by(seen: Evidence, sharing: Sharing | None) -> str:
    if seen.flags is not None:
        return f"{_sizes(seen)}; {seen.flags.source}"
    if sharing is Sharing.SEPARATE:
        return f"{_sizes(seen)}: a build whose slots do not share"
    return f"{_sizes(seen)}: {sharing}"


@check(
    "context-above-trained",
    asks="Is there more context than the model was trained for?",
    by="`n_ctx` of the slots, and `-c` of its flags, against `n_ctx_train` and, where it can "
    "be read, what the file of the model says (`--override-kv` changes the first).  Recent "
    "builds cut a slot off at that, and the memory is wasted without a trace in any route.",
    severities=(WARNING, OK),
)
def above_trained(seen: Evidence) -> Iterator[Finding]:
    trained, size = _trained(seen), seen.size
    if trained is None or size is None:
        return
    context = size[1]
    known_by = f"{_sizes(seen)}; {_trained_known_by(seen)}"
    wasted = _wasted(seen, known_by)
    if wasted is not None:
        yield wasted
    if context > padded(trained):
        yield _beyond(seen, trained, known_by)
    elif wasted is None:
        is_told = seen.flags is not None or context < trained
        rest = "" if is_told else "; whether -c asked for more, and wastes it, no route tells"
        yield fine(
            f"No slot holds more than the {trained:,} tokens that the model was trained for{rest}.",
            known_by,
        )


def _beyond(seen: Evidence, trained: int, known_by: str) -> Finding:
    slots, context = seen.size or (0, 0)
    if seen.flags is not None and seen.flags.stretches:
        return fine(
            f"A slot holds more than the {trained:,} tokens that the model was trained for, and "
            "its positions are stretched.",
            f"{known_by}; {seen.flags.source}",
        )
    return warning(
        f"A slot holds {context:,} tokens; the model was trained for {trained:,}.",
        known_by,
        "Beyond what it was trained for a model writes nonsense, unless its positions are "
        "stretched on purpose (--rope-scaling).",
        f"-c {slots * trained} -np {slots}",
    )


def _wasted(seen: Evidence, known_by: str) -> Finding | None:
    """More was asked for than a server that cuts its slots off at the trained context can use."""
    (slots, context), flags, limit = seen.size or (0, 0), seen.flags, seen.trained
    asked = 0 if flags is None else flags.ctx_size or 0
    if flags is None or limit is None or context > padded(limit) or asked <= slots * padded(limit):
        return None
    return warning(
        f"-c {asked} is more than its slots can use: each stops at {limit:,} tokens, for which the "
        "model was trained or stretched.",
        f"{known_by}; {flags.source}",
        f"Memory is allocated for {asked:,} tokens and used for {slots * limit:,}.",
        f"-c {slots * limit} -np {slots}",
    )


def _trained(seen: Evidence) -> int | None:
    """What the model was trained for; its server repeats what --override-kv says."""
    told = [each for each in (seen.trained, seen.trained_in_file) if each is not None]
    return min(told, default=None)


def _trained_known_by(seen: Evidence) -> str:
    told = [] if seen.trained is None else [f"GET {MODELS}: n_ctx_train {seen.trained:,}"]
    if seen.trained_in_file is not None:
        told.append(f"the model's file: context_length {seen.trained_in_file:,}")
    return "; ".join(told)


def _lacks(seen: Evidence, feature: str) -> bool:
    build = seen.build
    return build is not None and any(one.feature == feature for one in features_missing(build))


def _sizes(seen: Evidence) -> str:
    slots, context = seen.size or (0, 0)
    if seen.looks:
        return f"GET {SLOTS}: {slots} {_slots(slots)}, n_ctx {context:,}"
    return f"GET {PROPS}: total_slots {slots}, n_ctx {context:,}"


def _slots(number: int) -> str:
    return "slot" if number == 1 else "slots"
