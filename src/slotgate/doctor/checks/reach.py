"""Whether the server can be examined at all, and what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.check import check
from slotgate.doctor.evidence import (
    HEALTH,
    KEY_STATUSES,
    MODELS,
    PROPS,
    Evidence,
    Make,
    Trouble,
)
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning
from slotgate.wire.llama_cpp import HealthState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.finding import Finding


@check(
    "unreachable",
    asks="Does anything answer at the address?",
    by="A connection and `GET /health`.",
    severities=(ERROR,),
    ends=True,
)
def unreachable(seen: Evidence) -> Iterator[Finding]:
    answer = seen.answers.get(HEALTH)
    if answer is not None and answer.trouble is Trouble.UNREACHABLE:
        yield error(
            "Nothing answers there.",
            f"GET {HEALTH}: {answer.message}",
            "No client gets an answer.",
            *(_FAR_AWAY if answer.is_late else _NOT_THERE),
        )


_FAR_AWAY = (
    "Let it through: a firewall drops what is sent there, or the machine is off.",
    "Correct the address.",
)
_NOT_THERE = (
    "Start the server, or correct the address.",
    "If it runs on another machine: llama-server listens on loopback alone unless it is started "
    "with --host.",
    "If the port speaks TLS, write https:// instead of http://.",
)


@check(
    "tls",
    asks="Can the encrypted connection be made, and is the certificate trusted?",
    by="The handshake, with the system's authorities.",
    severities=(ERROR,),
    ends=True,
)
def tls(seen: Evidence) -> Iterator[Finding]:
    answer = seen.answers.get(HEALTH)
    if answer is not None and answer.trouble is Trouble.TLS:
        yield error(
            "The encrypted connection could not be made.",
            f"TLS with the address: {answer.message}",
            "Clients that check certificates get no answer.",
            "Give it a certificate that its clients trust: --ssl-cert-file and --ssl-key-file.",
            "For an authority of your own: SSL_CERT_FILE=FILE for this command and for clients.",
            "If the server does not encrypt, write http:// instead of https://.",
        )


@check(
    "silent",
    asks="Does it answer in time?",
    by="`GET /health`, of a router's model `GET /props`, within `--timeout`.",
    severities=(ERROR,),
    ends=True,
)
def silent(seen: Evidence) -> Iterator[Finding]:
    answer = seen.answers.get(seen.first)
    if answer is not None and answer.trouble is Trouble.SILENT:
        yield error(
            "It takes connections and does not answer.",
            f"GET {seen.first}: {answer.message}",
            "Clients hang until their own timeouts. llama-server answers this route in "
            "milliseconds, however busy it is, unless it has run out of HTTP threads or was "
            "stopped.",
            "Close what holds its connections: it has a thread for each, about a thousand in all, "
            "and one that sends nothing holds it for 5 s.",
            "Restart it if it stays so.",
            "Forks like ik_llama.cpp answer nothing while they read a prompt: let them read it.",
            *(("If it does not encrypt, write http://.",) if seen.is_encrypted else ()),
        )


@check(
    "not-http",
    asks="Does it speak HTTP?",
    by="What came back of `GET /health`.",
    severities=(ERROR,),
    ends=True,
)
def not_http(seen: Evidence) -> Iterator[Finding]:
    answer = seen.answers.get(HEALTH)
    if answer is not None and answer.trouble is Trouble.BROKEN:
        yield error(
            "What answers there does not speak HTTP.",
            f"GET {HEALTH}: {answer.message}",
            "It is no llama-server, or it wants an encrypted connection.",
            "Correct the address, or write https:// instead of http://.",
        )


@check(
    "loading",
    asks="Is its model loaded?",
    by="`GET /health`: 503 and `Loading model`.",
    severities=(WARNING,),
    ends=True,
)
def loading(seen: Evidence) -> Iterator[Finding]:
    if seen.health is not None and seen.health.state is HealthState.LOADING:
        yield warning(
            "It loads its model.",
            f'GET {HEALTH}: {seen.status(HEALTH)}, "{seen.health.message}"',
            "Every request gets 503 until the model is there.",
            "Wait, and examine it then.",
        )


@check(
    "not-serving",
    asks="Does it, or a proxy in front of it, say that it cannot serve?",
    by="`GET /health`, of a router's model `GET /props`: another status from 500 on.",
    severities=(ERROR,),
    ends=True,
)
def not_serving(seen: Evidence) -> Iterator[Finding]:
    status = seen.status(seen.first) or 0
    is_ill = seen.health is None or seen.health.state is HealthState.ERROR
    if is_ill and status >= 500:
        yield error(
            "It says that it cannot serve.",
            f"GET {seen.first}: {status}",
            "A proxy or a router in front of a server that is down answers so.",
            "Look at the server behind it, by its own address or in its log.",
        )


@check(
    "key-wrong",
    asks="Does it accept the key?",
    by="`GET /props` with it: 401 or 403.",
    severities=(ERROR,),
    ends=True,
)
def wrong_key(seen: Evidence) -> Iterator[Finding]:
    if seen.has_key and seen.status(PROPS) in KEY_STATUSES:
        yield error(
            "It does not accept the key.",
            f"GET {PROPS} with the key: {seen.status(PROPS)}",
            "Nothing but its health can be examined, and clients with this key get 401.",
            "Name the variable that holds the right key: --api-key-env NAME.",
        )


@check(
    "key-needed",
    asks="Does it want a key where none was given?",
    by="`GET /props`: 401 or 403.",
    severities=(ERROR,),
    ends=True,
)
def key_needed(seen: Evidence) -> Iterator[Finding]:
    if not seen.has_key and seen.status(PROPS) in KEY_STATUSES:
        yield error(
            "It wants an API key, and none was given.",
            f"GET {PROPS}: {seen.status(PROPS)}",
            "Nothing but its health can be examined.",
            "Name the variable that holds the key: --api-key-env NAME.",
        )


@check(
    "other-make",
    asks="Is it a llama-server?",
    by="`/props` tells slots, context or build; `/v1/models` lists models.",
    severities=(ERROR, NOTE),
    of_models=False,
)
def other_make(seen: Evidence) -> Iterator[Finding]:
    known_by = f"GET {PROPS}: {seen.status(PROPS)}; GET {MODELS}: {seen.status(MODELS)}"
    if PROPS not in seen.answers or seen.status(PROPS) in KEY_STATUSES:
        return
    if seen.make is Make.OPENAI:
        yield note(
            "It is no llama-server: it lists models as OpenAI does, and does not tell its slots.",
            known_by,
            "Only what all makes have in common was examined.",
        )
    elif seen.make is Make.UNKNOWN:
        yield error(
            "It is no llama-server: it tells neither slots nor models.",
            known_by,
            "Nothing more can be said of it.",
            "Correct the address. A llama-server with --api-prefix needs that path in the URL.",
        )


@check(
    "router",
    asks="Is it a llama-server that only passes requests on to others?",
    by="`GET /props`: `role`.",
    severities=(NOTE,),
)
def router(seen: Evidence) -> Iterator[Finding]:
    if seen.make is Make.ROUTER:
        states = ", ".join(f"{model.id} ({model.status})" for model in seen.models if model.status)
        yield note(
            "It is a router, which has no slots of its own"
            + (f"; its models: {states}." if states else "."),
            f'GET {PROPS}: role "router"; GET {MODELS}',
            "Of its models only those that are loaded and awake were examined: asking for one that "
            "is not would load or wake it (#23096).",
            "Examine it again while those are loaded that you want to know of.",
        )


@check(
    "model-failed",
    asks="Did a router fail to start one of its models?",
    by="`GET /v1/models`: `status.failed`.",
    severities=(WARNING,),
)
def model_failed(seen: Evidence) -> Iterator[Finding]:
    for model in seen.models:
        if model.has_failed:
            yield warning(
                f"The model {model.id} could not be started.",
                f"GET {MODELS}: its status has `failed`",
                "Requests for it get 500, and will again: a failed load does not heal itself.",
                "Read the router's log, and correct the preset or the file of this model.",
            )


@check(
    "chat-template",
    asks="Does its model know what a chat looks like?",
    by="`GET /props`: `chat_template`.",
    severities=(NOTE, OK),
)
def model(seen: Evidence) -> Iterator[Finding]:
    if seen.make is not Make.LLAMA_SERVER or seen.props is None:
        return
    if seen.props.chat_template == "":
        yield note(
            "Its model brings no chat template.",
            f"GET {PROPS}: chat_template is empty",
            "Chat requests are put into a form that the model may not know, and answers suffer.",
            "--chat-template-file FILE, with the template of the model's makers",
        )
    elif seen.props.chat_template:
        yield fine("Its model has a chat template.", f"GET {PROPS}: chat_template")
