"""What is read from the output of a llama.cpp."""

from __future__ import annotations

import asyncio
import re

import pytest

from slotgate.backends.child import BINARY_LISTENS, ENGINE_LISTENS, KEPT_LINES, Child

pytestmark = pytest.mark.anyio


def child(listens: re.Pattern[str] = BINARY_LISTENS) -> Child:
    return Child(asyncio.get_running_loop(), listens=listens)


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("0.0 I srv  llama_server: listening on http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("0.0 I srv  llama_server: listening on unix:///t/e.sock", "unix:///t/e.sock"),
        (
            "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
            "http://127.0.0.1:8080",
        ),
        ("nothing of the kind", None),
    ],
)
async def test_a_binary_says_where_it_listens(line: str, url: str | None) -> None:
    it = child()
    it.pipe_data_received(1, line.encode() + b"\n")
    assert it.listening == url
    assert it.serving is (url is not None)


async def test_an_engines_address_is_read_from_the_midst_of_another_line() -> None:
    it = child(ENGINE_LISTENS)
    it.pipe_data_received(1, b"srv init: listening on http://127.0.0.1:40")
    it.pipe_data_received(1, b"engine: listening on http://127.0.0.1:4096\n96\n")
    assert it.listening == "http://127.0.0.1:4096"


async def test_lines_are_whole_however_they_arrive() -> None:
    it = child()
    for byte in "löwe\nzwei\r\n".encode():
        it.pipe_data_received(1, bytes([byte]))
    it.pipe_data_received(1, b"rest")
    assert " ".join(it.tail) == "löwe zwei"
    it.connection_lost(None)
    assert " ".join(it.tail) == "löwe zwei rest"
    assert it.closed.done()


async def test_only_the_last_lines_are_kept() -> None:
    it = child()
    it.pipe_data_received(1, b"".join(b"%d\n" % n for n in range(2 * KEPT_LINES)))
    assert len(it.tail) == KEPT_LINES
    assert it.tail[-1] == str(2 * KEPT_LINES - 1)
