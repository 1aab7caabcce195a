"""Responses in every framing, cut anywhere, and everything that is not a response."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.net.answer import MAX_HEAD_BYTES, Answer
from tests.net.scripted import chunked, plain


@dataclass(frozen=True, kw_only=True)
class Case:
    """A response on the wire, and what it says."""

    wire: bytes
    status: int = 200
    body: bytes = b""
    is_head: bool = False
    needs_end: bool = False
    keeps_alive: bool = True


CASES = {
    "content-length": Case(wire=plain(b"hello"), body=b"hello"),
    "content-length-zero": Case(wire=plain(b"")),
    "chunks": Case(wire=chunked(b"he", b"llo"), body=b"hello"),
    "chunks-with-trailers": Case(
        wire=chunked(b"hello", trailers=b"x-sum: 1\r\nx-other: 2\r\n"), body=b"hello"
    ),
    "chunk-extensions": Case(
        wire=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
        body=b"hello",
    ),
    "until-close": Case(
        wire=b"HTTP/1.1 200 OK\r\n\r\nhello", body=b"hello", needs_end=True, keeps_alive=False
    ),
    "until-close-other-coding": Case(
        wire=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        body=b"hello",
        needs_end=True,
        keeps_alive=False,
    ),
    "http-1.0": Case(
        wire=b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", body=b"hello", keeps_alive=False
    ),
    "connection-close": Case(
        wire=plain(b"hello", b"Connection: close"), body=b"hello", keeps_alive=False
    ),
    "head": Case(
        wire=b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", is_head=True, keeps_alive=False
    ),
    "head-chunked": Case(
        wire=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        is_head=True,
        keeps_alive=False,
    ),
    "204": Case(wire=b"HTTP/1.1 204 No Content\r\n\r\n", status=204),
    "304": Case(wire=b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status=304),
    "after-100": Case(
        wire=b"HTTP/1.1 100 Continue\r\nx: 1\r\n\r\n" + plain(b"hello"), body=b"hello"
    ),
    "after-100-and-103": Case(
        wire=b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        + chunked(b"hello"),
        body=b"hello",
    ),
    "error": Case(wire=plain(b"no", status=b"401 Unauthorized"), status=401, body=b"no"),
}


def check(answer: Answer, case: Case) -> None:
    assert answer.fault is None
    assert answer.is_complete
    assert answer.status == case.status
    assert answer.keeps_alive is case.keeps_alive
    assert answer.take() == case.body
    assert answer.unread_bytes == 0


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_framing_is_understood(case: Case) -> None:
    answer = Answer(is_head=case.is_head)
    answer.feed(case.wire)
    assert answer.is_complete is not case.needs_end
    if case.needs_end:
        answer.end()
    check(answer, case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_framing_is_understood_byte_by_byte(case: Case) -> None:
    answer = Answer(is_head=case.is_head)
    for byte in case.wire:
        assert not answer.is_complete
        answer.feed(bytes([byte]))
    if case.needs_end:
        answer.end()
    check(answer, case)


@given(
    case=st.sampled_from(list(CASES.values())),
    cuts=st.lists(st.integers(0, 250), max_size=8).map(sorted),
)
def test_every_framing_is_understood_wherever_it_is_cut(case: Case, cuts: list[int]) -> None:
    answer = Answer(is_head=case.is_head)
    for start, stop in zip([0, *cuts], [*cuts, len(case.wire)], strict=True):
        if piece := case.wire[start:stop]:
            answer.feed(piece)
    if case.needs_end:
        answer.end()
    check(answer, case)


@pytest.mark.parametrize("case", [case for case in CASES.values() if not case.needs_end])
def test_an_answer_cut_short_anywhere_is_a_fault(case: Case) -> None:
    for size in range(1, len(case.wire)):
        answer = Answer(is_head=case.is_head)
        answer.feed(case.wire[:size])
        answer.end()
        assert not answer.is_complete
        assert answer.fault is not None
        assert "closed in the middle" in answer.fault


def test_header_names_are_lower_case_and_keep_order_repetition_and_emptiness() -> None:
    answer = Answer(is_head=False)
    answer.feed(
        b"HTTP/1.1 200 Very OK\r\nAccess-Control-Allow-Origin: \r\nX-B: One\r\nx-b: two\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    assert answer.reason == b"Very OK"
    assert answer.headers == [
        (b"access-control-allow-origin", b""),
        (b"x-b", b"One"),
        (b"x-b", b"two"),
        (b"content-length", b"0"),
    ]


def test_headers_of_a_1xx_and_trailers_are_not_the_answers_headers() -> None:
    answer = Answer(is_head=False)
    answer.feed(b"HTTP/1.1 100 Go on\r\na: 1\r\n\r\n" + chunked(b"x", trailers=b"b: 2\r\n"))
    assert answer.reason == b"OK"
    assert answer.headers == [(b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize(
    "wire",
    [
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/3.7 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nna me: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nproxy error: broken\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
    ],
)
def test_what_is_malformed_is_a_fault(wire: bytes) -> None:
    answer = Answer(is_head=False)
    answer.feed(wire)
    assert not answer.is_complete
    assert answer.fault is not None
    assert answer.fault.startswith("it is malformed: ")


def test_garbage_in_mid_stream_is_a_fault_after_what_came_before_it() -> None:
    answer = Answer(is_head=False)
    answer.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nproxy error")
    assert answer.fault is not None
    assert answer.take() == b"hello"


def test_a_switch_of_protocols_is_a_fault() -> None:
    answer = Answer(is_head=False)
    answer.feed(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nwhatever"
    )
    assert answer.fault == "it switches protocols, which nobody asked for"


@pytest.mark.parametrize("surplus", [plain(b"second"), b"garbage", b"\x00"])
def test_bytes_behind_the_end_spoil_the_connection_and_not_the_answer(surplus: bytes) -> None:
    answer = Answer(is_head=False)
    answer.feed(plain(b"first") + surplus)
    assert answer.is_complete
    assert answer.fault is None
    assert not answer.keeps_alive
    assert answer.status == 200
    assert answer.take() == b"first"


def head_of(size: int) -> bytes:
    """A complete head whose lines behind the first one have this many bytes."""
    line = b"x: " + b"v" * 995 + b"\r\n"  # 1000 bytes
    rest = b"x: " + b"v" * (size % 1000 - 5 if size % 1000 else 0) + b"\r\n"
    lines = line * (size // 1000) + (rest if size % 1000 else b"")
    assert len(lines) == size
    return b"HTTP/1.1 204 No\r\n" + lines + b"\r\n"


def test_a_head_up_to_the_limit_is_taken() -> None:
    answer = Answer(is_head=False)
    answer.feed(head_of(MAX_HEAD_BYTES))
    assert answer.is_complete
    assert answer.fault is None


@pytest.mark.parametrize("piece_bytes", [1 << 20, 1000])
def test_a_head_beyond_the_limit_is_a_fault(piece_bytes: int) -> None:
    answer = Answer(is_head=False)
    wire = head_of(MAX_HEAD_BYTES + 10)
    for start in range(0, len(wire), piece_bytes):
        if answer.fault is None:
            answer.feed(wire[start : start + piece_bytes])
    assert answer.fault == f"its head or trailers are larger than {MAX_HEAD_BYTES} bytes"


@pytest.mark.parametrize(
    "beginning",
    [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\n", b""],
    ids=["header", "reason", "name", "line-breaks"],
)
def test_a_head_that_never_ends_is_a_fault(beginning: bytes) -> None:
    answer = Answer(is_head=False)
    answer.feed(beginning or b"\r\n")
    filler = b"v" * 1000 if beginning else b"\r\n" * 500
    for _ in range(140):
        if answer.fault is None:
            answer.feed(filler)
    assert answer.fault == f"its head or trailers are larger than {MAX_HEAD_BYTES} bytes"


def test_trailers_are_limited_with_the_head() -> None:
    answer = Answer(is_head=False)
    answer.feed(chunked(b"x", trailers=(b"t: " + b"v" * 995 + b"\r\n") * 70))
    assert answer.fault == f"its head or trailers are larger than {MAX_HEAD_BYTES} bytes"


def test_a_trailer_that_never_ends_is_a_fault() -> None:
    answer = Answer(is_head=False)
    answer.feed(chunked(b"x")[:-2] + b"t: ")
    for _ in range(140):
        if answer.fault is None:
            answer.feed(b"v" * 1000)
    assert answer.fault == f"its head or trailers are larger than {MAX_HEAD_BYTES} bytes"


def test_a_body_of_any_size_is_no_head() -> None:
    answer = Answer(is_head=False)
    answer.feed(plain(b"x" * 1_000_000))
    assert answer.is_complete


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_no_bytes_at_all_make_it_raise(pieces: list[bytes]) -> None:
    answer = Answer(is_head=False)
    for piece in [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces]:
        if answer.fault is None and not answer.is_complete:
            answer.feed(piece)
    answer.end()
    assert answer.is_complete is (answer.fault is None)
