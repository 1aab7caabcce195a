"""The official SDKs as judges of refusals: the class they raise, and when they come back.

A refusal has the same status for a stream and for a whole answer, since both are asked for here.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import anthropic
import openai
import pytest

from tests.e2e.asking import wait_until
from tests.e2e.conftest import KEY
from tests.e2e.processes import gateway, stub

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

    from tests.e2e.conftest import Pair
    from tests.e2e.processes import Running

pytestmark = pytest.mark.process

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
SERVED = 'outcome="served",route="/v1/chat/completions"'
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def openai_at(running: Running, **options: Any) -> openai.OpenAI:
    options = {"max_retries": 0, "api_key": "none", **options}
    return openai.OpenAI(base_url=f"{running.url}/v1", **options)


def anthropic_at(running: Running, **options: Any) -> anthropic.Anthropic:
    options = {"max_retries": 0, "api_key": "none", **options}
    return anthropic.Anthropic(base_url=running.url, **options)


def chat(client: openai.OpenAI, *, model: str = "any", **fields: Any) -> Any:
    fields = {"max_tokens": 4, **fields}
    return client.chat.completions.create(model=model, messages=HELLO, **fields)


def message(client: anthropic.Anthropic, *, model: str = "any", **fields: Any) -> Any:
    return client.messages.create(model=model, messages=HELLO, max_tokens=4, **fields)


class Taken:
    """Holds the one slot there is, and the one place to wait, within the block."""

    def __init__(self, front: Running, *, waiting: bool) -> None:
        self._front = front
        self._waiting = waiting
        self._client = openai_at(front)
        self._pool = ThreadPoolExecutor()

    def __enter__(self) -> Self:
        self._stream = chat(self._client, max_tokens=100_000, stream=True)
        next(iter(self._stream))
        if self._waiting:
            self._waiter = self._pool.submit(chat, self._client, max_tokens=1)
            wait_until(lambda: self._front.queue()["waiting"] == 1)
        return self

    def let_go(self) -> None:
        self._stream.close()

    def __exit__(self, *_exc: object) -> None:
        self.let_go()
        self._pool.shutdown()
        if self._waiting:
            assert self._waiter.result().choices
        wait_until(lambda: self._front.queue()["slots_idle"] == 1)
        self._client.close()


# Busy.


@STREAM
def test_a_full_queue_is_a_rate_limit_error_that_names_the_setting(
    narrow: Pair, *, stream: bool
) -> None:
    with Taken(narrow.gateway, waiting=True), openai_at(narrow.gateway) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            chat(client, stream=stream)

    error = caught.value
    assert (error.status_code, error.code, error.type) == (429, "queue_full", "rate_limit_error")
    assert error.param is None
    assert "queue.max_waiting is 1" in error.message
    assert 1 <= int(error.response.headers["retry-after"]) <= 50
    assert int(error.response.headers["retry-after-ms"]) > 0
    assert error.response.headers["x-slotgate-reason"] == "queue_full"
    assert "x-should-retry" not in error.response.headers


@STREAM
def test_waiting_to_the_deadline_is_a_rate_limit_error(narrow: Pair, *, stream: bool) -> None:
    soon = {"x-slotgate-deadline-ms": "50"}
    with Taken(narrow.gateway, waiting=False), openai_at(narrow.gateway) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            chat(client, stream=stream, extra_headers=soon)

    assert (caught.value.status_code, caught.value.code) == (429, "queue_timeout")
    assert "x-slotgate-deadline-ms is 0.05 s" in caught.value.message


def test_the_sdks_own_timeout_is_taken_for_the_deadline(narrow: Pair) -> None:
    with Taken(narrow.gateway, waiting=False), openai_at(narrow.gateway, timeout=1.5) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            chat(client)

    assert caught.value.code == "queue_timeout"
    assert "the client's own read timeout is 1.2 s" in caught.value.message


@STREAM
def test_anthropics_sdk_is_told_that_everybody_together_asks_too_much(
    narrow: Pair, *, stream: bool
) -> None:
    with Taken(narrow.gateway, waiting=True), anthropic_at(narrow.gateway) as client:
        with pytest.raises(anthropic.OverloadedError) as caught:
            message(client, stream=stream)

    assert caught.value.status_code == 529
    assert caught.value.body["type"] == "error"  # type: ignore[index]
    assert caught.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
    assert int(caught.value.response.headers["retry-after"]) >= 1


# Nothing to serve with.


@STREAM
@pytest.mark.parametrize(
    ("model", "status", "code", "anthropics"),
    [
        ("absent", 503, "no_backend", anthropic.ServiceUnavailableError),
        ("loading", 503, "loading", anthropic.ServiceUnavailableError),
        ("dies-at-once", 502, "backend_unreachable", anthropic.InternalServerError),
        ("silent", 504, "backend_timeout", anthropic.GatewayTimeoutError),
    ],
)
def test_each_fault_of_a_backend_has_its_status_in_both_sdks(
    faulty: Running,
    model: str,
    status: int,
    code: str,
    anthropics: type[anthropic.APIStatusError],
    *,
    stream: bool,
) -> None:
    soon = {"x-slotgate-deadline-ms": "100"} if model == "loading" else {}
    with openai_at(faulty) as client, pytest.raises(openai.APIStatusError) as caught:
        chat(client, model=model, stream=stream, extra_headers=soon)
    with anthropic_at(faulty) as claude, pytest.raises(anthropics) as told:
        message(claude, model=model, stream=stream, extra_headers=soon)

    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert isinstance(caught.value, openai.InternalServerError)
    assert told.value.status_code == status
    assert told.value.body["error"]["code"] == code  # type: ignore[index]
    for error in (caught.value, told.value):
        assert int(error.response.headers["retry-after"]) >= 1


def test_newcomers_are_told_of_a_shutdown_while_streams_end(narrow: Pair) -> None:
    with gateway("--backend", narrow.direct) as front, openai_at(front) as client:
        with chat(client, max_tokens=400, stream=True) as stream:
            next(iter(stream))
            front.process.terminate()
            wait_until(lambda: is_draining(client))
            rest = list(stream)

    assert rest[-1].choices[0].finish_reason == "length"


def is_draining(client: openai.OpenAI) -> bool:
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client, extra_headers={"x-slotgate-deadline-ms": "1"})
    told = (caught.value.status_code, caught.value.code)
    assert told in {(429, "queue_timeout"), (503, "draining")}
    return told == (503, "draining")


# The client's own fault.


@STREAM
def test_a_prompt_too_long_is_a_bad_request_that_is_not_repeated(
    tiny: Pair, *, stream: bool
) -> None:
    messages: list[Any] = [{"role": "user", "content": "word " * 400}]
    before = finished(tiny.gateway)
    with openai_at(tiny.gateway, max_retries=2) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="any", messages=messages, stream=stream)
    with anthropic_at(tiny.gateway, max_retries=2) as claude:
        with pytest.raises(anthropic.BadRequestError) as told:
            claude.messages.create(model="any", messages=messages, max_tokens=4, stream=stream)

    assert caught.value.code == "context_length_exceeded"
    assert caught.value.body["n_ctx"] == 64  # type: ignore[index]
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in caught.value.response.headers
    assert told.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
    assert told.value.body["error"]["n_ctx"] == 64  # type: ignore[index]
    assert finished(tiny.gateway) == before + 2


def test_a_wrong_field_is_a_bad_request_that_names_it(swift: Pair) -> None:
    with openai_at(swift.gateway) as client, pytest.raises(openai.BadRequestError) as caught:
        chat(client, extra_body={"stream": "yes"})

    assert (caught.value.code, caught.value.param) == ("invalid_request_error", "stream")


def test_a_missing_or_wrong_key_is_an_authentication_error(locked: Running) -> None:
    with openai_at(locked, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            chat(client)
    with anthropic_at(locked, api_key="wrong") as claude:
        with pytest.raises(anthropic.AuthenticationError) as told:
            message(claude)
    with openai_at(locked, api_key=KEY) as client, anthropic_at(locked, api_key=KEY) as claude:
        assert chat(client).choices
        assert message(claude).content

    assert caught.value.code == "authentication_error"
    assert told.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    assert "wrong" not in caught.value.message


def test_an_unknown_model_or_path_is_a_not_found_error(faulty: Running) -> None:
    with openai_at(faulty) as client, anthropic_at(faulty) as claude:
        with pytest.raises(openai.NotFoundError) as caught:
            chat(client, model="nonesuch")
        with pytest.raises(openai.NotFoundError) as lost:
            client.files.list()
        with pytest.raises(anthropic.NotFoundError) as told:
            message(claude, model="nonesuch")

    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert lost.value.code == "not_found"
    assert told.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]


# Streams that break.


@pytest.mark.parametrize(
    ("model", "says"), [("breaks", "Context size"), ("dies", "backend_unreachable")]
)
def test_a_stream_that_breaks_after_its_first_token_raises_in_both_sdks(
    faulty: Running, model: str, says: str
) -> None:
    with openai_at(faulty, max_retries=2) as client:
        chunks = iter(chat(client, model=model, max_tokens=50, stream=True))
        assert next(chunks).choices
        with pytest.raises(openai.APIError, match=says):
            list(chunks)
    with anthropic_at(faulty, max_retries=2) as claude:
        events = iter(message(claude, model=model, stream=True))
        assert next(events).type == "message_start"
        with pytest.raises(anthropic.APIError, match=says):
            list(events)


# Coming back.


def finished(running: Running) -> float:
    return sum(running.metrics("slotgate_requests_total").values())


def refused(running: Running) -> float:
    return running.metrics("slotgate_refused_total")['reason="queue_full"']


@contextlib.contextmanager
def learned(running: Running) -> Iterator[None]:
    """Let the gateway see first how long requests take; before, it can only guess."""
    with openai_at(running) as client, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: chat(client, max_tokens=2), range(12)))
    yield


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_the_sdks_own_retry_waits_as_told_and_then_succeeds(narrow: Pair, sdk: str) -> None:
    sent: list[float] = []
    told: list[float] = []

    def on_request(_request: httpx2.Request) -> None:
        sent.append(time.monotonic())

    def on_response(response: httpx2.Response) -> None:
        told.append(int(response.headers.get("retry-after-ms", 0)) / 1000)

    hooks: Any = {"request": [on_request], "response": [on_response]}
    with (
        gateway("--backend", narrow.direct, "--max-waiting", "1") as front,
        openai_at(
            front, max_retries=2, http_client=openai.DefaultHttpxClient(event_hooks=hooks)
        ) as client,
        anthropic_at(
            front, max_retries=2, http_client=anthropic.DefaultHttpxClient(event_hooks=hooks)
        ) as claude,
        ThreadPoolExecutor() as pool,
        learned(front),
        Taken(front, waiting=True) as taken,
    ):
        job = pool.submit(chat, client) if sdk == "openai" else pool.submit(message, claude)
        wait_until(lambda: refused(front) == 1)
        taken.let_go()
        assert job.result(timeout=30)
        assert refused(front) == len(sent) - 1

    # Perhaps twice: the slot is given away again only when it is known to be free.
    assert 2 <= len(sent) <= 3
    gaps = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert all(gap >= delay >= 1.0 for gap, delay in zip(gaps, told, strict=False))
    assert told[-1] == 0


def test_a_crowd_with_default_retries_is_served_or_refused_honestly() -> None:
    """120 calls of 40 clients at once, on two slots with room for eight."""
    with (
        stub("--slots", "2", "--decode", "400", "--prefill", "0") as backend,
        gateway("--backend", backend.url, "--max-waiting", "8") as front,
        learned(front),
        openai.OpenAI(base_url=f"{front.url}/v1", api_key="none") as client,
        ThreadPoolExecutor(40) as pool,
    ):
        before = front.metrics("slotgate_requests_total")[SERVED]
        answers = list(pool.map(lambda _: outcome(client), range(120)))
        attempts = front.metrics("slotgate_requests_total")
        deferred = backend.metrics("llamacpp:requests_deferred")

    assert set(answers) <= {"served", "queue_full", "queue_timeout"}
    assert answers.count("served") >= 114
    assert attempts[SERVED] == before + answers.count("served")
    assert deferred == {"": 0.0}


def outcome(client: openai.OpenAI) -> str:
    """Return how a call ended; what is neither an answer nor a proper refusal raises."""
    try:
        return "served" if chat(client).choices[0].message.content else "empty"
    except openai.RateLimitError as error:
        is_proper = 1 <= int(error.response.headers["retry-after"]) <= 50
        return str(error.code) if is_proper else "refused without a date"
