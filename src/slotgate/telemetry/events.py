"""Every event that Slotgate logs, declared once: its name, its level and what it means."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

Level = Literal["debug", "info", "warning", "error"]


class Event(StrEnum):
    """The name of an event; `level` and `sentence` say the rest.

    Log one with `logs.log(logger, Event.X, field=value)`: the level comes from here.
    """

    level: Level
    sentence: str

    def __new__(cls, name: str, level: Level, sentence: str) -> Self:
        event = str.__new__(cls, name)
        event._value_ = name
        event.level = level
        event.sentence = sentence
        return event

    # The gateway.
    READY = "ready", "info", "Clients can connect."
    CONFIG_WARNING = (
        "config_warning",
        "warning",
        "A setting is allowed but unwise; the message says which.",
    )
    CONFIG_RELOADED = (
        "config_reloaded",
        "info",
        "The configuration was read anew and holds from now on; shows what is different, and what "
        "needs a restart.",
    )
    RELOAD_FAILED = (
        "reload_failed",
        "error",
        "The configuration was to be read anew and has faults, which are shown; nothing changed.",
    )
    OPERATOR_ACTED = (
        "operator_acted",
        "info",
        "The operator has paused, drained, disabled, resumed or enabled a backend, or killed a "
        "ticket; shows what came of it.",
    )
    DRAINING = (
        "draining",
        "info",
        "A signal to stop came: newcomers are refused, running requests may end.",
    )
    STOPPED = "stopped", "info", "The gateway has stopped; everything is closed."

    # Backends.
    BACKEND_UP = "backend_up", "info", "A backend can be given work: how many slots, what context."
    BACKEND_LOADING = "backend_loading", "info", "A backend loads its model; requests for it wait."
    BACKEND_CHANGED = (
        "backend_changed",
        "info",
        "A backend has another number of slots or another context than before; or a router has "
        "loaded one of its models, or unloaded it.",
    )
    BACKEND_DEGRADED = (
        "backend_degraded",
        "warning",
        "A backend whose requests failed is on trial: it gets one request at a time until one is "
        "served.",
    )
    BACKEND_KEPT = (
        "backend_kept",
        "warning",
        "A backend whose requests fail is used all the same, as nothing better serves its model.",
    )
    BACKEND_DOWN = "backend_down", "warning", "A backend cannot be given work; the reason is shown."
    BACKEND_OUTSIDE = (
        "backend_outside",
        "warning",
        "A backend works for somebody else too; its slots are left to them.",
    )

    BACKEND_SHARES = (
        "backend_shares",
        "warning",
        "The slots of a backend share their context, or may: requests that would overflow it wait, "
        "and answers end where it does; shows why it is thought so, and what to do.",
    )
    BACKEND_OVERFLOWED = (
        "backend_overflowed",
        "warning",
        "A backend ended all that ran there, because the context that its slots share was full.",
    )

    BACKEND_ADDED = "backend_added", "info", "A backend that a reload has added is being started."
    BACKEND_REPLACED = (
        "backend_replaced",
        "info",
        "A backend has other settings since a reload; `drains` says that it ends what runs before.",
    )
    BACKEND_REMOVED = (
        "backend_removed",
        "info",
        "A reload has removed a backend; what runs there ends by itself.",
    )
    BACKEND_GONE = "backend_gone", "info", "The last request of a removed backend has ended."

    # Engines that we start.
    ENGINE_FAILED = (
        "engine_failed",
        "error",
        "An engine that a reload has added or changed cannot be started, and is tried again; "
        "shows why.",
    )
    ENGINE_EXITED = "engine_exited", "warning", "An engine has ended by itself; shows how."
    ENGINE_RESTARTING = "engine_restarting", "info", "An engine is started again after a pause."

    # The watchdog.
    WATCHDOG_FOUND = (
        "watchdog_found",
        "warning",
        "Something is wrong with a backend or a stream there; shows what, for how long, the "
        "evidence, and what is due.",
    )
    WATCHDOG_OVER = "watchdog_over", "info", "What the watchdog had found is no longer so."
    BACKEND_QUARANTINED = (
        "backend_quarantined",
        "warning",
        "A stuck backend gets no work until it has been seen well again; shows whether it is "
        "restarted.",
    )
    QUARANTINE_LIFTED = "quarantine_lifted", "info", "A backend gets work again."
    STREAM_ENDED = (
        "stream_ended",
        "warning",
        "A stuck request was ended; before its first byte it goes back to the queue, once.",
    )
    HOOK_RAN = "hook_ran", "info", "The command of `watchdog.hook` was run for a finding."
    HOOK_FAILED = (
        "hook_failed",
        "warning",
        "The command of `watchdog.hook` could not be run, failed, or was killed; shows why.",
    )

    # Requests.
    REQUEST_GRANTED = (
        "request_granted",
        "debug",
        "A request got its slot; shows how long it waited.",
    )
    REQUEST_SERVED = "request_served", "info", "A request was answered to its end (`log.access`)."
    REQUEST_REFUSED = (
        "request_refused",
        "info",
        "A request was refused; shows the reason and limit.",
    )
    REQUEST_ABANDONED = "request_abandoned", "info", "A client left before its answer was complete."
    REQUEST_RETRIED = (
        "request_retried",
        "warning",
        "A backend failed before the first byte; the request is sent again.",
    )
    REQUEST_RESUMED = (
        "request_resumed",
        "warning",
        "A backend failed amid an answer; another is asked for the rest, as the client wished.",
    )
    REQUEST_STOPPED = (
        "request_stopped",
        "warning",
        "A running request was stopped so that a shared context did not overflow; before its "
        "first byte it goes back to the queue, once.",
    )
    REQUEST_KILLED = (
        "request_killed",
        "info",
        "A request was ended by the operator, with the gateway, or to save others; shows why.",
    )
    REQUEST_FAILED = "request_failed", "warning", "A backend failed a request that had its slot."
    REQUEST_CRASHED = (
        "request_crashed",
        "error",
        "The gateway itself failed a request: a bug of ours.",
    )

    # Others.
    LIBRARY_MESSAGE = "library_message", "warning", "A library that we use has something to say."
