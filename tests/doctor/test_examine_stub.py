"""A simulated llama-server with each setting and fault: what is found, and what is left alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.doctor.examine import Examination, examine_all
from slotgate.doctor.judge import ExitStatus
from slotgate.stub import Build
from tests.doctor.examining import by_check, examine, only, severities
from tests.polling import wait_until
from tests.stub.client import call, chat, fetch, stub

if TYPE_CHECKING:
    from slotgate.stub import StubServer

pytestmark = [pytest.mark.anyio, pytest.mark.process]

CHAT = "/v1/chat/completions"


def times_of(server: StubServer, path: str) -> list[float]:
    return [at for each, at in server.observed.asked if each == path]


async def wait_still(server: StubServer) -> None:
    """Wait for the pass that began before the fault, and is as fast as ever, to end."""
    shown = [b""]

    async def is_still() -> bool:
        shown.append((await fetch(server, "/slots"))[1])
        return shown[-1] == shown[-2]

    await wait_until(is_still, every=0.02)


async def test_a_healthy_server_has_nothing_worse_than_a_note() -> None:
    async with stub() as server:
        examined = await examine(server.url)
        assert examined.status is ExitStatus.GOOD
        assert {"no-key", "slot-stuck", "deferred", "slots-off", "metrics-off"} <= {
            check for check, how in severities(examined).items() if how == "ok"
        }


async def test_each_route_is_asked_once_and_no_slot_is_taken() -> None:
    async with stub() as server:
        await examine(server.url)
        asked = [path for path, _ in server.observed.asked]
        assert asked == ["/health", "/v1/models", "/props", "/slots", "/metrics"]
        assert server.observed.requests == 0


async def test_slots_that_work_are_seen_to_get_on_at_a_decent_pace() -> None:
    async with stub() as server:
        caller = await call(server, CHAT, chat(4000))
        await caller.until(b"tok1 ")
        examined = await examine(server.url)
        assert only(examined, "slot-stuck").found == "1 of 2 slots work, and all of them get on."
        looks = times_of(server, "/slots")
        assert len(looks) == 2
        assert all(later - earlier >= 1.19 for earlier, later in pairwise(looks))
        await caller.leave()


async def test_a_slot_that_does_not_get_on_is_watched_as_long_as_was_said() -> None:
    async with stub() as server:
        caller = await call(server, CHAT, chat(4000))
        await caller.until(b"tok5 ")
        server.set_fault("slow:1000000")
        await wait_still(server)
        server.observed.asked.clear()
        examined = await examine(server.url)
        finding = only(examined, "slot-stuck")
        assert str(finding.severity) == "warning"
        assert "has written nothing for" in finding.found
        looks = times_of(server, "/slots")
        assert len(looks) == 4
        assert all(later - earlier >= 1.19 for earlier, later in pairwise(looks))
        await caller.leave()


async def test_who_moves_while_it_is_watched_is_not_stuck() -> None:
    async with stub() as server:
        caller = await call(server, CHAT, chat(4000))
        await caller.until(b"tok5 ")
        server.set_fault("slow:300")  # a token in one and a half seconds
        examined = await examine(server.url, watch_seconds=20.0)
        assert str(only(examined, "slot-stuck").severity) == "ok"
        await caller.leave()


async def test_a_wedged_server_is_found() -> None:
    async with stub() as server:
        caller = await call(server, CHAT, chat(4000))
        server.set_fault("wedge:3")
        await caller.until(b"tok3 ")
        examined = await examine(server.url, timeout=0.3)
        assert severities(examined)["wedged"] == "error"
        assert examined.status is ExitStatus.ERRORS
        await caller.leave()


async def test_a_server_that_wedges_while_it_is_watched_is_found() -> None:
    async with stub(decode=10.0) as server:
        server.set_fault("wedge:10")
        caller = await call(server, CHAT, chat(4000))
        await caller.until(b"tok1 ")
        examined = await examine(server.url, timeout=0.3)
        assert severities(examined)["wedged"] == "error"
        assert len(examined.evidence.looks) == 1
        await caller.leave()


async def test_a_server_without_work_that_is_wedged_looks_well() -> None:
    async with stub() as server:
        server.set_fault("wedge:3")
        assert "wedged" not in by_check(await examine(server.url))


async def test_requests_that_wait_inside_are_counted() -> None:
    async with stub(slots=1) as server:
        callers = [await call(server, CHAT, chat(4000)) for _ in range(3)]
        await wait_until(lambda: server.observed.deferred == 2)
        finding = only(await examine(server.url), "deferred")
        assert finding.found == "2 requests wait inside it."
        assert any(way.startswith("-np 4 -c 16384") for way in finding.mend)
        for caller in callers:
            await caller.leave()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"has_slots": False}, {"slots-off": "warning"}),
        ({"has_metrics": False}, {"metrics-off": "note"}),
        ({"slots": 4}, {"context-overcommitted": "warning"}),
        ({"slots": 4, "unified": True}, {"context-overcommitted": "warning"}),
        ({"slots": 8, "ctx": 512, "ctx_train": 8192}, {"context-divided": "warning"}),
        ({"slots": 8, "ctx": 4096, "ctx_train": 8192}, {"context-divided": "note"}),
        ({"ctx": 16384, "ctx_train": 8192}, {"context-above-trained": "warning"}),
        ({"build_info": "b10000-x"}, {"build-fault": "warning"}),
        ({"build_info": "b0-unknown"}, {"build-unknown": "note"}),
    ],
    ids=str,
)
async def test_a_setting_is_found(options: dict[str, Any], expected: dict[str, str]) -> None:
    async with stub(**options) as server:
        assert severities(await examine(server.url)).items() >= expected.items()


@pytest.mark.parametrize("build", Build)
async def test_a_build_of_any_age_is_examined(build: Build) -> None:
    async with stub(build=build, slots=1) as server:
        await fetch(server, CHAT, chat(3, content="a secret of mine"))
        examined = await examine(server.url)
        assert examined.evidence.size == (1, 4096)
        has_text = build is not Build.NEW
        assert ("prompts-shown" in by_check(examined)) is has_text
        assert "secret" not in repr(examined)


async def test_old_health_without_a_free_slot_is_no_illness() -> None:
    async with stub(build=Build.OLD, slots=1) as server:
        caller = await call(server, CHAT, chat(4000))
        await caller.until(b"tok1 ")
        examined = await examine(server.url)
        assert "not-serving" not in by_check(examined)
        assert "gateway" not in by_check(examined)
        await caller.leave()


async def test_a_server_that_loads_is_left_alone() -> None:
    async with stub() as server:
        server.set_fault("loading")
        examined = await examine(server.url)
        assert severities(examined) == {"loading": "warning"}
        assert examined.status is ExitStatus.NOT_EXAMINED


# Sleep.


async def is_asleep(server: StubServer) -> bool:
    return b'"is_sleeping":true' in (await fetch(server, "/props"))[1]


@pytest.mark.parametrize(
    ("build_info", "asked"),
    [
        ("b11434-x", ["/health", "/v1/models", "/props", "/metrics"]),
        ("b10000-x", ["/health", "/v1/models", "/props"]),
        ("b0-unknown", ["/health", "/v1/models", "/props"]),
    ],
)
async def test_a_sleeping_server_is_left_asleep(build_info: str, asked: list[str]) -> None:
    async with stub(sleep_idle_seconds=0.05, build_info=build_info) as server:
        await wait_until(lambda: is_asleep(server))
        server.observed.asked.clear()
        wakes = server.observed.wakes
        examined = await examine(server.url, measures=True, is_forced=True)
        assert severities(examined)["sleeping"] == "note"
        assert only(examined, "speed").known_by == "nothing was asked: it sleeps"
        assert [path for path, _ in server.observed.asked] == asked
        assert server.observed.wakes == wakes
        assert server.observed.requests == 0


# Keys and prefixes.


async def test_a_key_is_used_where_it_is_wanted_and_never_shown() -> None:
    async with stub(api_keys=("sesame",)) as server:
        examined = await examine(server.url, key="sesame")
        assert severities(examined)["no-key"] == "ok"
        assert severities(examined)["slots-off"] == "ok"
        assert "sesame" not in repr(examined)
        answers = examined.evidence.answers
        assert (answers["/health"].without_key, answers["/health"].with_key) == (200, None)
        assert (answers["/slots"].without_key, answers["/slots"].with_key) == (401, 200)


async def test_slots_are_watched_with_the_key_that_they_wanted() -> None:
    async with stub(api_keys=("sesame",)) as server:
        caller = await call(server, CHAT, chat(4000), Authorization="Bearer sesame")
        await caller.until(b"tok1 ")
        examined = await examine(server.url, key="sesame")
        assert "all of them get on" in only(examined, "slot-stuck").found
        assert len(examined.evidence.looks) == 2
        await caller.leave()


async def test_without_a_key_only_its_want_is_found() -> None:
    async with stub(api_keys=("sesame",)) as server:
        without = await examine(server.url)
        assert severities(without) == {"key-needed": "error"}
        wrong = await examine(server.url, key="open")
        assert severities(wrong) == {"key-wrong": "error"}
        assert without.status is wrong.status is ExitStatus.NOT_EXAMINED
        assert times_of(server, "/slots") == []


async def test_a_prefix_is_part_of_the_address() -> None:
    async with stub(api_prefix="/llm", api_keys=("sesame",)) as server:
        examined = await examine(f"{server.url}/llm", key="sesame")
        assert severities(examined)["slots-off"] == "ok"
        elsewhere = await examine(server.url, key="sesame")
        assert severities(elsewhere)["other-make"] == "error"


async def test_the_address_that_openai_clients_have_is_understood() -> None:
    async with stub() as server:
        examined = await examine(f"{server.url}/v1/")
        assert examined.evidence.url == server.url
        assert severities(examined)["slots-off"] == "ok"


async def test_pages_of_any_origin_are_noticed() -> None:
    async with stub() as server:
        assert severities(await examine(server.url))["any-origin"] == "note"


async def test_several_servers_are_examined_side_by_side_and_each_once() -> None:
    async with stub() as left, stub(has_slots=False) as right:
        urls = [left.url, right.url, f"{left.url}/v1"]
        examined = await examine_all(urls, Examination())
        assert [each.evidence.url for each in examined] == [left.url, right.url]
        assert [each.status for each in examined] == [ExitStatus.GOOD, ExitStatus.WARNINGS]
        assert len(times_of(left, "/slots")) == 1
