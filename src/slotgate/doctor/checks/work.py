"""What the slots do now: whether they get on, and who waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import METRICS, SLOTS, Evidence, Look
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.finding import Finding
    from slotgate.wire.llama_cpp import SlotView

# Longer than a batch of the default size took on the slowest server that was measured (9 s).
STUCK_SECONDS = 10.0
# Two looks that are closer to each other may show the same batch.
LOOK_SECONDS = 1.2


def standing(looks: tuple[Look, ...]) -> dict[int, float]:
    """Return the slots that work and did not get on, with the seconds for which that was seen."""
    if not looks:
        return {}
    last = looks[-1]
    working = [slot for slot in last.slots if slot.is_processing]
    return {slot.id: last.at - _since(looks, slot) for slot in working}


def _since(looks: tuple[Look, ...], slot: SlotView) -> float:
    """When the slot was first seen in the state in which it was last seen."""
    since = looks[-1].at
    for look in reversed(looks):
        if not any(_progress(each) == _progress(slot) for each in look.slots):
            break
        since = look.at
    return since


def _progress(slot: SlotView) -> tuple[object, ...]:
    """All that moves while a slot works; the task too, so that a new one is no standstill."""
    return (
        slot.id,
        slot.is_processing,
        slot.id_task,
        slot.n_decoded,
        slot.n_prompt_tokens,
        slot.n_prompt_processed,
    )


@check(
    "slot-stuck",
    asks="Does a slot work without getting on?",
    by="`GET /slots` every 1.2 s: `id_task`, `n_decoded`, `n_prompt_tokens` and "
    "`n_prompt_tokens_processed` of slots with `is_processing`.  A slot that wrote nothing for "
    "10 s while none reads a prompt is an error; one that may still read is told apart.",
    severities=(ERROR, WARNING, NOTE, OK),
)
def stuck(seen: Evidence) -> Iterator[Finding]:
    if not seen.looks:
        return
    stands = {slot: seconds for slot, seconds in standing(seen.looks).items() if seconds > 0}
    last = seen.looks[-1]
    for slot in last.slots:
        if slot.id in stands:
            yield _judge(slot, stands[slot.id], last)
    working = sum(slot.is_processing for slot in last.slots)
    if not working:
        yield fine("All slots are idle.", f"GET {SLOTS}: no is_processing")
    elif not stands:
        yield fine(
            f"{working} of {len(last.slots)} slots work, and all of them get on.",
            f"GET {SLOTS}, {len(seen.looks)} times: n_decoded or the prompt moved",
        )


def _judge(slot: SlotView, seconds: float, last: Look) -> Finding:
    is_writing = bool(slot.n_decoded)
    known_by = (
        f"GET {SLOTS} over {seconds:.1f} s: task {_told(slot.id_task)}, "
        f"n_decoded {_told(slot.n_decoded)}, n_prompt_tokens_processed "
        f"{_told(slot.n_prompt_processed)}, unchanged"
    )
    others_read = any(each.is_processing and not each.n_decoded for each in last.slots)
    if is_writing and not others_read and seconds >= STUCK_SECONDS:
        return _is_stuck(slot, seconds, known_by)
    if is_writing:
        return _stands_still(slot, seconds, known_by, others_read=others_read)
    return _may_read(slot, seconds, known_by)


def _is_stuck(slot: SlotView, seconds: float, known_by: str) -> Finding:
    return error(
        f"Slot {slot.id} is stuck: it has written nothing for {seconds:.0f} s, and no other slot "
        "reads a prompt that could hold it up.",
        known_by,
        "Its client waits for ever, and the slot is lost until the server is restarted (#23268, "
        "#25819, #27388). Speculative decoding is suspected.",
        "Restart it.",
        "If it comes back: start it without speculative decoding (--spec-type, -md).",
    )


def _stands_still(slot: SlotView, seconds: float, known_by: str, *, others_read: bool) -> Finding:
    why = (
        "Another slot reads a prompt meanwhile, which holds up all that write; a smaller batch "
        "makes that shorter. If it lasts, the slot is stuck."
        if others_read
        else f"It may be stuck, which is certain after {STUCK_SECONDS:.0f} s."
    )
    return warning(
        f"Slot {slot.id} has written nothing for {seconds:.1f} s.",
        known_by,
        why,
        "Look for longer: --watch 60",
        *(("-b 512, or less",) if others_read else ()),
    )


def _may_read(slot: SlotView, seconds: float, known_by: str) -> Finding:
    is_mute = slot.n_prompt_processed is None
    told = ", and this build does not tell how far it is" if is_mute else ""
    return (warning if seconds >= STUCK_SECONDS else note)(
        f"Slot {slot.id} has written nothing yet, and did not get on for {seconds:.1f} s. It may "
        f"be reading a long prompt{told}.",
        known_by,
        "What has been read shows only after each batch, which takes seconds on a slow machine; "
        "a slot that never begins to read is a known fault (#27185).",
        "Look for longer: --watch 60",
        "-b 512, or less: progress shows more often",
    )


@check(
    "deferred",
    asks="Do requests wait inside it now?",
    by="`GET /metrics`: `llamacpp:requests_deferred`; without metrics, whether all slots are "
    "busy.  Both are as old as the batch that runs.",
    severities=(WARNING, NOTE, OK),
)
def deferred(seen: Evidence) -> Iterator[Finding]:
    waiting = None if seen.counted is None else seen.counted.deferred
    if waiting:
        yield warning(
            f"{waiting} {_requests(waiting)} inside it.",
            f"GET {METRICS}: llamacpp:requests_deferred {waiting}",
            "They wait in a line without bound or deadline, see nothing meanwhile, and are worked "
            "off even if their clients have left (#13262).",
            "Slotgate in front of it: an ordered, bounded queue, and no more requests than slots",
            *_more_slots(seen),
        )
    elif waiting == 0:
        yield fine("No request waits inside it.", f"GET {METRICS}: llamacpp:requests_deferred 0")
    elif seen.looks and all(slot.is_processing for slot in seen.looks[-1].slots):
        yield note(
            "All of its slots are busy; whether requests wait inside it cannot be seen.",
            f"GET {SLOTS}: every slot is_processing; {METRICS} is off",
            "The next request waits there, in a line without bound or deadline.",
            "--metrics",
            *_more_slots(seen),
        )


def _more_slots(seen: Evidence) -> Iterator[str]:
    if seen.slots == 1 and seen.ctx_per_slot:
        yield (
            f"-np 4 -c {4 * seen.ctx_per_slot}: it has one slot, so every client waits for every "
            "other (`slotgate plan` says whether it fits)"
        )


def _requests(number: int) -> str:
    return "request waits" if number == 1 else "requests wait"


def _told(value: int | None) -> str:
    return "not told" if value is None else str(value)
