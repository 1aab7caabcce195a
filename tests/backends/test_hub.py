"""Models from Hugging Face, with its own library against a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, cast

import pytest
from typing_extensions import override

from slotgate.backends.models import resolve_model
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.process]

COMMIT = "0" * 39 + "1"


class Hub(ThreadingHTTPServer):
    """As much of huggingface.co as it takes to list and fetch one repository."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.files = files
        self.fetched: list[str] = []
        self.refusal: tuple[int, str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        hub, path = cast("Hub", self.server), self.path.partition("?")[0]
        if hub.refusal:
            status, code = hub.refusal
            return self.reply(status, b"{}", {"X-Error-Code": code}, with_body=with_body)
        if path.startswith("/api/models/org/repo/tree/"):
            tree = [
                {"type": "file", "path": n, "size": len(c), "oid": "0" * 40}
                for n, c in hub.files.items()
            ]
            return self.reply(200, json.dumps(tree).encode(), {}, with_body=with_body)
        name = path.removeprefix("/org/repo/resolve/main/")
        if name not in hub.files:
            return self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body=with_body)
        if with_body:
            hub.fetched.append(name)
        content = hub.files[name]
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return self.reply(200, content, headers, with_body=with_body)

    def reply(self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(
    make_gguf: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Hub]:
    files = {
        "README.md": b"hello",
        "Tiny-Q4_K_M.gguf": make_gguf(size=1 << 20),
        "Tiny-Q8_0-00001-of-00002.gguf": make_gguf(size=1000),
        "Tiny-Q8_0-00002-of-00002.gguf": make_gguf(size=2000),
    }
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    with Hub(files) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Said(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)


async def test_the_default_file_is_fetched_once_and_its_progress_is_told(hub: Hub) -> None:
    said = Said()
    model = await resolve_model("hf:org/repo", progress=said)
    assert model.name == "tiny"
    assert model.path.read_bytes() == hub.files["Tiny-Q4_K_M.gguf"]
    assert any(line.endswith("(100 %)") for line in said)
    assert await resolve_model("hf:org/repo", progress=Said()) == model
    assert hub.fetched == ["Tiny-Q4_K_M.gguf"]


async def test_a_split_model_comes_with_all_its_parts(hub: Hub) -> None:
    model = await resolve_model("hf:org/repo:q8_0", progress=Said())
    assert model.path.name == "Tiny-Q8_0-00001-of-00002.gguf"
    assert sorted(hub.fetched) == [
        "Tiny-Q8_0-00001-of-00002.gguf",
        "Tiny-Q8_0-00002-of-00002.gguf",
    ]


async def test_what_was_fetched_before_is_taken_when_the_hub_is_away(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = await resolve_model("hf:org/repo:Q8_0", progress=Said())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert await resolve_model("hf:org/repo:Q8_0", progress=Said()) == named
    said = Said()
    # Nothing named: the hub might have had a better one, so the user is told.
    assert await resolve_model("hf:org/repo", progress=said) == named
    assert any("cannot be reached; taking Tiny-Q8_0" in line for line in said)


async def test_with_no_connection_and_nothing_kept_the_error_says_what_to_do(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        await resolve_model("hf:org/repo", progress=Said())
    assert "give the path of a .gguf file" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (404, "RepoNotFound", "no such repository"),
        (401, "RepoNotFound", "no such repository"),
        (403, "GatedRepo", "accept a licence"),
        (400, "", "Hugging Face answered"),
    ],
)
async def test_a_refusal_of_the_hub_is_put_into_words(
    hub: Hub, status: int, code: str, said: str
) -> None:
    hub.refusal = (status, code)
    with pytest.raises(ModelError, match=rf"hf:org/repo: .*{said}"):
        await resolve_model("hf:org/repo", progress=Said())


async def test_a_file_that_is_no_model_is_refused(hub: Hub) -> None:
    hub.files["Tiny-Q4_K_M.gguf"] = b"version https://git-lfs.github.com/spec/v1\n"
    with pytest.raises(ModelError, match="not a GGUF model"):
        await resolve_model("hf:org/repo", progress=Said())


async def test_a_quantisation_the_repository_lacks_is_an_error_that_lists_what_it_has(
    hub: Hub,
) -> None:
    with pytest.raises(ModelError, match="it has no Q6_K; it has Q4_K_M, Q8_0"):
        await resolve_model("hf:org/repo:Q6_K", progress=Said())
