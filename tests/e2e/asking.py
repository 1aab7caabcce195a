"""Plain HTTP, without a client library's own ideas."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

CHAT = "/v1/chat/completions"
PATIENCE_LOOKS = 20_000


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` has lower-cased names."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Answer:
    """Send one request; a body that is not bytes goes as JSON."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    json_type = {"content-type": "application/json"} if data is not None else {}
    try:
        connection.request(method, path, data, json_type | (headers or {}))
        response = connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, told, response.read())
    finally:
        connection.close()


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}


def wait_until(condition: Callable[[], bool], *, looks: int = PATIENCE_LOOKS) -> None:
    """Look again and again; each look is a request, so that this neither sleeps nor spins."""
    for _ in range(looks):
        if condition():
            return
    raise AssertionError("what was waited for did not come")
