"""The table of all checks, in the order in which findings of one severity are told."""

from __future__ import annotations

from slotgate.doctor.check import Check
from slotgate.doctor.checks import (
    access,
    builds,
    context,
    endpoints,
    gateway,
    host,
    reach,
    speed,
    started,
    work,
)
from slotgate.doctor.finding import Severity

_ERROR, _WARNING, _NOTE, _OK = Severity

CHECKS = (
    Check(
        id="unreachable",
        asks="Does anything answer at the address?",
        by="A connection and `GET /health`.",
        severities=(_ERROR,),
        judge=reach.unreachable,
        ends=True,
    ),
    Check(
        id="tls",
        asks="Can the encrypted connection be made, and is the certificate trusted?",
        by="The handshake, with the system's authorities.",
        severities=(_ERROR,),
        judge=reach.tls,
        ends=True,
    ),
    Check(
        id="silent",
        asks="Does it answer in time?",
        by="`GET /health`, of a router's model `GET /props`, within `--timeout`.",
        severities=(_ERROR,),
        judge=reach.silent,
        ends=True,
    ),
    Check(
        id="not-http",
        asks="Does it speak HTTP?",
        by="What came back of `GET /health`.",
        severities=(_ERROR,),
        judge=reach.not_http,
        ends=True,
    ),
    Check(
        id="loading",
        asks="Is its model loaded?",
        by="`GET /health`: 503 and `Loading model`.",
        severities=(_WARNING,),
        judge=reach.loading,
        ends=True,
    ),
    Check(
        id="not-serving",
        asks="Does it, or a proxy in front of it, say that it cannot serve?",
        by="`GET /health`, of a router's model `GET /props`: another status from 500 on.",
        severities=(_ERROR,),
        judge=reach.not_serving,
        ends=True,
    ),
    Check(
        id="key-needed",
        asks="Does it want a key where none was given?",
        by="`GET /props`: 401 or 403.",
        severities=(_ERROR,),
        judge=reach.key_needed,
        ends=True,
    ),
    Check(
        id="key-wrong",
        asks="Does it accept the key?",
        by="`GET /props` with it: 401 or 403.",
        severities=(_ERROR,),
        judge=reach.wrong_key,
        ends=True,
    ),
    Check(
        id="other-make",
        asks="Is it a llama-server?",
        by="`/props` tells slots, context or build; `/v1/models` lists models.",
        severities=(_ERROR, _NOTE),
        judge=reach.other_make,
        of_models=False,
    ),
    Check(
        id="gateway",
        asks="Is it Slotgate?",
        by="`GET /health` counts a queue.",
        severities=(_NOTE,),
        judge=gateway.gateway,
    ),
    Check(
        id="backend-state",
        asks="Of Slotgate: does every server behind it serve?",
        by="`GET /ready`: the state of each backend, and why.",
        severities=(_ERROR, _WARNING, _NOTE, _OK),
        judge=gateway.backend_state,
    ),
    Check(
        id="gateway-queue",
        asks="Of Slotgate: do requests wait in its queue?",
        by="`GET /health`: `queue`.",
        severities=(_NOTE, _OK),
        judge=gateway.queue,
    ),
    Check(
        id="router",
        asks="Is it a llama-server that only passes requests on to others?",
        by="`GET /props`: `role`.",
        severities=(_NOTE,),
        judge=reach.router,
    ),
    Check(
        id="model-failed",
        asks="Did a router fail to start one of its models?",
        by="`GET /v1/models`: `status.failed`.",
        severities=(_WARNING,),
        judge=reach.model_failed,
    ),
    Check(
        id="no-key",
        asks="Can it be used without a key, by others than its own machine?",
        by="`GET /props` (or `/v1/models`) without a key, the kind of its address, and at which "
        "others it listens, where it is on this machine.",
        severities=(_ERROR, _WARNING, _OK),
        judge=access.no_key,
        of_models=False,
    ),
    Check(
        id="key-in-the-clear",
        asks="Do keys travel unencrypted?",
        by="The address, where a key was given.",
        severities=(_WARNING, _NOTE),
        judge=access.clear_key,
        of_models=False,
    ),
    Check(
        id="key-shown",
        asks="Does its command line show an API key?",
        by="`--api-key` in the command line of the process that listens, or in `--flags`.",
        severities=(_NOTE,),
        judge=access.key_shown,
        of_models=False,
    ),
    Check(
        id="flags-read",
        asks="Is it known what it was started with?",
        by="The process that listens at the address, where that is of this machine and this user "
        "may read it.",
        severities=(_NOTE, _OK),
        judge=started.flags_read,
        of_models=False,
    ),
    Check(
        id="prompts-shown",
        asks="Does `/slots` show what users write?",
        by="`GET /slots`: `prompt` or `generated` in a slot.  The text is dropped unread.",
        severities=(_ERROR, _WARNING),
        judge=access.prompts_shown,
    ),
    Check(
        id="slots-open",
        asks="Are the slots shown without a key where other routes want one?",
        by="`GET /slots` and `GET /props` without a key.",
        severities=(_WARNING,),
        judge=access.slots_open,
    ),
    Check(
        id="cors-proxy",
        asks="Does it fetch pages for its clients?",
        by="`GET /props`: `cors_proxy_enabled`.",
        severities=(_WARNING,),
        judge=access.cors_proxy,
        of_models=False,
    ),
    Check(
        id="any-origin",
        asks="May web pages of any origin read its answers?",
        by="`GET /v1/models` with an `Origin` that cannot exist: `Access-Control-Allow-Origin`.",
        severities=(_NOTE,),
        judge=access.any_origin,
        of_models=False,
    ),
    Check(
        id="props-changeable",
        asks="Is `POST /props` on?",
        by="`GET /props`: `endpoint_props`.  It is not tried.",
        severities=(_NOTE,),
        judge=access.props_open,
    ),
    Check(
        id="wedged",
        asks="Does it look healthy and do nothing?",
        by="`GET /slots` without an answer within `--timeout`, beside a good `/health`.",
        severities=(_ERROR, _WARNING),
        judge=endpoints.wedged,
    ),
    Check(
        id="slot-stuck",
        asks="Does a slot work without getting on?",
        by="`GET /slots` every 1.2 s: `id_task`, `n_decoded`, `n_prompt_tokens` and "
        "`n_prompt_tokens_processed` of slots with `is_processing`.  A slot that wrote nothing for "
        "10 s while none reads a prompt is an error; one that may still read is told apart.",
        severities=(_ERROR, _WARNING, _NOTE, _OK),
        judge=work.stuck,
    ),
    Check(
        id="deferred",
        asks="Do requests wait inside it now?",
        by="`GET /metrics`: `llamacpp:requests_deferred`; without metrics, whether all slots are "
        "busy.  Both are as old as the batch that runs.",
        severities=(_WARNING, _NOTE, _OK),
        judge=work.deferred,
    ),
    Check(
        id="context-too-small",
        asks="Does a slot hold the longest request?",
        by="`n_ctx` of the slots, against `--context`.",
        severities=(_ERROR, _OK),
        judge=context.too_small,
    ),
    Check(
        id="context-divided",
        asks="Do the slots share out a context that was meant for each?",
        by="`n_ctx` and number of the slots, against `n_ctx_train` of `/v1/models`.  Below 4,096 "
        "tokens a slot it is a warning.",
        severities=(_WARNING, _NOTE, _OK),
        judge=context.divided,
    ),
    Check(
        id="context-overcommitted",
        asks="Can the slots together want more context than there is?",
        by="Its flags, where they are known.  Else by sight: an idle slot that lost its tokens "
        "while others worked was emptied for them, which only a shared pool does.  Else by what is "
        "usual: four slots are llama-server's own choice, and then they share one pool; of any "
        "other number they most likely do not, which is a note.  The server itself does not tell.",
        severities=(_WARNING, _NOTE, _OK),
        judge=context.overcommitted,
    ),
    Check(
        id="context-above-trained",
        asks="Is there more context than the model was trained for?",
        by="`n_ctx` of the slots, and `-c` of its flags, against `n_ctx_train` and, where it can "
        "be read, what the file of the model says (`--override-kv` changes the first).  Recent "
        "builds cut a slot off at that, and the memory is wasted without a trace in any route.",
        severities=(_WARNING, _OK),
        judge=context.above_trained,
    ),
    Check(
        id="prompt-cache",
        asks="May the prompts that it keeps outgrow the memory of its host?",
        by="`--cache-ram` of its flags, or its default where the build has it; the memory of this "
        "machine where the server is here, else `--host-memory`.",
        severities=(_ERROR, _WARNING, _NOTE, _OK),
        judge=host.prompt_cache,
    ),
    Check(
        id="slots-off",
        asks="Can its slots be seen?",
        by="`GET /slots`: 404 or 501, or `endpoint_slots` of `/props`.",
        severities=(_WARNING, _OK),
        judge=endpoints.slots_off,
    ),
    Check(
        id="metrics-off",
        asks="Does it have metrics?",
        by="`GET /metrics`: 404 or 501, or `endpoint_metrics` of `/props`.",
        severities=(_NOTE, _OK),
        judge=endpoints.metrics_off,
    ),
    Check(
        id="sleeping",
        asks="Does it sleep, or try to while somebody polls it?",
        by="`GET /props`: `is_sleeping`; `--sleep-idle-seconds` of its flags.",
        severities=(_NOTE,),
        judge=endpoints.sleeping,
    ),
    Check(
        id="model-sleeps",
        asks="Does a router start models that try to sleep?",
        by="`GET /v1/models`: `status.args` has `--sleep-idle-seconds`.",
        severities=(_NOTE,),
        judge=endpoints.child_sleeps,
    ),
    Check(
        id="slots-differ",
        asks="Does it have as many slots as it was started with?",
        by="The number of slots, against `-np` of its flags.",
        severities=(_WARNING,),
        judge=context.slots_differ,
    ),
    Check(
        id="request-failed",
        asks="Is a request answered where a slot is free?",
        by="Measured, with `--measure`: an error, a broken stream, or no token in a minute.",
        severities=(_ERROR, _NOTE),
        judge=speed.failed,
    ),
    Check(
        id="stream-buffered",
        asks="Does something between here and the server keep streams back?",
        by="Measured, with `--measure`: 8 tokens or more at once, 0.3 s or more apart.",
        severities=(_WARNING,),
        judge=speed.buffered,
    ),
    Check(
        id="stream-stall",
        asks="Does a long prompt of one client hold up the streams of all others?",
        by="Measured, with `--measure`: the longest time without a token of a stream of ours while "
        "a prompt of ours is read in another slot.",
        severities=(_WARNING, _NOTE, _OK),
        judge=speed.stall,
    ),
    Check(
        id="stall-expected",
        asks="Where that was not measured: is a long prompt likely to hold up all streams?",
        by="`GET /metrics`: `prompt_tokens_total` by `prompt_seconds_total`, from 2,048 tokens on; "
        "`-b` of its flags, or its default.  A batch of that size is read in one go.  Where "
        "several prompts are read at once, that is faster than it looks.",
        severities=(_NOTE, _OK),
        judge=speed.stall_expected,
    ),
    Check(
        id="speed",
        asks="How fast does it write and read?",
        by="Measured, with `--measure`.",
        severities=(_NOTE, _OK),
        judge=speed.speed,
    ),
    Check(
        id="build-fault",
        asks="Is its build one with a known fault?",
        by="`GET /props`: `build_info`, and the table below.  A warning where a newer build mends "
        "it.",
        severities=(_WARNING, _NOTE, _OK),
        judge=builds.known_faults,
        of_models=False,
    ),
    Check(
        id="build-unknown",
        asks="Does it tell its build?",
        by="`GET /props`: `build_info`.",
        severities=(_NOTE,),
        judge=builds.build_unknown,
        of_models=False,
    ),
    Check(
        id="chat-template",
        asks="Does its model know what a chat looks like?",
        by="`GET /props`: `chat_template`.",
        severities=(_NOTE, _OK),
        judge=reach.model,
    ),
)
