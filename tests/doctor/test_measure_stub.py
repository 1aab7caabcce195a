"""Requests of our own: what they find, how few they are, and when there are none."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.doctor.asking import Asker
from slotgate.doctor.evidence import Measured
from slotgate.doctor.measure import measure
from slotgate.doctor.measure_plan import MeasurePlan
from slotgate.net.address import Address
from slotgate.runtime.kv_pool import Sharing
from tests.doctor.examining import examine, only, severities
from tests.doctor.pages import pages, serving
from tests.net.scripted import plain
from tests.polling import wait_until
from tests.stub.client import call, chat, fetch, stub

if TYPE_CHECKING:
    from slotgate.stub import StubServer
    from tests.net.scripted import Peer, Script

pytestmark = [pytest.mark.anyio, pytest.mark.process]

CHAT = "/v1/chat/completions"
PLAN = MeasurePlan(stream_tokens=200, prompt_tokens=1000)
PROMPT = {"tokens": list(range(1000))}


async def measured(url: str, plan: MeasurePlan = PLAN, seconds: float = 10.0) -> Measured:
    asker = Asker(Address.parse(url), timeout=2.0)
    try:
        return await measure(asker, plan, seconds)
    finally:
        asker.close()


async def wait_rest(server: StubServer) -> None:
    """Wait until every slot is idle: a server notices a second later that a reader left."""

    async def rests() -> bool:
        return b'"is_processing":true' not in (await fetch(server, "/slots"))[1]

    await wait_until(rests, every=1.1)  # asked more often, it would not notice


async def test_a_large_batch_is_found_to_stall_streams() -> None:
    said: list[str] = []
    async with stub(decode=100.0, prefill=1000.0) as server:
        examined = await examine(server.url, measures=True, announce=said.append)
        found = examined.evidence.measured
        assert found is not None
        assert (found.prompt_tokens, found.refusal) == (2048, "")
        assert found.piece_tokens == 2047  # the stream takes one of the batch
        assert found.worst_gap is not None
        assert found.worst_gap > 2.0  # 2,047 tokens at 1,000 a second
        assert found.prefill_rate == pytest.approx(1000.0, rel=0.1)
        assert severities(examined)["stream-stall"] == "warning"
        assert only(examined, "stream-stall").mend[0].startswith("-b 128:")
        await wait_rest(server)
    assert said == [
        f"{examined.evidence.url}: measuring with a stream of at most 512 tokens, and beside it "
        "prompts of 128 and at most 2,048 tokens, each answered by one; in two slots, for at most "
        "60 s; after them, one token"
    ]


async def test_a_small_batch_is_found_not_to() -> None:
    # So slow in writing that no hiccup of this machine looks like a stall.
    async with stub(decode=20.0, prefill=4000.0, batch=32, ctx=512) as server:
        examined = await examine(server.url, measures=True)
        found = examined.evidence.measured
        assert found is not None
        assert found.piece_tokens == 31
        assert severities(examined)["stream-stall"] == "ok"


async def test_no_more_is_asked_than_was_said() -> None:
    async with stub(decode=100.0, prefill=10_000.0) as server:
        await examine(server.url, measures=True)
        bodies = [record.body for record in server.observed.records]
        assert [
            b'"n_predict":%d' % number in body
            for number, body in zip((512, 1, 1, 1), bodies, strict=True)
        ] == [True] * 4
        assert all(b'"stream":true' in body for body in bodies)
        assert server.observed.max_in_flight == 2
        assert server.observed.max_deferred == 0


async def test_without_being_told_nothing_is_measured() -> None:
    async with stub() as server:
        examined = await examine(server.url)
        assert examined.evidence.measured is None
        assert server.observed.requests == 0


async def test_a_busy_server_is_measured_only_by_force() -> None:
    async with stub(slots=2, prefill=10_000.0) as server:
        callers = [await call(server, CHAT, chat(400)) for _ in range(2)]
        for caller in callers:
            await caller.until(b"tok1 ")
        refused = await examine(server.url, measures=True)
        assert "all slots are busy" in only(refused, "speed").known_by
        assert server.observed.requests == 2
        forced = await examine(server.url, measures=True, is_forced=True)
        assert forced.evidence.measured is not None
        assert forced.evidence.measured.worst_gap is not None
        for caller in callers:
            await caller.leave()


async def test_one_free_slot_is_enough_for_the_speed_of_writing() -> None:
    async with stub(slots=1, decode=100.0) as server:
        examined = await examine(server.url, measures=True)
        found = examined.evidence.measured
        assert found is not None
        assert found.decode_rate is not None
        assert found.decode_rate < 110.0
        assert found.worst_gap is None
        assert "only one slot was free" in found.refusal
        assert "stream-stall" not in severities(examined)


async def test_slots_that_keep_their_tokens_are_doubted_to_share() -> None:
    async with stub(slots=4, prefill=10_000.0) as server:
        assert (await examine(server.url)).evidence.sharing is Sharing.PRESUMED
        examined = await examine(server.url, measures=True)
        assert examined.evidence.sharing is Sharing.DOUBTED
        assert severities(examined)["context-overcommitted"] == "note"


async def test_what_was_measured_counts_for_nothing_else() -> None:
    async with stub(slots=2, decode=100.0, prefill=10_000.0) as server:
        examined = await examine(server.url, measures=True)
        assert only(examined, "slot-stuck").found == "All slots are idle."
        assert len(examined.evidence.looks) == 1


async def test_a_key_goes_with_what_is_measured() -> None:
    async with stub(api_keys=("sesame",), prefill=10_000.0) as server:
        examined = await examine(server.url, key="sesame", measures=True)
        assert examined.evidence.measured is not None
        assert examined.evidence.measured.refusal == ""


# What goes wrong.


async def test_time_is_bounded_and_what_was_seen_until_then_is_told() -> None:
    async with stub(decode=100.0, prefill=100.0) as server:
        plan = MeasurePlan(stream_tokens=200, prompt_tokens=1000)
        found = await measured(server.url, plan, seconds=1.0)
        assert found.refusal == "it was not done within 1 s"
        assert found.decode_rate is not None
        assert found.prefill_rate is None
        await wait_rest(server)


async def test_a_stall_that_outlasts_the_time_counts_as_far_as_it_came() -> None:
    async with stub(decode=100.0, prefill=200.0, batch=2048) as server:
        found = await measured(server.url, seconds=3.0)
        assert found.refusal == "it was not done within 3 s"
        assert found.worst_gap is not None
        assert found.worst_gap > 1.0


async def test_a_stream_that_ends_too_early_is_told() -> None:
    async with stub(decode=100.0) as server:
        short = MeasurePlan(stream_tokens=5, prompt_tokens=0)
        assert (await measured(server.url, short)).refusal == "the stream ended too early"
        brief = MeasurePlan(stream_tokens=26, prompt_tokens=1000)
        found = await measured(server.url, brief)
        assert found.refusal == "the stream ended before the prompt beside it was read"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("fast500", "POST /completion: 500"),
        ("dies:5", "broken answer"),
        ("silent", "POST /completion: no token within 1 s"),
    ],
)
async def test_a_server_that_fails_is_told_to(fault: str, why: str) -> None:
    async with stub(decode=100.0) as server:
        server.set_fault(fault)
        found = await measured(server.url, seconds=1.0)
        assert why in found.failure
        assert found.worst_gap is None


async def test_a_server_that_looks_well_and_fails_is_found() -> None:
    async with stub() as server:
        server.set_fault("fast500")
        assert severities(await examine(server.url)).get("request-failed") is None
        assert severities(await examine(server.url, measures=True))["request-failed"] == "error"


async def test_a_prompt_that_fails_beside_the_stream_is_a_failure() -> None:
    async with stub(decode=100.0) as server:
        server.set_fault("dies:26")
        found = await measured(server.url, MeasurePlan(stream_tokens=200, prompt_tokens=64))
        assert found.failure
        assert found.usual_gap is not None


async def test_a_server_that_writes_no_text_is_not_at_fault() -> None:
    script = pages(tokenize=(200, PROMPT), completion=(501, {}))
    async with serving(script) as server:
        found = await measured(server.url)
        assert (found.refusal, found.failure) == ("the stream ended too early", "")


async def test_a_stream_that_comes_in_lumps_is_told_from_one_that_stalls() -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(3):
            await peer.send(b"data: {}\n\n" * 12)
            await asyncio.sleep(0.35)

    async with serving(play) as server:
        found = await measured(server.url, MeasurePlan(stream_tokens=200, prompt_tokens=0))
        assert found.lump_tokens == 12.0
        assert found.lump_gap > 0.3


async def test_a_prompt_that_is_refused_is_told() -> None:
    async with stub(decode=100.0, ctx=512) as server:
        found = await measured(server.url)
        assert (found.refusal, found.failure) == ("POST /completion: 400", "")
        assert found.usual_gap is not None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((404, {}), "POST /tokenize: 404"),
        ((200, []), "POST /tokenize: 200"),
        ((200, {"tokens": ["x"]}), "POST /tokenize: 200"),
        ((200, {"tokens": [1]}), "POST /tokenize: it told too few tokens"),
    ],
)
async def test_a_server_that_counts_no_tokens_is_not_measured(
    answer: tuple[int, Any], why: str
) -> None:
    async with serving(pages(tokenize=answer)) as server:
        assert (await measured(server.url)).refusal == why


def frames(*frames: bytes) -> Script:
    """Tokens as asked for, and these frames to whoever asks for one."""

    async def play(peer: Peer) -> None:
        while True:
            request = await peer.read_request()
            if request.startswith(b"POST /tokenize"):
                await peer.send(plain(json.dumps(PROMPT).encode()))
                continue
            is_stream = b'"n_predict":200' in request
            body = b"data: {}\n\n" * 30 if is_stream else b"".join(frames)
            await peer.send(plain(body))

    return play


async def test_frames_that_tell_nothing_are_no_trouble() -> None:
    async with serving(frames(b"data: nonsense\n\n", b": ping\n\n", b"data: [1]\n\n")) as server:
        found = await measured(server.url)
        assert (found.prefill_rate, found.piece_tokens) == (None, None)
        assert "ended before" in found.refusal
