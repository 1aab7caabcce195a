"""Whether the server shows how it is, and whether looking at it costs something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import (
    HEALTH,
    KEY_STATUSES,
    METRICS,
    MODELS,
    PROPS,
    SLOTS,
    Evidence,
    Make,
    Trouble,
)
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning
from slotgate.doctor.flags import flags_of
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.finding import Finding
    from slotgate.wire.models import ListedModel

# The first build that answers /slots while it decodes (#27041).
ANSWERS_WHILE_DECODING = 10429
_OFF = (404, 501)
# Of about a thousand threads for connections.
MANY_CONNECTIONS = 800


@check(
    "slots-off",
    asks="Can its slots be seen?",
    by="`GET /slots`: 404 or 501, or `endpoint_slots` of `/props`.",
    severities=(WARNING, OK),
)
def slots_off(seen: Evidence) -> Iterator[Finding]:
    if seen.make is not Make.LLAMA_SERVER or seen.props is None:
        return
    if seen.looks:
        yield fine("Its slots can be seen.", f"GET {SLOTS}: {seen.status(SLOTS)}")
    elif _is_off(seen, SLOTS, flag=seen.props.endpoint_slots):
        yield warning(
            "Its slots cannot be seen.",
            _off_known_by(seen, SLOTS, "endpoint_slots"),
            "Nobody can tell who is stuck, who waits, or when a slot whose client left is free "
            "again; a gateway then has to wait for a time instead.",
            "--slots",
        )
    elif seen.status(SLOTS) in KEY_STATUSES:
        yield warning(
            "Its slots are not shown with this key.",
            f"GET {SLOTS}: {seen.status(SLOTS)}",
            "Nobody can tell who is stuck or who waits.",
            "Have the proxy in front of it let this key through to /slots.",
        )


@check(
    "metrics-off",
    asks="Does it have metrics?",
    by="`GET /metrics`: 404 or 501, or `endpoint_metrics` of `/props`.",
    severities=(NOTE, OK),
)
def metrics_off(seen: Evidence) -> Iterator[Finding]:
    if seen.make is not Make.LLAMA_SERVER or seen.props is None:
        return
    if seen.status(METRICS) == 200:
        yield fine("It has metrics.", f"GET {METRICS}: 200")
    elif _is_off(seen, METRICS, flag=seen.props.endpoint_metrics):
        yield note(
            "It has no metrics.",
            _off_known_by(seen, METRICS, "endpoint_metrics"),
            "How many requests wait inside it cannot be seen, now or later.",
            "--metrics",
        )


def _is_off(seen: Evidence, route: str, *, flag: bool | None) -> bool:
    return flag is False or seen.status(route) in _OFF


def _off_known_by(seen: Evidence, route: str, flag: str) -> str:
    status = seen.status(route)
    return f"GET {PROPS}: {flag} is false" if status is None else f"GET {route}: {status}"


@check(
    "connections",
    asks="Does it hold so many connections that it will answer nobody any more?",
    by="The sockets of this machine, where the server is here: from 800 on.  llama-server has a "
    "thread for each, about a thousand in all.",
    severities=(WARNING,),
    of_models=False,
)
def connections(seen: Evidence) -> Iterator[Finding]:
    held = 0 if seen.listener is None else seen.listener.connections
    if held >= MANY_CONNECTIONS and seen.make is not Make.SLOTGATE:
        yield warning(
            f"It holds {held:,} connections.",
            "the sockets of this machine",
            "Each takes one of its HTTP threads, idle or not. When they are used up, health, slots "
            "and every request wait (#20684).",
            "Find who keeps them: a client or a proxy that opens connections and does not close "
            "them, or waits without end.",
            "--timeout 60: it closes those that send nothing for so long",
        )


@check(
    "wedged",
    asks="Does it look healthy and do nothing?",
    by="`GET /slots` without an answer within `--timeout`, beside a good `/health`.",
    severities=(ERROR, WARNING),
)
def wedged(seen: Evidence) -> Iterator[Finding]:
    answer = seen.answers.get(SLOTS)
    if answer is None or answer.trouble is not Trouble.SILENT:
        return
    known_by = f"GET {seen.first}: {seen.status(seen.first)}; GET {SLOTS}: {answer.message}"
    if seen.build is None or seen.build < ANSWERS_WHILE_DECODING:
        yield warning(
            "Its slots do not answer, though its health does.",
            known_by,
            "Either it reads a long prompt, during which builds before "
            f"{ANSWERS_WHILE_DECODING} answer nothing else (#24866), or it is wedged and serves "
            "nobody any more (#27388).",
            "Examine it again with a longer --timeout; if it stays so, restart it.",
            f"Update llama.cpp to {ANSWERS_WHILE_DECODING} or newer, and see which of the two.",
        )
    else:
        yield error(
            "It is wedged: its health is good, and its slots do not answer.",
            known_by,
            "No request gets on, and only a restart helps (#27388). Saving a very long prompt to "
            "the host's memory looks the same for a few seconds.",
            "Examine it again; if it stays so, restart it.",
        )


@check(
    "sleeping",
    asks="Does it sleep, or try to while somebody polls it?",
    by="`GET /props`: `is_sleeping`; `--sleep-idle-seconds` of its flags.",
    severities=(NOTE,),
)
def sleeping(seen: Evidence) -> Iterator[Finding]:
    flags = seen.flags
    seconds = None if flags is None else flags.sleep_idle_seconds
    if seen.is_sleeping:
        yield note(
            "It sleeps: its model is not in memory. It was left so.",
            f"GET {PROPS}: is_sleeping; {SLOTS} was not asked",
            "The next request waits until the model is loaded again. So does whoever asks for its "
            "slots: a monitor that does wakes it, and keeps it awake (#23096).",
            f"Have monitors ask {HEALTH}, {PROPS} or {MODELS}, which wake nobody; {METRICS} too, "
            "in builds since August 2026 (#27376).",
        )
    elif seen.make is Make.LLAMA_SERVER and flags is not None and seconds and seconds > 0:
        yield _kept_awake(f"--sleep-idle-seconds {seconds}, of {flags.source}", seconds)


@check(
    "model-sleeps",
    asks="Does a router start models that try to sleep?",
    by="`GET /v1/models`: `status.args` has `--sleep-idle-seconds`.",
    severities=(NOTE,),
)
def child_sleeps(seen: Evidence) -> Iterator[Finding]:
    if seen.make is not Make.ROUTER:
        return
    sleepers: dict[int, list[str]] = {}
    for model in seen.models:
        if seconds := _sleeps_after(model):
            sleepers.setdefault(seconds, []).append(model.id)
    for seconds, names in sleepers.items():
        are = "is" if len(names) == 1 else "are"
        started = f"{', '.join(names)} {are} started with --sleep-idle-seconds {seconds}"
        yield _kept_awake(f"GET {MODELS}: {started}", seconds)


def _sleeps_after(model: ListedModel) -> int:
    """After how many seconds a router's model is to sleep; 0: never, or it is judged itself."""
    try:
        seconds = flags_of(model.arguments, "").sleep_idle_seconds or 0
    except ConfigError:
        return 0
    return 0 if model.is_loaded else max(0, seconds)


def _kept_awake(known_by: str, seconds: int) -> Finding:
    return note(
        f"It is meant to sleep after {seconds} s without work, and looking at its slots counts as "
        "work.",
        known_by,
        f"Whoever asks for {SLOTS} more often than that, a monitor or a gateway, keeps it awake "
        "for ever (#23096); whoever asks less often wakes it each time.",
        f"Have monitors ask {HEALTH}, {PROPS} or {METRICS} instead.",
        "Start it without --sleep-idle-seconds.",
    )
