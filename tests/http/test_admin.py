"""The operator's routes: what they show, what they do, and whom they turn away."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from slotgate.stub import StubOptions
from slotgate.wire.tables import TABLES
from tests.http.rig import CHAT, Rig, chat, gateway

pytestmark = pytest.mark.anyio

SLOW = StubOptions(decode=50, slots=1, ctx=1 << 16)
FAST = StubOptions(decode=0)
SECRET = "the words of a client"
OPERATOR, TENANT = "operator-key-0123456789", "tenant-key-0123456789"
KEYS: dict[str, Any] = {
    "admin_key_sha256": hashlib.sha256(OPERATOR.encode()).hexdigest(),
    "tenants": [
        {
            "name": "chat",
            "key_sha256": hashlib.sha256(TENANT.encode()).hexdigest(),
            "max_waiting": 9,
            "weight": 2,
        }
    ],
}


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + key.encode())]


async def hold(rig: Rig, verb: str, query: str = "") -> dict[str, Any]:
    answer = await rig.post(f"/-/backends/stub/{verb}{query}", None)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


async def rows(rig: Rig, table: str, key: str = "") -> list[dict[str, Any]]:
    answer = await rig.get(f"/-/{table}", bearer(key) if key else ())
    assert answer.status == 200
    found: list[dict[str, Any]] = answer.json()[table]
    return found


# What they show.


async def test_every_table_has_the_columns_that_are_declared_and_no_words_of_a_client() -> None:
    async with gateway(SLOW, **KEYS) as rig, asyncio.TaskGroup() as group:
        body = {**chat(10_000, stream=True), "messages": [{"role": "user", "content": SECRET}]}
        async with rig.open("POST", CHAT, body, bearer(TENANT)) as held:
            await held.open()
            waiting = group.create_task(rig.post(CHAT, {**body, "user": SECRET}, bearer(TENANT)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            for name, columns in TABLES.items():
                answer = await rig.get(f"/-/{name}", bearer(OPERATOR))
                found = answer.json()[name]
                assert found, name
                for row in found:
                    assert list(row) == [column.name for column in columns]
                assert SECRET.encode() not in answer.body
            answer = await rig.get("/-/snapshot", bearer(OPERATOR))
            assert answer.json()["waiting"][0]["ticket"]["tenant"] == "chat"
            assert SECRET.encode() not in answer.body
            [queued, running] = await rows(rig, "tickets", OPERATOR)
            assert (queued["state"], queued["position"], queued["tenant"]) == ("waiting", 1, "chat")
            assert 0 < queued["deadline_seconds"] <= 30
            assert (running["state"], running["backend"]) == ("running", "stub")
            [tenant] = await rows(rig, "tenants", OPERATOR)
            assert (tenant["in_flight"], tenant["waiting"], tenant["weight"]) == (1, 1, 2)
            [pool] = await rows(rig, "pools", OPERATOR)
            assert (pool["slots"], pool["running"], pool["waiting"]) == (1, 1, 1)
            assert pool["oldest_seconds"] >= 0
            waiting.cancel()


async def test_the_settings_in_force_are_shown_without_anything_secret() -> None:
    async with gateway(FAST, queue__max_waiting=7, **KEYS) as rig:
        answer = await rig.get("/-/config", bearer(OPERATOR))
        config = answer.json()["config"]
        assert config["queue"]["max_waiting"] == 7
        assert config["tenants"][0]["key_sha256"] == "(hidden)"
        for key in (OPERATOR, TENANT):
            assert hashlib.sha256(key.encode()).hexdigest().encode() not in answer.body


async def test_who_left_without_a_configuration_is_shown_with_what_it_still_has() -> None:
    async with gateway(SLOW, **KEYS) as rig:
        async with rig.open("POST", CHAT, chat(10_000, stream=True), bearer(TENANT)) as held:
            await held.open()
            rig.overrides["tenants"] = [{**KEYS["tenants"][0], "name": "other"}]
            assert (await rig.post("/-/reload", None, bearer(OPERATOR))).status == 200
            other, chat_row = await rows(rig, "tenants", OPERATOR)
            assert (other["name"], other["is_configured"]) == ("other", True)
            assert (chat_row["in_flight"], chat_row["is_configured"]) == (1, False)


# Holding backends.


async def test_newcomers_wait_for_a_paused_backend_and_what_runs_goes_on() -> None:
    async with gateway(StubOptions(decode=50, slots=2, ctx=1 << 16)) as rig:
        async with (
            rig.open("POST", CHAT, chat(10_000, stream=True)) as held,
            asyncio.TaskGroup() as group,
        ):
            await held.open()
            answer = await hold(rig, "pause")
            assert (answer["backend"]["state"], answer["backend"]["hold"]) == ("paused", "paused")
            assert answer == await hold(rig, "pause"), "once more changes nothing"
            waiting = group.create_task(rig.post(CHAT, chat(2)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            assert await held.read()
            assert (await rig.get("/ready")).status == 503
            assert (await rig.get("/ready")).json()["backends"]["stub"]["why"]
            assert (await hold(rig, "resume"))["backend"]["state"] == "ready"
            assert (await waiting).status == 200


@pytest.mark.parametrize(("verb", "code"), [("drain", "draining"), ("disable", "no_backend")])
async def test_newcomers_are_refused_what_is_drained_or_disabled(verb: str, code: str) -> None:
    async with gateway(FAST) as rig:
        await hold(rig, verb)
        refused = await rig.post(CHAT, chat())
        assert (refused.status, refused.code) == (503, code)
        assert "shutting down" not in refused.body.decode()
        page = (await rig.get("/metrics")).body.decode()
        assert 'slotgate_backend_held{backend="stub"} 1.0' in page
        await hold(rig, "enable")
        assert (await rig.post(CHAT, chat())).status == 200
        page = (await rig.get("/metrics")).body.decode()
        assert 'slotgate_backend_held{backend="stub"} 0.0' in page


async def test_a_drain_says_how_many_still_run_and_waits_until_none_does() -> None:
    async with gateway(StubOptions(decode=400, slots=2, ctx=1 << 16)) as rig:
        async with rig.open("POST", CHAT, chat(200, stream=True)) as held:
            await held.open()
            answer = await hold(rig, "drain")
            assert (answer["backend"]["running"], answer["is_empty"]) == (1, False)
            assert not (await hold(rig, "drain", "?wait=0.01"))["is_empty"]
            async with asyncio.TaskGroup() as group:
                drained = group.create_task(hold(rig, "drain", "?wait=600"))
                while data := await held.read():
                    last = data
            assert last.endswith(b"[DONE]\n\n")
            assert drained.result()["is_empty"]


async def test_nobody_waits_on_for_an_operator_who_has_left() -> None:
    async with gateway(SLOW) as rig:
        async with rig.open("POST", CHAT, chat(10_000, stream=True)) as held:
            await held.open()
            before = len(rig.app.driver.change_hooks)
            async with rig.open("POST", "/-/backends/stub/drain?wait=600") as asking:
                opening = asyncio.ensure_future(asking.open())
                while len(rig.app.driver.change_hooks) == before:
                    await asyncio.sleep(0)
                opening.cancel()
            while len(rig.app.driver.change_hooks) > before:
                await asyncio.sleep(0)


async def test_a_gateway_that_stops_waits_for_no_drain() -> None:
    async with gateway(SLOW) as rig, asyncio.TaskGroup() as group:
        async with rig.open("POST", CHAT, chat(10_000, stream=True)) as held:
            await held.open()
            before = len(rig.app.driver.change_hooks)
            drained = group.create_task(hold(rig, "drain", "?wait=600"))
            while len(rig.app.driver.change_hooks) == before:
                await asyncio.sleep(0)
            rig.app.driver.begin_draining()
            assert not (await drained)["is_empty"]


# Killing.


async def test_a_waiting_ticket_that_is_killed_is_refused_and_told_not_to_come_back() -> None:
    async with gateway(SLOW) as rig, asyncio.TaskGroup() as group:
        async with rig.open("POST", CHAT, chat(10_000, stream=True)) as held:
            await held.open()
            waiting = group.create_task(rig.post(CHAT, chat(2)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            ticket = (await rows(rig, "tickets"))[0]["id"]
            answer = await rig.post(f"/-/tickets/{ticket}/kill", None)
            assert answer.json()["ticket"]["state"] == "waiting"
            refused = await waiting
            assert (refused.status, refused.code) == (503, "killed")
            assert refused.headers["x-should-retry"] == "false"
            assert "retry-after" not in refused.headers
            assert rig.counts.waiting == 0


EVENTS = {
    CHAT: b"data: ",
    "/completion": b"data: ",
    "/v1/messages": b"event: error\ndata: ",
    "/v1/responses": b"event: error\ndata: ",
}


@pytest.mark.parametrize("path", EVENTS)
async def test_a_stream_that_is_killed_ends_with_one_error_event_of_its_route(path: str) -> None:
    async with gateway(SLOW) as rig:
        body = chat(10_000, stream=True) | {"prompt": "hello", "input": "hello"}
        async with rig.open("POST", path, body) as held:
            await held.open()
            received = await held.read()
            [ticket] = await rows(rig, "tickets")
            assert (await rig.post(f"/-/tickets/{ticket['id']}/kill", None)).status == 200
            while data := await held.read():
                received += data
        last = received.rstrip().rpartition(b"\n\n")[2]
        assert last.startswith(EVENTS[path])
        assert sum(b"killed: " in frame for frame in received.split(b"\n\n")) == 1
        await rig.wait_until(lambda counts: counts.processing == 0)
        page = (await rig.get("/metrics")).body.decode()
        assert f'slotgate_requests_total{{outcome="killed",route="{path}"}} 1.0' in page


async def test_a_request_that_is_killed_before_its_first_byte_gets_a_status() -> None:
    async with gateway(SLOW) as rig, asyncio.TaskGroup() as group:
        running = group.create_task(rig.post(CHAT, chat(10_000)))
        await rig.wait_until(lambda counts: counts.processing == 1)
        [ticket] = await rows(rig, "tickets")
        path = f"/-/tickets/{ticket['id']}/kill"
        assert (await rig.post(path, None)).status == 200
        assert (await running).code == "killed"
        again = await rig.post(path, None)
        assert (again.status, again.code) == (404, "not_found")


# Whom they turn away.


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/-/backends/nope/pause", 404, "there are: stub"),
        ("POST", "/-/backends/stub/explode", 404, "explode"),
        ("POST", "/-/backends/stub", 404, "stub"),
        ("GET", "/-/nothing", 404, "nothing"),
        ("POST", "/-/tickets/none/kill", 404, "none"),
        ("GET", "/-/backends/stub/pause", 405, "POST"),
        ("DELETE", "/-/tickets", 405, "GET"),
        ("GET", "/-/reload", 405, "POST"),
        ("POST", "/-/config", 405, "GET"),
        ("POST", "/-/snapshot", 405, "GET"),
        ("POST", "/-/backends/stub/drain?wait=soon", 400, "seconds"),
        ("POST", "/-/backends/stub/drain?wait=-1", 400, "seconds"),
        ("POST", "/-/backends/stub/drain?wait=nan", 400, "seconds"),
    ],
)
async def test_what_there_is_not_is_said(method: str, path: str, status: int, words: str) -> None:
    async with gateway(FAST) as rig:
        answer = await rig.ask(method, path)
        assert answer.status == status
        assert words in answer.json()["error"]["message"]
        assert ("allow" in answer.headers) is (status == 405)
        assert (await rig.post(CHAT, chat())).status == 200, "nothing was done"


async def test_resume_does_not_undo_a_disable_and_says_what_does() -> None:
    async with gateway(FAST) as rig:
        await hold(rig, "disable")
        answer = await rig.post("/-/backends/stub/resume", None)
        assert (answer.status, answer.code) == (409, "conflict")
        assert "enable" in answer.json()["error"]["message"]


PAUSE = "/-/backends/stub/pause"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"content-type", b"text/plain")], 415),
        ([(b"content-type", b"application/x-www-form-urlencoded")], 415),
        ([(b"content-type", b"Application/JSON; charset=utf-8")], 200),
        ([(b"origin", b"https://evil.example")], 403),
        ([(b"origin", b"null")], 403),
        ([(b"sec-fetch-site", b"cross-site")], 403),
        ([(b"sec-fetch-site", b"same-site")], 403),
        ([(b"sec-fetch-site", b"same-origin")], 200),
    ],
)
async def test_a_web_page_of_another_origin_changes_nothing(
    headers: list[tuple[bytes, bytes]], status: int
) -> None:
    async with gateway(FAST) as rig:
        answer = await rig.ask("POST", PAUSE, None, headers)
        assert answer.status == status
        assert "access-control-allow-origin" not in answer.headers
        [backend] = await rows(rig, "backends")
        assert (backend["hold"] == "paused") is (status == 200)


async def test_a_page_of_our_own_may() -> None:
    async with gateway(FAST) as rig:
        origin = f"http://127.0.0.1:{rig.port}".encode()
        assert (await rig.ask("POST", PAUSE, None, [(b"origin", origin)])).status == 200


async def raw(port: int, head: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [*head.split("\n"), "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:8080", b"403"),
        ("localhost", b"200"),
        ("[::1]:8080", b"200"),
        ("127.0.0.1", b"200"),
        ("127.evil.example", b"403"),
    ],
)
async def test_without_a_key_nobody_comes_by_a_name_that_others_point_here(
    host: str, status: bytes
) -> None:
    async with gateway(FAST) as rig:
        answer = await raw(rig.port, f"GET /-/backends HTTP/1.1\nHost: {host}")
        assert answer.split()[1] == status


async def test_with_a_key_any_name_does() -> None:
    async with gateway(FAST, **KEYS) as rig:
        head = f"GET /-/backends HTTP/1.1\nHost: gateway.example\nx-api-key: {OPERATOR}"
        assert (await raw(rig.port, head)).split()[1] == b"200"


async def test_only_the_operators_key_opens_them() -> None:
    async with gateway(FAST, **KEYS) as rig:
        for path in (*TABLES, "config", "snapshot"):
            for headers in ([], bearer(TENANT)):
                assert (await rig.get(f"/-/{path}", headers)).status == 401
            assert (await rig.get(f"/-/{path}", bearer(OPERATOR))).status == 200
        for headers in ([], bearer(TENANT)):
            assert (await rig.ask("POST", PAUSE, None, headers)).status == 401
        assert (await rig.ask("POST", PAUSE, None, bearer(OPERATOR))).status == 200


async def test_a_preflight_allows_nothing_there() -> None:
    async with gateway(FAST) as rig:
        answer = await rig.ask("OPTIONS", PAUSE)
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_body_of_json_may_be_sent_and_says_nothing() -> None:
    async with gateway(FAST) as rig:
        assert (await rig.post(PAUSE, {"any": "thing"})).status == 200
        too_long = json.dumps({"long": "x" * 100_000}).encode()
        assert (await rig.post(PAUSE, too_long)).status == 413
