"""A stream that is stopped ends like one whose length came to a limit, wherever it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.wire.cutoff import cut_off
from slotgate.wire.relay import StreamRelay
from slotgate.wire.request import Prepared
from slotgate.wire.routes import Shape
from tests.wire.replay import BY_NAME, RECORDINGS, shape_of

CASES = ["chat_native_probabilities", "messages_to_its_end", "native_plain", "messages_system"]
END = b"\n\n"


def frames_of(name: str) -> list[bytes]:
    stream = RECORDINGS[name].streamed[1].encode()
    return [frame + END for frame in stream.split(END) if frame]


def is_token(frame: bytes) -> bool:
    is_content = b'"content":"' in frame or b"content_block_delta" in frame
    return is_content and b'"stop":true' not in frame and b'"role"' not in frame


def last_event(body: bytes) -> Any:
    events = [frame for frame in body.split(END) if frame and b"[DONE]" not in frame]
    return json.loads(events[-1].partition(b"data: ")[2])


@pytest.mark.parametrize("name", CASES)
def test_the_end_is_whole_for_who_watches_the_stream(name: str) -> None:
    shape, frames = shape_of(BY_NAME[name]), frames_of(name)
    for place, frame in enumerate(frames):
        if not is_token(frame):
            continue
        sent = b"".join(frames[: place + 1])
        end = cut_off(shape, sent, width=1, output_tokens=7)
        assert end is not None
        relay = StreamRelay(shape, Prepared(body=b"", wants_stream=True, upstream_stream=True))
        relay.feed(sent + end)
        assert relay.is_whole
        assert relay.is_between_frames


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chat_native_probabilities", ["choices", 0, "finish_reason", "length"]),
        ("native_plain", ["stop_type", "limit"]),
        ("messages_system", ["type", "message_stop"]),
    ],
)
def test_the_end_is_that_of_the_real_server_but_for_what_was_counted(
    name: str, said: list[Any]
) -> None:
    shape, frames = shape_of(BY_NAME[name]), frames_of(name)
    tokens = [frame for frame in frames if is_token(frame)]
    end = cut_off(shape, tokens[-1], width=1, output_tokens=len(tokens))
    assert end is not None
    real = last_event(b"".join(frames))
    ours = last_event(end)
    assert set(ours) <= {*real, *last_event(tokens[-1])}
    for value in (real, ours):
        *path, expected = said
        for key in path:
            value = value[key]  # noqa: PLW2901
        assert value == expected


def test_messages_end_as_the_real_server_ends_them() -> None:
    frames = frames_of("messages_system")
    tokens = [frame for frame in frames if is_token(frame)]
    end = cut_off(Shape.MESSAGES, tokens[-1], width=1, output_tokens=6)
    assert end == b"".join(frames[frames.index(tokens[-1]) + 1 :])


def test_a_chat_keeps_the_names_of_its_chunks() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "x"}}], "id": "a", "model": "m"}
    sent = b"data: " + json.dumps({**chunk, "timings": {"predicted_n": 1}}).encode() + END
    end = cut_off(Shape.CHAT, sent, width=1, output_tokens=1)
    assert end is not None
    assert last_event(end) == {
        "choices": [{"finish_reason": "length", "index": 0, "delta": {}}],
        "id": "a",
        "model": "m",
    }
    assert end.endswith(b"data: [DONE]\n\n")


def test_a_text_completion_ends_with_an_empty_piece_of_text() -> None:
    sent = b'data: {"choices":[{"text":"x","index":0,"logprobs":null,"finish_reason":null}]}\n\n'
    end = cut_off(Shape.OPENAI_COMPLETION, sent, width=1, output_tokens=1)
    assert end is not None
    [choice] = last_event(end)["choices"]
    assert choice == {"finish_reason": "length", "index": 0, "text": "", "logprobs": None}


@pytest.mark.parametrize(
    ("shape", "sent", "width"),
    [
        (Shape.RESPONSES, b'data: {"type":"response.output_text.delta"}\n\n', 1),
        (Shape.CHAT, b'data: {"choices":[{"index":0,"delta":{}}]}\n\n', 2),
        (Shape.CHAT, b'data: {"choices":[{"index":0,', 1),
        (Shape.CHAT, b": comment\n\n", 1),
        (Shape.CHAT, b'data: {"choices":[]}\n\n', 1),
        (Shape.CHAT, b"data: [1]\n\n", 1),
        (Shape.COMPLETION, b'data: {"stop":true}\n\n', 1),
        (Shape.MESSAGES, b'event: message_start\ndata: {"type":"message_start"}\n\n', 1),
        (Shape.MESSAGES, b'data: {"type":"content_block_delta","index":"0"}\n\n', 1),
        (Shape.CHAT, b"", 1),
    ],
)
def test_where_no_end_can_be_made_there_is_none(shape: Shape, sent: bytes, width: int) -> None:
    assert cut_off(shape, sent, width=width, output_tokens=1) is None


@given(st.sampled_from(list(Shape)), st.binary())
def test_anything_may_have_been_sent(shape: Shape, sent: bytes) -> None:
    cut_off(shape, b"data: " + sent + END, width=1, output_tokens=1)
