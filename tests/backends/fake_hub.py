"""As much of huggingface.co as it takes to list, fetch and read in parts one repository."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, cast

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0" * 39 + "1"


class Hub(ThreadingHTTPServer):
    """As much of huggingface.co as it takes to list and fetch one repository."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.files = files
        self.fetched: list[str] = []
        self.requests = 0
        # Bytes of files that were sent.
        self.sent_bytes = 0
        # Whether files are refused that are listed, as before a licence is accepted.
        self.is_gated = False
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
        hub.requests += 1
        if hub.refusal:
            status, code = hub.refusal
            return self.reply(status, b"{}", {"X-Error-Code": code}, with_body=with_body)
        if path.startswith("/api/models/org/repo/tree/"):
            tree = [
                {"type": "file", "path": n, "size": len(c), "oid": "0" * 40}
                for n, c in hub.files.items()
            ]
            return self.reply(200, json.dumps(tree).encode(), {}, with_body=with_body)
        if path == "/api/models/org/repo":
            siblings = [{"rfilename": name} for name in hub.files]
            about = {"id": "org/repo", "sha": COMMIT, "siblings": siblings}
            return self.reply(200, json.dumps(about).encode(), {}, with_body=with_body)
        name = path.removeprefix("/org/repo/resolve/main/")
        if name not in hub.files:
            return self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body=with_body)
        if hub.is_gated:
            return self.reply(403, b"{}", {"X-Error-Code": "GatedRepo"}, with_body=with_body)
        content = hub.files[name]
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        status, part = self.part_of(content)
        if with_body:
            hub.fetched.append(name)
            hub.sent_bytes += len(part)
        return self.reply(status, part, headers, with_body=with_body)

    def part_of(self, content: bytes) -> tuple[int, bytes]:
        """The whole, or the range that is asked for."""
        asked = self.headers.get("Range", "")
        if not asked:
            return 200, content
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return 206, content[int(first) : int(last) + 1]

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


@contextmanager
def running(files: dict[str, bytes]) -> Iterator[Hub]:
    """Serve these files for the block."""
    with Hub(files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
