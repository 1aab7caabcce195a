"""The head of a request: one length, one meaning, nothing smuggled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.net.request import RequestWriter

WRITER = RequestWriter("box:8081", "/llm")


def test_a_post_carries_prefix_host_headers_and_length() -> None:
    request = WRITER.write(
        "POST", "/completion?a=b", [(b"accept", b"text/event-stream")], b"{}", closes=False
    )
    assert request.head == (
        b"POST /llm/completion?a=b HTTP/1.1\r\n"
        b"host: box:8081\r\n"
        b"accept: text/event-stream\r\n"
        b"content-length: 2\r\n"
        b"\r\n"
    )
    assert request.body == b"{}"


def test_a_single_use_request_says_that_the_connection_closes() -> None:
    assert b"\r\nconnection: close\r\n" in WRITER.write("GET", "/", [], b"", closes=True).head


@pytest.mark.parametrize(
    ("method", "has_length"), [("GET", False), ("HEAD", False), ("POST", True)]
)
def test_an_empty_body_has_a_length_only_where_a_body_is_usual(
    method: str, has_length: bool
) -> None:
    head = WRITER.write(method, "/", [], b"", closes=False).head
    assert (b"content-length: 0" in head) is has_length


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"1\r\nevil: 2"),
        (b"x", b"1\nevil: 2"),
        (b"x", b"1\r"),
        (b"x", b"1\x00"),
        (b"x\r\nevil", b"1"),
        (b"x: y\r\nevil", b"1"),
        (b"x y", b"1"),
        (b"x:", b"1"),
        (b"", b"1"),
    ],
)
def test_a_header_that_could_become_two_is_refused(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="header"):
        WRITER.write("GET", "/", [(b"good", b"1"), header], b"", closes=False)


@pytest.mark.parametrize("name", [b"Host", b"content-length", b"Transfer-Encoding", b"CONNECTION"])
def test_a_header_that_the_client_writes_itself_is_refused(name: bytes) -> None:
    with pytest.raises(ValueError, match="header"):
        WRITER.write("GET", "/", [(name, b"1")], b"", closes=False)


def test_a_name_that_would_be_read_as_a_shorter_one_is_refused() -> None:
    with pytest.raises(ValueError, match="header"):
        WRITER.write("GET", "/", [(b"x: ", b"")], b"", closes=False)


def test_a_header_that_merely_begins_like_one_of_ours_passes() -> None:
    assert (
        b"\r\nhost-name: x\r\n"
        in WRITER.write("GET", "/", [(b"host-name", b"x")], b"", closes=False).head
    )


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "x"),
        ("GET", ""),
        ("GET", "/a b"),
        ("GET", "/a\r\nevil: 1"),
        ("GET", "/a\n"),
        ("GET", "/\u20ac"),
        ("G ET", "/"),
        ("get", "/"),
        ("", "/"),
        ("GET\n", "/"),
    ],
)
def test_a_method_or_target_that_could_be_misread_is_refused(method: str, target: str) -> None:
    with pytest.raises(ValueError, match=r"method|codec"):
        WRITER.write(method, target, [], b"", closes=False)


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=4))
def test_what_is_not_refused_has_exactly_the_lines_that_were_asked_for(
    headers: list[tuple[bytes, bytes]],
) -> None:
    try:
        head = WRITER.write("GET", "/", headers, b"", closes=False).head
    except ValueError:
        return
    lines = head.split(b"\r\n")[2:-2]
    assert [tuple(line.split(b": ", 1)) for line in lines] == headers
    assert head.count(b"\n") == head.count(b"\r\n") == len(headers) + 3
