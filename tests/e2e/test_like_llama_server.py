"""What llama.cpp's own server tests found to differ, and must not again.

Their tests were run against a llama-server and against a gateway in front of it; each difference
that was a fault has a test here, in our own words.  docs/reference/drop-in.md tells of the others.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from typing_extensions import override

from tests.e2e.asking import CHAT, ask, chat, wait_until
from tests.e2e.processes import gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Pair

pytestmark = pytest.mark.process

ORIGIN = {"origin": "http://page.test"}


# Web pages.


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", CHAT, chat()),
        ("POST", CHAT, chat(stream=True)),
        ("POST", CHAT, b"{"),
        ("POST", "/tokenize", {"content": "a"}),
        ("GET", "/v1/models", None),
        ("GET", "/slots", None),
        ("GET", "/no-such-path", None),
    ],
    ids=["chat", "stream", "refusal", "tokenize", "models", "slots", "404"],
)
def test_a_web_page_of_any_origin_may_read_the_answer(
    swift: Pair, method: str, path: str, body: object
) -> None:
    answer = ask(swift.url, method, path, body, ORIGIN)

    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-expose-headers"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


def test_a_web_page_may_send_a_key(swift: Pair) -> None:
    wants = {**ORIGIN, "access-control-request-headers": "authorization"}
    answer = ask(swift.url, "OPTIONS", CHAT, None, wants)

    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "POST" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize(("method", "status"), [("GET", 403), ("POST", 403), ("OPTIONS", 204)])
def test_no_web_page_may_read_what_is_the_operators(swift: Pair, method: str, status: int) -> None:
    answer = ask(swift.url, method, "/-/snapshot", None, ORIGIN)

    assert answer.status == status
    assert not [name for name in answer.headers if name.startswith("access-control-")]


# Refusals.


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (CHAT, "messages"),
        ("/v1/messages", "messages"),
        ("/v1/completions", "prompt"),
        ("/completion", "prompt"),
        ("/v1/responses", "input"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_overlong_prompt_is_told_in_words_and_numbers_that_clients_know(
    tiny: Pair, path: str, field: str, *, stream: bool
) -> None:
    text = "word " * 200
    value = [{"role": "user", "content": text}] if field == "messages" else text
    body = {field: value, "max_tokens": 4, "stream": stream}
    direct, through = ask(tiny.direct, "POST", path, body), ask(tiny.url, "POST", path, body)

    assert through.status == direct.status == 400
    expected, told = direct.json()["error"], through.json()["error"]
    assert "exceeds the available context size" in expected["message"]
    assert "exceeds the available context size" in told["message"]
    assert (told["n_prompt_tokens"], told["n_ctx"]) == (
        expected["n_prompt_tokens"],
        expected["n_ctx"],
    )
    assert through.headers["x-should-retry"] == "false"


def test_more_choices_than_slots_are_refused_at_once(swift: Pair) -> None:
    body = chat(n=9)
    direct, through = ask(swift.direct, "POST", CHAT, body), ask(swift.url, "POST", CHAT, body)

    assert through.status == direct.status == 400
    assert through.json()["error"]["type"] == direct.json()["error"]["type"]


# Leaving.


@pytest.mark.parametrize("how", ["closes", "half-closes"])
def test_a_client_that_leaves_is_no_error_in_the_log(narrow: Pair, how: str) -> None:
    body = json.dumps(chat(max_tokens=4000, stream=True)).encode()
    with gateway("--backend", narrow.direct) as front:
        where = urlsplit(front.url)
        with socket.create_connection((where.hostname, where.port), timeout=20) as client:
            head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
            client.sendall(head % (CHAT.encode(), len(body)) + body)
            assert client.recv(15) == b"HTTP/1.1 200 OK"
            if how == "half-closes":
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass
        wait_until(lambda: front.queue()["slots_idle"] == 1)
        assert front.metrics("slotgate_abandoned_total")['phase="decode"'] == 1
    # Ending the gateway looked at what it had logged.


# Router mode.


class Router(BaseHTTPRequestHandler):
    """A llama-server that starts a server for each model: it has no slots of its own."""

    def do_GET(self) -> None:
        one = {"id": "one", "object": "model", "status": {"value": "unloaded", "args": []}}
        answers: dict[str, tuple[int, object]] = {
            "/health": (200, {"status": "ok"}),
            "/props": (200, {"role": "router", "max_instances": 4}),
            "/v1/models": (200, {"object": "list", "data": [one]}),
        }
        missing = {"code": 400, "message": "model name is missing", "type": "invalid_request_error"}
        self._answer(*answers.get(self.path, (400, {"error": missing})))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer(200, {"object": "list", "model": asked["model"], "data": []})

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, *_args: object) -> None:
        pass


@contextlib.contextmanager
def router() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Router) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_router_is_served_without_being_asked_for_slots() -> None:
    with router() as url, gateway("--backend", url) as front:
        assert ask(front.url, "GET", "/ready").status == 200
        answer = ask(front.url, "POST", "/v1/embeddings", {"model": "one", "input": "a"})

    assert answer.status == 200
    assert answer.json()["model"] == "one"
