"""What llama-server does to its clients, asserted of the real one and of the stub alike."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.cases import CASES, Case, skeleton
from tests.contracts.errors import ERRORS
from tests.contracts.record import SKELETONS
from tests.contracts.servers import Launch
from tests.contracts.wire import parse_frames
from tests.polling import wait_for

if TYPE_CHECKING:
    from tests.contracts.servers import Servers
    from tests.contracts.wire import Connection, Server

EXPECTED: dict[str, Any] = json.loads(SKELETONS.read_text())
ONE_SLOT = Launch(slots=1)
UNIFIED = Launch(unified=True, ctx=256)
BIG_BATCH = Launch(batch=512)
NO_SLOT = {"error": {"code": 503, "message": "no slot available", "type": "unavailable_error"}}
KV_ERROR = {
    "code": 500,
    "message": "Context size has been exceeded.",
    "type": "server_error",
}


def generate(tokens: int, *, prompt: str = "Count:", **more: Any) -> dict[str, Any]:
    """Ask for exactly so many tokens, streamed."""
    return {
        "prompt": prompt,
        "n_predict": tokens,
        "stream": True,
        "ignore_eos": True,
        "temperature": 0,
        **more,
    }


def words(count: int) -> str:
    """A text of so many tokens in either server: four bytes each, and a word of its own."""
    return " one" * count


def stream(server: Server, tokens: int, **more: Any) -> Connection:
    return server.open("/completion", generate(tokens, **more))


def data_of(chunk: bytes) -> Any:
    return next(parse_frames(chunk))[1]


# Shapes.


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_answer_has_the_recorded_shape(launched: Servers, case: Case) -> None:
    got, expected = skeleton(case.send(launched())), EXPECTED[case.name]
    assert json.dumps(got, indent=1).splitlines() == json.dumps(expected, indent=1).splitlines()


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"), ERRORS, ids=lambda value: str(value)[:40]
)
def test_an_error_is_word_for_word_the_same(
    launched: Servers, method: str, path: str, body: Any, expected: dict[str, Any]
) -> None:
    answer = launched().request(method, path, body)
    assert answer.status == expected["error"]["code"]
    assert json.dumps(answer.json) == json.dumps(expected)
    assert answer.head.get("Connection") == "close"
    assert answer.was_closed


@pytest.mark.parametrize("body", [b"", b'{"a" 1}', b"\xff"])
def test_malformed_json_is_a_400_that_says_where(launched: Servers, body: bytes) -> None:
    answer = launched().post("/completion", body)
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert (
        "[json.exception.parse_error.101] parse error at line 1" in answer.json["error"]["message"]
    )


def test_metrics_have_the_known_names(launched: Servers) -> None:
    answer = launched().get("/metrics")
    assert answer.head.get("Content-Type") == "text/plain; version=0.0.4"
    lines = answer.body.decode().splitlines()
    names = [line.split(" ")[0] for line in lines if not line.startswith("#")]
    assert names == [
        f"llamacpp:{name}"
        for name in (
            "prompt_tokens_total",
            "prompt_tokens_cached_total",
            "prompt_seconds_total",
            "tokens_predicted_total",
            "tokens_predicted_seconds_total",
            "n_decode_total",
            "n_tokens_max",
            "spec_decode_num_draft_tokens_total",
            "spec_decode_num_accepted_tokens_total",
            "spec_decode_num_drafts_total",
            "prompt_tokens_seconds",
            "predicted_tokens_seconds",
            "requests_processing",
            "requests_deferred",
            "n_busy_slots_per_decode",
        )
    ]
    assert [line for line in lines if line.startswith("# TYPE")][-1].endswith(" gauge")


def test_an_embedding_server_embeds_each_input(launched: Servers) -> None:
    server = launched(Launch(embeddings=True))
    answer = server.post("/v1/embeddings", {"input": ["one two", "three"]}).json
    assert list(answer) == ["model", "object", "usage", "data"]
    assert list(answer["usage"]) == ["prompt_tokens", "total_tokens"]
    assert [list(item) for item in answer["data"]] == [["embedding", "index", "object"]] * 2
    native = server.post("/embedding", {"content": "one two"}).json
    assert [list(item) for item in native] == [["index", "embedding"]]
    assert isinstance(native[0]["embedding"][0], list)


# Connections.


def test_a_connection_serves_several_requests_and_closes_after_the_hundredth(
    launched: Servers,
) -> None:
    with launched().connect() as connection:
        for number in range(1, 101):
            connection.send("GET", "/health")
            head = connection.head()
            connection.read(int(head.get("Content-Length") or 0))
            closes = head.get("Connection") == "close"
            assert closes == (number == 100)
            assert (head.get("Keep-Alive") == "timeout=5, max=100") == (not closes)
        assert connection.ends(within=1.0)


def test_an_idle_connection_closes_after_five_seconds(launched: Servers) -> None:
    with launched().connect() as connection:
        connection.send("GET", "/health")
        connection.answer()
        assert not connection.ends(within=4.0)
        assert connection.ends(within=3.0)


def test_pipelined_requests_are_answered_in_order(launched: Servers) -> None:
    with launched().connect() as connection:
        connection.send("GET", "/health")
        connection.send("POST", "/tokenize", {"content": ""})
        assert connection.answer().json == {"status": "ok"}
        assert connection.answer().json == {"tokens": []}


def test_a_head_request_has_the_length_and_no_body(launched: Servers) -> None:
    answer = launched().request("HEAD", "/health")
    assert (answer.status, answer.head.get("Content-Length"), answer.body) == (200, "15", b"")
    assert answer.head.get("Accept-Ranges") == "bytes"


def test_a_preflight_is_allowed_on_any_path(launched: Servers) -> None:
    answer = launched().request("OPTIONS", "/completion", None, [("Origin", "http://here")])
    assert answer.status == 200
    assert answer.head.get("Access-Control-Allow-Origin") == "http://here"
    assert answer.head.get("Access-Control-Allow-Headers") == "*"


def test_a_continue_is_sent_on_request(launched: Servers) -> None:
    with launched().connect() as connection:
        connection.send_raw(
            b"POST /tokenize HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n"
            b"Content-Length: 2\r\n\r\n"
        )
        assert connection.head().status == 100
        connection.send_raw(b"{}")
        assert connection.answer().json == {"tokens": []}


def test_a_chunked_request_body_is_read(launched: Servers) -> None:
    with launched().connect() as connection:
        connection.send_raw(
            b"POST /tokenize HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
        )
        assert connection.answer().json == {"tokens": []}


@pytest.mark.parametrize(
    "request_head",
    [
        b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=["two lengths", "no request"],
)
def test_an_ambiguous_or_malformed_head_is_an_empty_400(
    launched: Servers, request_head: bytes
) -> None:
    with launched().connect() as connection:
        connection.send_raw(request_head)
        answer = connection.answer()
        assert (answer.status, answer.body, answer.was_closed) == (400, b"", True)


# Slots.


def test_a_slot_tells_more_of_itself_once_it_was_used(launched: Servers) -> None:
    server = launched(Launch(slots=3, is_fresh=True))
    new = ["id", "n_ctx", "speculative", "is_processing"]
    used = [*new, "id_task", "n_prompt_tokens", "n_prompt_tokens_processed"]
    used += ["n_prompt_tokens_cache", "params", "next_token"]
    assert [list(slot) for slot in server.slots()] == [new] * 3
    with stream(server, 60) as connection:
        connection.head()
        for _ in range(3):
            connection.chunk()
        idle, other, busy = server.slots()  # of unused slots the last one is taken
        assert [list(idle), list(other), list(busy)] == [new, new, used]
        assert busy["is_processing"]
        assert busy["n_ctx"] == 512
        token = busy["next_token"][0]
        assert list(token) == ["has_next_token", "has_new_line", "n_remain", "n_decoded"]
        assert token["has_next_token"] is True
        assert token["n_decoded"] >= 3
        assert token["n_remain"] == 60 - token["n_decoded"]
        assert (busy["params"]["n_predict"], busy["params"]["stream"]) == (60, True)
        while connection.chunk():
            pass
    server.wait_idle()
    idle = server.slots()[2]
    assert list(idle) == used
    token = {"has_next_token": False, "has_new_line": False, "n_remain": -1, "n_decoded": 0}
    assert idle["next_token"] == [token]
    assert idle["n_prompt_tokens"] > 60


def test_a_request_beyond_the_slots_is_deferred_in_silence(launched: Servers) -> None:
    server = launched()
    with stream(server, 60) as first, stream(server, 90) as second:
        first.head()
        second.head()
        with stream(server, 3) as third:
            wait_for(lambda: server.metrics()["requests_deferred"] == 1)
            assert server.metrics()["requests_processing"] == 2
            assert server.get("/health").json == {"status": "ok"}
            assert third.is_silent()
            while first.chunk():
                pass
            # Its head comes when its slot starts; the other one still runs.
            assert third.head().status == 200
            assert server.metrics()["requests_deferred"] == 0
            assert second.chunk()
    server.wait_idle()


def test_deferred_requests_start_in_the_order_of_their_arrival(launched: Servers) -> None:
    server = launched(ONE_SLOT)
    with ExitStack() as stack:
        running = stack.enter_context(stream(server, 40))
        running.head()
        waiting: list[Connection] = []
        for number in range(1, 4):
            waiting.append(stack.enter_context(stream(server, 3)))
            wait_for(lambda count=number: server.metrics()["requests_deferred"] == count)  # type: ignore[misc]
        for one, next_one in pairwise(waiting):
            one.head()
            assert next_one.is_silent()
            while one.chunk():
                pass
        waiting[-1].head()
    server.wait_idle()


def test_an_answer_at_once_comes_with_its_head_only_at_the_end(launched: Servers) -> None:
    server = launched(ONE_SLOT)
    with server.open("/completion", generate(40) | {"stream": False}) as connection:
        server.wait_busy(1)
        assert connection.is_silent()
        answer = connection.answer()
    assert answer.json["tokens_predicted"] == 40


def test_fail_on_no_slot_refuses_only_when_all_are_busy(launched: Servers) -> None:
    server = launched()
    with ExitStack() as stack:
        stack.enter_context(stream(server, 100)).head()
        assert server.get("/slots?fail_on_no_slot=1").status == 200
        stack.enter_context(stream(server, 100)).head()
        for value in ("1", "0", "false"):
            answer = server.get(f"/slots?fail_on_no_slot={value}")
            assert (answer.status, answer.json) == (503, NO_SLOT)
            assert answer.was_closed
        for path in ("/slots", "/slots?fail_on_no_slot", "/slots?fail_on_no_slot="):
            assert server.get(path).status == 200
    server.wait_idle()


def test_what_arrives_during_a_batch_is_not_seen(launched: Servers) -> None:
    server = launched(BIG_BATCH)
    with stream(server, 1, prompt=words(200), cache_prompt=False) as reading:
        reading.head()
        with stream(server, 1) as other:
            # The server has it: a request sent later has been answered meanwhile.
            server.post("/tokenize", {"content": "x"})
            assert [slot["is_processing"] for slot in server.slots()].count(True) == 1
            assert server.metrics()["requests_deferred"] == 0
            assert server.get("/slots?fail_on_no_slot=1").status == 200
            assert other.is_silent()
            assert reading.is_silent()
    server.wait_idle()


# Leaving.


@pytest.mark.parametrize("how", ["close", "half_close"])
def test_a_client_that_leaves_a_running_stream_frees_its_slot_at_once(
    launched: Servers, how: str
) -> None:
    server = launched()
    with stream(server, 400) as connection:
        connection.head()
        connection.chunk()
        getattr(connection, how)()
        assert server.wait_busy(0) < 1.0


def test_a_client_that_leaves_its_unstreamed_answer_frees_its_slot_after_a_second(
    launched: Servers,
) -> None:
    server = launched(ONE_SLOT)
    leaver = server.open("/completion", generate(400) | {"stream": False})
    server.wait_busy(1)
    leaver.close()
    # The next one's head tells when; polling would keep the server from noticing.
    with stream(server, 1) as follower:
        assert 0.3 < wait_for(lambda: not follower.is_silent()) < 2.5
    server.wait_idle()


def test_polling_keeps_a_server_from_noticing_that_a_client_left(launched: Servers) -> None:
    server = launched(ONE_SLOT)
    before = server.metrics()["tokens_predicted_total"]
    leaver = server.open("/completion", generate(100) | {"stream": False})
    server.wait_busy(1)
    leaver.close()
    server.wait_idle()  # by polling /slots
    assert server.metrics()["tokens_predicted_total"] - before == 100


def test_a_deferred_request_whose_client_left_is_carried_out_all_the_same(
    launched: Servers,
) -> None:
    server = launched(ONE_SLOT)
    with stream(server, 40) as running:
        running.head()
        before = server.metrics()["tokens_predicted_total"]
        leaver = server.open("/completion", generate(30) | {"stream": False})
        wait_for(lambda: server.metrics()["requests_deferred"] == 1)
        leaver.close()
        while running.chunk():
            pass
    server.wait_idle()
    assert server.metrics()["tokens_predicted_total"] - before == 40 + 30


def test_a_deferred_stream_whose_client_left_is_dropped_when_it_gets_its_slot(
    launched: Servers,
) -> None:
    server = launched(ONE_SLOT)
    with stream(server, 60) as running:
        running.head()
        before = server.metrics()["tokens_predicted_total"]
        leaver = stream(server, 300)
        wait_for(lambda: server.metrics()["requests_deferred"] == 1)
        leaver.close()
        while running.chunk():
            pass
    server.wait_idle()
    assert server.metrics()["tokens_predicted_total"] - before < 60 + 20


def test_progress_makes_leaving_in_the_middle_of_a_prompt_fast(launched: Servers) -> None:
    server = launched()
    before = server.metrics()["prompt_tokens_total"]
    with stream(
        server, 5, prompt=words(400), return_progress=True, cache_prompt=False
    ) as connection:
        connection.head()
        assert data_of(connection.chunk())["prompt_progress"]["processed"] == 0
    server.wait_idle()  # by polling, which without progress would let it read to the end
    assert server.metrics()["prompt_tokens_total"] - before <= 3 * 64


# Context.


def test_a_prompt_that_does_not_fit_is_refused_only_in_its_slot(launched: Servers) -> None:
    server = launched(ONE_SLOT)
    body = generate(5, prompt=words(600))
    tokens = len(server.post("/tokenize", {"content": body["prompt"]}).json["tokens"])
    expected = {
        "error": {
            "code": 400,
            "message": f"request ({tokens} tokens) exceeds the available context size "
            "(512 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": tokens,
            "n_ctx": 512,
        }
    }
    with stream(server, 60) as running:
        running.head()
        with server.open("/completion", body) as refused:
            wait_for(lambda: server.metrics()["requests_deferred"] == 1)
            assert refused.is_silent()
            while running.chunk():
                pass
            answer = refused.answer()
    assert (answer.status, answer.json) == (400, expected)
    assert answer.head.get("Content-Type") == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    "prompt",
    ["one two three", [5, 6, 7], [5, " two three", 7], ["one two", 7], "<s>one</s>", "größer 😀"],
    ids=["text", "tokens", "mixed", "mixed, text first", "special", "letters"],
)
def test_a_completion_reads_what_the_tokenizer_makes_of_its_prompt(
    launched: Servers, prompt: str | list[int | str]
) -> None:
    """So the gateway knows the length of a text without a slot."""
    server = launched(ONE_SLOT)
    counting = {"content": prompt, "add_special": True}
    tokens = len(server.post("/tokenize", counting).json["tokens"])
    answer = server.post("/completion", {"prompt": prompt, "n_predict": 1, "cache_prompt": False})
    assert answer.json["tokens_evaluated"] == tokens


def test_an_answer_ends_where_its_slot_is_full(launched: Servers) -> None:
    server = launched(UNIFIED)
    prompt = words(240)
    tokens = len(server.post("/tokenize", {"content": prompt}).json["tokens"])
    last = server.post("/completion", generate(400, prompt=prompt)).frames[-1][1]
    assert (last["truncated"], last["stop_type"]) == (True, "limit")
    assert last["tokens_predicted"] == 256 - tokens
    assert last["tokens_cached"] == 255


def test_an_overflow_of_the_shared_pool_kills_everyone_in_it(launched: Servers) -> None:
    server = launched(UNIFIED)
    with ExitStack() as stack:
        one = stack.enter_context(stream(server, 200, prompt=words(120)))
        one.head()
        messages = [{"role": "user", "content": words(130)}]
        body = {"messages": messages, "max_tokens": 500, "stream": True, "ignore_eos": True}
        other = stack.enter_context(server.open("/v1/chat/completions", body))
        other.head()
        frames = [_rest(one), _rest(other)]
    for frame in frames:
        assert frame[-1] == (None, {"error": KV_ERROR})
    assert all(slot["is_processing"] is False for slot in server.slots())
    assert [slot["n_prompt_tokens"] for slot in server.slots()] == [0, 0]


def test_a_pool_overflow_is_a_500_before_the_head_and_a_named_event_for_messages(
    launched: Servers,
) -> None:
    server = launched(UNIFIED)
    plain = generate(200, prompt=words(120)) | {"stream": False}
    messages = [{"role": "user", "content": words(130)}]
    body = {"messages": messages, "max_tokens": 100, "stream": True}
    with server.open("/completion", plain) as one:
        server.wait_busy(1)
        with server.open("/v1/messages", body) as other:
            other.head()
            answer = one.answer()
            frames = _rest(other)
    assert (answer.status, answer.json) == (500, {"error": KV_ERROR})
    assert frames[-1] == ("error", KV_ERROR)


def test_every_slot_of_a_shared_pool_advertises_all_of_it(launched: Servers) -> None:
    server = launched(UNIFIED)
    assert [slot["n_ctx"] for slot in server.slots()] == [256, 256]
    assert server.get("/props").json["default_generation_settings"]["n_ctx"] == 256
    assert server.get("/props").json["total_slots"] == 2


def _rest(connection: Connection) -> list[tuple[str | None, Any]]:
    chunks = []
    while data := connection.chunk():
        chunks.append(data)
    return list(parse_frames(b"".join(chunks)))


# Several at once.


def test_two_answers_take_two_slots_at_the_same_time(launched: Servers) -> None:
    server = launched()
    with stream(server, 60) as running:
        running.head()
        with stream(server, 30, n=2) as pair:
            wait_for(lambda: server.metrics()["requests_deferred"] == 1)
            assert server.busy() == 1  # though a slot is idle
            while running.chunk():
                pass
            pair.head()
            assert server.busy() == 2
    server.wait_idle()


def test_several_answers_to_an_empty_prompt_never_come(launched: Servers) -> None:
    server = launched()
    with server.open("/completion", {"prompt": "", "n": 2}) as connection:
        wait_for(lambda: server.busy() == 1)  # the second waits for the first one's prompt
        assert not connection.ends(within=0.5)
        assert connection.is_silent()
    # Looking more often would keep the server from noticing that the client left.
    wait_for(lambda: server.busy() == 0, every=1.3)


def test_each_prompt_of_a_list_takes_its_own_slot(launched: Servers) -> None:
    server = launched()
    prompts = ["one two", "red green", "cat dog"]
    with server.open("/completion", generate(30, prompt="") | {"prompt": prompts}) as connection:
        connection.head()
        wait_for(lambda: server.metrics()["requests_deferred"] == 1)
        assert server.busy() == 2
        frames = [data for _, data in _rest(connection) if data is not None]
    assert [frame["index"] for frame in frames if frame["stop"]].count(2) == 1
    assert sum(frame["stop"] for frame in frames) == 3


def test_a_request_for_a_busy_slot_waits_though_another_is_idle(launched: Servers) -> None:
    server = launched()
    with stream(server, 60, id_slot=1) as running:
        running.head()
        with stream(server, 1, id_slot=1) as pinned:
            wait_for(lambda: server.metrics()["requests_deferred"] == 1)
            assert pinned.is_silent()
            assert [slot["is_processing"] for slot in server.slots()] == [False, True]
            while running.chunk():
                pass
            pinned.head()
    server.wait_idle()


# Streams.


def test_the_first_prompt_costs_all_of_it_and_the_second_one_token(launched: Servers) -> None:
    server = launched(Launch(slots=1, is_fresh=True))
    body = {"prompt": words(40), "max_tokens": 2}
    first, second = (server.post("/v1/completions", body).json for _ in range(2))
    tokens = first["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == tokens - 1
    assert (second["timings"]["cache_n"], second["timings"]["prompt_n"]) == (tokens - 1, 1)


def test_progress_is_told_at_the_start_and_after_each_batch(launched: Servers) -> None:
    server = launched()
    answer = server.post(
        "/completion",
        generate(1, prompt=words(150), return_progress=True, cache_prompt=False),
    )
    progress = [data["prompt_progress"] for _, data in answer.frames if "prompt_progress" in data]
    total = progress[0]["total"]
    assert [one["processed"] for one in progress] == [0, 64, 128, total]
    assert all(one["cache"] == 0 for one in progress)


def test_a_silent_stream_is_pinged_after_more_than_its_interval(launched: Servers) -> None:
    server = launched(BIG_BATCH)
    body = generate(1, prompt=words(500), cache_prompt=False, sse_ping_interval=1)
    answer = server.post("/completion", body)
    seconds = answer.frames[-1][1]["timings"]["prompt_ms"] / 1000
    # It looks once a second; a look exactly one second after the last is too early by nothing.
    assert int((seconds - 0.2) / 2) <= answer.chunks.count(b":\n\n") <= seconds


# Keys, prefixes, and endpoints that are off.


def test_a_key_is_taken_from_either_header(launched: Servers) -> None:
    server = launched(Launch(api_keys=("sesame", "tahini")))
    refusal = {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}
    for headers in (
        [("Authorization", "Bearer sesame")],
        [("Authorization", "tahini")],
        [("X-Api-Key", "sesame")],
    ):
        assert server.get("/slots", headers).status == 200
    for headers in (
        [],
        [("Authorization", "Bearer wrong")],
        [("Authorization", "bearer sesame")],
        [("Authorization", "wrong"), ("X-Api-Key", "sesame")],
        [("Api-Key", "sesame")],
    ):
        answer = server.get("/slots", headers)
        assert (answer.status, answer.json, answer.was_closed) == (401, refusal, True)
    assert server.get("/health").status == 200
    assert server.get("/v1/health").status == 200
    assert server.get("/v1/models").status == 401
    assert server.get("/nope").status == 401
    assert server.request("OPTIONS", "/slots").status == 200


def test_a_wrong_key_is_refused_before_the_body_is_read(launched: Servers) -> None:
    server = launched(Launch(api_keys=("sesame", "tahini")))
    with server.connect() as connection:
        connection.send_raw(b"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n")
        assert connection.head().status == 401


def test_a_prefix_moves_every_path_and_makes_health_private(launched: Servers) -> None:
    server = launched(Launch(api_keys=("sesame",), api_prefix="/llm"))
    key = [("Authorization", "Bearer sesame")]
    assert server.get("/llm/health", key).status == 200
    assert server.get("/llm/health").status == 401
    assert server.get("/health").status == 404
    assert server.get("/llm/slots", key).status == 200
    assert server.get("/slots", key).status == 404


@pytest.mark.parametrize("name", ["slots", "metrics"])
def test_an_endpoint_that_is_off_is_a_501(launched: Servers, name: str) -> None:
    server = launched(Launch(has_slots=False, has_metrics=False))
    answer = server.get(f"/{name}")
    message = f"This server does not support {name} endpoint. Start it with `--{name}`"
    assert answer.json == {
        "error": {"code": 501, "message": message, "type": "not_supported_error"}
    }
    assert (answer.status, answer.was_closed) == (501, True)
    props = server.get("/props").json
    assert (props["endpoint_slots"], props["endpoint_metrics"]) == (False, False)


def test_an_idle_server_sleeps_until_somebody_needs_its_model(launched: Servers) -> None:
    server = launched(Launch(sleep_idle_seconds=1, is_fresh=True))

    def is_asleep() -> bool:
        return bool(server.get("/props").json["is_sleeping"])

    wait_for(is_asleep)
    for path in ("/health", "/models", "/metrics", "/props"):
        assert server.get(path).status == 200
    assert is_asleep()
    assert server.get("/slots").status == 200
    assert not is_asleep()
    wait_for(is_asleep)
    assert server.post("/completion", generate(2)).status == 200
    assert not is_asleep()


def test_everything_is_a_503_while_the_model_loads(launched: Servers) -> None:
    loading = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    with launched.started(Launch(), waits=False) as server:
        wait_for(server.accepts, every=0.002)
        answer = server.post("/completion", {"prompt": "x"})
        assert (answer.status, answer.json, answer.was_closed) == (503, loading, True)
        wait_for(lambda: server.get("/health").status == 200)
