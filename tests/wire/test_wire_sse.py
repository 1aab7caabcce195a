"""Frames come out whole and byte for byte, wherever the stream was cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.errors import BrokenAnswerError
from slotgate.wire.sse import FrameSplitter, frame_data, frame_event, is_comment
from tests.wire.replay import pieces_of

BYTES = st.lists(
    st.sampled_from([b"data: a", b"event: b", b":", b"\n", b"\r\n", b"\r", b"x", b"\n\n", b""]),
    max_size=30,
).map(b"".join)
CUTS = st.lists(st.integers(min_value=0, max_value=200), max_size=30)


def split(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = FrameSplitter()
    frames = [frame for piece in pieces for frame in splitter.feed(piece)]
    return frames, splitter.pending


@given(BYTES, CUTS)
def test_cuts_change_no_frame_and_no_byte(stream: bytes, cuts: list[int]) -> None:
    frames, pending = split(pieces_of(stream, cuts))
    assert (frames, pending) == split([stream])
    assert b"".join(frames) + pending == stream


@given(BYTES)
def test_a_frame_ends_with_its_first_blank_line(stream: bytes) -> None:
    frames, pending = split([stream])
    for frame in frames:
        assert frame.endswith((b"\n\n", b"\n\r\n"))
        assert split([frame[:-1]]) == ([], frame[:-1])
    assert split([pending]) == ([], pending)


def test_several_frames_in_one_piece_come_apart() -> None:
    assert split([b"data: a\n\ndata: b\r\n\r\ndata: c"]) == (
        [b"data: a\n\n", b"data: b\r\n\r\n"],
        b"data: c",
    )


def test_it_says_whether_a_frame_has_begun() -> None:
    splitter = FrameSplitter()
    assert splitter.is_between_frames
    splitter.feed(b"d")
    assert not splitter.is_between_frames
    splitter.feed(b"\n\n")
    assert splitter.is_between_frames


def test_a_frame_without_end_is_a_broken_answer() -> None:
    splitter = FrameSplitter(max_frame_bytes=10)
    splitter.feed(b"0123456789")
    with pytest.raises(BrokenAnswerError, match="longer than 10 bytes"):
        splitter.feed(b"0")


def test_a_long_frame_in_small_pieces_is_searched_once() -> None:
    splitter = FrameSplitter()
    piece = b"x" * 1000
    for _ in range(3000):
        assert splitter.feed(piece) == []
    assert len(splitter.feed(b"\n\n")[0]) == 3_000_002


@pytest.mark.parametrize(
    ("frame", "event", "data"),
    [
        (b"data: x\n\n", None, b"x"),
        (b"data:x\n\n", None, b"x"),
        (b"data:  x\n\n", None, b" x"),
        (b"data: x\r\n\r\n", None, b"x"),
        (b"data: x\r\n\n", None, b"x"),
        (b"data:\n\n", None, b""),
        (b"data: \n\n", None, b""),
        (b"data: a\ndata: b\n\n", None, b"a\nb"),
        (b"event: e\ndata: x\n\n", b"e", b"x"),
        (b"data: x\nevent: e\n\n", b"e", b"x"),
        (b"event: a\r\nevent: b\r\ndata: x\r\n\r\n", b"b", b"x"),
        (b"event:e\n\n", b"e", None),
        (b": c\ndata: x\n\n", None, b"x"),
        (b"id: 1\n\n", None, None),
        (b": c\n\n", None, None),
        (b"data: event: x\n\n", None, b"event: x"),
        (b"data: [DONE]", None, b"[DONE]"),
        (b"error: {}\n\n", None, None),
    ],
)
def test_fields_of_a_frame(frame: bytes, event: bytes | None, data: bytes | None) -> None:
    assert frame_event(frame) == event
    assert frame_data(frame) == data


@pytest.mark.parametrize(
    "frame", [b":\n\n", b": ping\r\n\r\n", b"\n\n", b":a\n:b\n\n", b"\n:c\n\n"]
)
def test_comments_and_blank_lines_keep_alive_only(frame: bytes) -> None:
    assert is_comment(frame)


@pytest.mark.parametrize("frame", [b"data: x\n\n", b":a\ndata: x\n\n", b"proxy error: x\n\n"])
def test_what_carries_something_is_no_comment(frame: bytes) -> None:
    assert not is_comment(frame)
