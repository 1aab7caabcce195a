"""Who may use the server, and what it shows to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import KEY_STATUSES, MODELS, PROPS, SLOTS, Evidence, Make, Place
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.finding import Finding

_SET_KEY = "--api-key-file FILE, with a key for each client"
_ONLY_HERE = "--host 127.0.0.1, with Slotgate or a proxy that asks for keys in front of it"


@check(
    "no-key",
    asks="Can it be used without a key, by others than its own machine?",
    by="`GET /props` (or `/v1/models`) without a key, the kind of its address, and at which "
    "others it listens, where it is on this machine.",
    severities=(ERROR, WARNING, OK),
    of_models=False,
)
def no_key(seen: Evidence) -> Iterator[Finding]:
    route = next((each for each in (PROPS, MODELS) if _answered(seen, each)), None)
    if route is None or seen.make is Make.UNKNOWN:
        return
    if not seen.answers[route].is_open:
        yield fine("It wants an API key.", f"GET {route} without one: {_without_key(seen, route)}")
        return
    known_by = f"GET {route} without a key: 200"
    spent = "Whoever reaches it can take its slots, and read what it shows of itself."
    if seen.place is Place.PUBLIC:
        yield error(
            "It needs no key at an address of the internet.", known_by, spent, _SET_KEY, _ONLY_HERE
        )
    elif seen.has_key:
        yield warning(
            "It answers without the key, too: none is checked.", known_by, spent, _SET_KEY
        )
    elif seen.place is Place.PRIVATE or _beyond(seen):
        yield warning(
            "It needs no key, and other machines of its network can reach it.",
            known_by + _listens(seen),
            spent,
            _SET_KEY,
            _ONLY_HERE,
        )
    elif seen.listener is not None:
        yield fine(
            "It needs no key, and listens to its own machine alone.", known_by + _listens(seen)
        )
    else:
        yield fine(
            "It needs no key, and was asked from its own machine; whether it listens to others "
            "cannot be seen from here.",
            known_by,
        )


def _beyond(seen: Evidence) -> bool:
    return seen.listener is not None and bool(seen.listener.beyond)


def _listens(seen: Evidence) -> str:
    return "" if seen.listener is None else f"; it listens on {', '.join(seen.listener.listens_at)}"


@check(
    "key-shown",
    asks="Does its command line show an API key?",
    by="`--api-key` in the command line of the process that listens, or in `--flags`.",
    severities=(NOTE,),
    of_models=False,
)
def key_shown(seen: Evidence) -> Iterator[Finding]:
    flags = seen.flags
    if flags is not None and flags.shows_key:
        yield note(
            "An API key stands in its command line.",
            f"{flags.source}: it has --api-key",
            "Every user of its machine can read it there, with `ps` for one.",
            "--api-key-file FILE, which only its own user may read",
            "The variable LLAMA_API_KEY.",
        )


def _answered(seen: Evidence, route: str) -> bool:
    return seen.status(route) == 200


def _without_key(seen: Evidence, route: str) -> int | None:
    return seen.answers[route].without_key


@check(
    "key-in-the-clear",
    asks="Do keys travel unencrypted?",
    by="The address, where a key was given.",
    severities=(WARNING, NOTE),
    of_models=False,
)
def clear_key(seen: Evidence) -> Iterator[Finding]:
    if seen.is_encrypted or seen.place is Place.HERE or not seen.has_key:
        return
    yield (warning if seen.place is Place.PUBLIC else note)(
        "Keys, prompts and answers travel unencrypted.",
        "the address begins with http:// and is not of this machine",
        "Whoever is on the way can read and use them.",
        "--ssl-key-file FILE --ssl-cert-file FILE",
        "A proxy with TLS in front of it.",
    )


@check(
    "slots-open",
    asks="Are the slots shown without a key where other routes want one?",
    by="`GET /slots` and `GET /props` without a key.",
    severities=(WARNING,),
)
def slots_open(seen: Evidence) -> Iterator[Finding]:
    slots, props = seen.answers.get(SLOTS), seen.answers.get(PROPS)
    if slots is None or props is None or not slots.is_open:
        return
    if props.without_key in KEY_STATUSES:
        yield warning(
            "Its slots are shown without a key, though other routes want one.",
            f"GET {SLOTS} without a key: 200; GET {PROPS}: {props.without_key}",
            "Strangers see who works when; in builds that show prompts, what is asked.",
            "Update llama.cpp, or have the proxy in front of it ask for the key here too.",
            "--no-slots",
        )


@check(
    "prompts-shown",
    asks="Does `/slots` show what users write?",
    by="`GET /slots`: `prompt` or `generated` in a slot.  The text is dropped unread.",
    severities=(ERROR, WARNING),
)
def prompts_shown(seen: Evidence) -> Iterator[Finding]:
    if not any(slot.has_user_text for look in seen.looks for slot in look.slots):
        return
    answer = seen.answers[SLOTS]
    is_bad = answer.is_open and seen.place is not Place.HERE
    yield (error if is_bad else warning)(
        "Its slots show the text of prompts.",
        f"GET {SLOTS}: a slot has `prompt` or `generated`",
        "Whoever may ask for the slots, monitors and their logs included, reads what users write "
        "(#16482, #19622).",
        "Start it without LLAMA_SERVER_SLOTS_DEBUG, or update llama.cpp: builds of 2025 and before "
        "show prompts anyway.",
        "--no-slots",
    )


@check(
    "any-origin",
    asks="May web pages of any origin read its answers?",
    by="`GET /v1/models` with an `Origin` that cannot exist: `Access-Control-Allow-Origin`.",
    severities=(NOTE,),
    of_models=False,
)
def any_origin(seen: Evidence) -> Iterator[Finding]:
    if not seen.any_origin or seen.make is Make.SLOTGATE:
        return
    is_open = any(seen.answers[route].is_open for route in (PROPS, MODELS) if route in seen.answers)
    yield note(
        "Web pages of any origin may read its answers.",
        f"GET {MODELS} with the header Origin of a page elsewhere: Access-Control-Allow-Origin "
        "allows it",
        "A page that somebody opens can use it from the browser of whoever can reach it, since it "
        "wants no key."
        if is_open
        else "A page that has got hold of a key can use it from any visitor's browser.",
        "An API key, which keeps pages out that do not have it.",
        "A gateway or proxy that sets these headers itself.",
    )


@check(
    "cors-proxy",
    asks="Does it fetch pages for its clients?",
    by="`GET /props`: `cors_proxy_enabled`.",
    severities=(WARNING,),
    of_models=False,
)
def cors_proxy(seen: Evidence) -> Iterator[Finding]:
    if seen.props is not None and seen.props.cors_proxy:
        yield warning(
            "It fetches pages for others.",
            f"GET {PROPS}: cors_proxy_enabled",
            "Whoever may use the server can reach, through /cors-proxy, what it can reach: other "
            "services of its machine and network.",
            "Start it without --ui-mcp-proxy (--webui-mcp-proxy in older builds).",
        )


@check(
    "props-changeable",
    asks="Is `POST /props` on?",
    by="`GET /props`: `endpoint_props`.  It is not tried.",
    severities=(NOTE,),
)
def props_open(seen: Evidence) -> Iterator[Finding]:
    if seen.props is not None and seen.props.endpoint_props:
        yield note(
            "Its properties are offered to be changed.",
            f"GET {PROPS}: endpoint_props",
            "Nothing in recent builds, where POST /props changes nothing; older ones let clients "
            "change how all others are served.",
            "Start it without --props.",
        )
