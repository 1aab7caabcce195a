"""What a running server says that it has."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from slotgate.backends.plan_server import RunningServer, ask_server
from slotgate.errors import BackendError, ConfigError
from tests.cli.processes import stub

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.process

SLOTS = [{"id": number, "n_ctx": 2048, "is_processing": False} for number in range(3)]
PROPS = {
    "total_slots": 3,
    "default_generation_settings": {"n_ctx": 2048},
    "model_path": "/models/m.gguf",
    "model_alias": "m",
    "build_info": "b9460-0123abc",
}
MODELS = {"data": [{"id": "m", "meta": {"size": 12345}}]}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers = cast("Server", self.server).answers
        found = answers.get(self.path)
        status, body = (404, {}) if found is None else found
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Answers these paths with a status and a body, all others with 404."""

    daemon_threads = True

    def __init__(self, answers: Mapping[str, tuple[int, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers


@contextmanager
def serving(**answers: Any) -> Iterator[str]:
    paths = {"props": "/props", "slots": "/slots", "models": "/v1/models"}
    told = {paths[name]: answer for name, answer in answers.items()}
    with Server(told) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_tells_its_slots_its_model_and_its_build() -> None:
    with serving(props=(200, PROPS), slots=(200, SLOTS), models=(200, MODELS)) as url:
        assert ask_server(url) == RunningServer(
            url=url,
            slots=3,
            ctx_per_slot=2048,
            model_path="/models/m.gguf",
            model_alias="m",
            build=9460,
            weights_bytes=12345,
        )


@pytest.mark.parametrize(
    "models",
    [(404, {}), (200, b"no JSON"), (200, {"data": []}), (200, {"data": [{"meta": {"size": "x"}}]})],
)
def test_nothing_hangs_on_the_list_of_models(models: tuple[int, Any]) -> None:
    with serving(props=(200, PROPS), slots=(200, SLOTS), models=models) as url:
        assert ask_server(url).weights_bytes is None


def test_a_server_whose_slots_are_off_is_taken_at_its_props() -> None:
    with serving(props=(200, PROPS), slots=(501, {})) as url:
        server = ask_server(url)
    assert (server.slots, server.ctx_per_slot) == (3, 2048)
    assert server.notes == ("/slots is off there: the numbers are /props' own",)


def test_an_old_server_whose_slots_are_off_cannot_be_asked() -> None:
    old = {"total_slots": 3}
    with serving(props=(200, old), slots=(501, {})) as url:
        with pytest.raises(BackendError, match="start the server with --slots"):
            ask_server(url)


@pytest.mark.parametrize(
    ("props", "words"),
    [
        (None, "it is no llama-server"),
        ((200, b"<html>"), "/props is not JSON"),
        ((200, {}), "no llama-server"),
        ((200, {"role": "router"}), "is a router"),
        ((401, {}), "--api-key-env"),
        ((503, {}), "answered 503"),
    ],
)
def test_what_is_no_server_of_slots_is_put_into_words(props: Any, words: str) -> None:
    answers = {} if props is None else {"props": props}
    with serving(**answers) as url, pytest.raises(BackendError, match=words):
        ask_server(url)


def test_a_server_that_is_not_there_is_put_into_words() -> None:
    with pytest.raises(BackendError, match="is the server running"):
        ask_server("http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="is no backend URL"):
        ask_server("127.0.0.1:9")


def test_a_build_that_is_not_told_is_not_made_up() -> None:
    props = {**PROPS, "build_info": "unknown"}
    with serving(props=(200, props), slots=(200, SLOTS)) as url:
        assert ask_server(url).build is None


def test_a_key_opens_a_server_that_wants_one() -> None:
    with stub("--api-key", "secret", "--slots", "2", "--ctx", "512") as url:
        server = ask_server(url, api_key="secret")
    assert (server.slots, server.ctx_per_slot, server.notes) == (2, 512, ())
