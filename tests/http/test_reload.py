"""A configuration that changes while requests wait and run: all that can, at once, and no loss."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.stub import StubOptions, StubServer
from tests.http.rig import CHAT, Answer, Rig, chat, free_port, gateway, gateway_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slotgate.net.exchange import Exchange

pytestmark = pytest.mark.anyio

SLOW = StubOptions(decode=100, slots=1, ctx=1 << 16)
FAST = StubOptions(decode=0)
ENDLESS = chat(10_000, stream=True)
KEY, OTHER_KEY = "a-tenants-key-0123456789", "its-next-key-0123456789"


def tenant(name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "key_sha256": hashlib.sha256(key.encode()).hexdigest(), **more}


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + key.encode())]


def backend(name: str, server: StubServer, **more: Any) -> dict[str, Any]:
    return {"name": name, "url": server.url, **more}


@contextlib.asynccontextmanager
async def stub(options: StubOptions = FAST) -> AsyncIterator[StubServer]:
    async with StubServer(replace(options, port=free_port())) as server:
        yield server


async def reload(rig: Rig, **overrides: Any) -> dict[str, Any]:
    """Reload with other settings; those in force before are kept where they are not named."""
    rig.overrides.update({key.replace("__", "."): value for key, value in overrides.items()})
    answer = await rig.post("/-/reload", None)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


async def states(rig: Rig) -> dict[str, str]:
    found = (await rig.get("/-/backends")).json()["backends"]
    return {row["name"]: row["hold"] or row["state"] for row in found}


async def wait_states(rig: Rig, **wanted: str) -> None:
    """Wait until the backends are as wanted, and there are no others."""
    async with asyncio.timeout(20):
        while await states(rig) != wanted:
            await asyncio.sleep(0)


async def rest_of(exchange: Exchange) -> bytes:
    received = b""
    while data := await exchange.read():
        received += data
    return received


# Backends.


async def test_a_backend_that_is_added_serves_who_waits() -> None:
    async with stub(SLOW) as left, stub() as right:
        async with gateway_at("", backends=[backend("left", left)]) as rig:
            async with rig.open("POST", CHAT, ENDLESS) as held, asyncio.TaskGroup() as group:
                await held.open()
                waiting = group.create_task(rig.post(CHAT, chat(2)))
                await rig.wait_until(lambda counts: counts.waiting == 1)
                both = [backend("left", left), backend("right", right)]
                answer = await reload(rig, backends=both)
                assert answer["result"] == "applied"
                assert answer["backends"] == {"added": ["right"], "changed": [], "removed": []}
                assert (await waiting).headers["x-slotgate-backend"] == "right"
                assert await held.read()


async def test_newcomers_wait_for_an_added_backend_of_a_new_model_until_it_was_looked_at() -> None:
    async with stub() as left, stub() as right:
        async with gateway_at("", backends=[backend("left", left)]) as rig:
            right.set_fault("loading")
            both = [backend("left", left), backend("right", right, alias="new")]
            await reload(rig, backends=both)
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(rig.post(CHAT, chat(2, model="new")))
                await rig.wait_until(lambda counts: counts.waiting == 1)
                right.clear_faults()
                rig.app.fleet.probes["right"].poke()
                assert (await waiting).status == 200


async def test_a_removed_backend_ends_what_runs_and_then_is_gone() -> None:
    async with stub(SLOW) as left, stub() as right:
        both = [backend("left", left), backend("right", right)]
        async with gateway_at("", backends=both) as rig:
            # To the one with most slots free, unless that is held.
            await rig.post("/-/backends/right/pause", None)
            async with rig.open("POST", CHAT, chat(400, stream=True)) as held:
                await held.open()
                answer = await reload(rig, backends=[both[1]])
                assert answer["backends"]["removed"] == ["left"]
                assert await states(rig) == {"left": "removed", "right": "paused"}
                refused = await rig.post("/-/backends/left/enable", None)
                assert (refused.status, refused.code) == (409, "conflict")
                await rig.post("/-/backends/right/enable", None)
                again = await rig.post(CHAT, chat(2))
                assert again.headers["x-slotgate-backend"] == "right"
                assert (await rest_of(held)).endswith(b"[DONE]\n\n")
            await wait_states(rig, right="ready")
            assert "left" not in rig.app.fleet.probes
            assert b'backend="left",state' not in (await rig.get("/metrics")).body


async def test_who_waits_for_a_model_whose_last_backend_goes_is_told_its_name() -> None:
    async with stub(SLOW) as left, stub() as right:
        both = [backend("left", left, alias="old"), backend("right", right, alias="new")]
        async with gateway_at("", backends=both) as rig, asyncio.TaskGroup() as group:
            async with rig.open("POST", CHAT, {**ENDLESS, "model": "old"}) as held:
                await held.open()
                waiting = group.create_task(rig.post(CHAT, chat(2, model="old")))
                await rig.wait_until(lambda counts: counts.waiting == 1)
                await reload(rig, backends=[both[1]])
                refused = await waiting
                assert (refused.status, refused.code) == (404, "model_not_found")
                assert "'old'" in refused.json()["error"]["message"]
                assert await held.read()


async def test_a_backend_that_comes_back_before_it_has_gone_is_the_same() -> None:
    async with stub(SLOW) as left, stub() as right:
        both = [backend("left", left), backend("right", right)]
        async with gateway_at("", backends=both) as rig:
            await rig.post("/-/backends/right/pause", None)
            async with rig.open("POST", CHAT, ENDLESS) as held:
                await held.open()
                await reload(rig, backends=[both[1]])
                await reload(rig, backends=both)
                await wait_states(rig, left="ready", right="paused")
                rows = (await rig.get("/-/backends")).json()["backends"]
                assert {row["name"]: row["running"] for row in rows} == {"left": 1, "right": 0}
                assert rig.counts.processing == 1
                assert await held.read()
            await rig.wait_until(lambda counts: counts.processing == 0)
            assert (await rig.post(CHAT, chat(2))).headers["x-slotgate-backend"] == "left"


async def test_a_backend_that_moves_keeps_its_streams_and_sends_newcomers_to_the_new_place() -> (
    None
):
    async with stub(StubOptions(decode=100, slots=2, ctx=1 << 16)) as old, stub() as new:
        async with gateway_at("", backends=[backend("left", old)]) as rig:
            async with rig.open("POST", CHAT, chat(30, stream=True)) as held:
                await held.open()
                answer = await reload(rig, backends=[backend("left", new)])
                assert answer["backends"]["changed"] == ["left"]
                assert (await rig.post(CHAT, chat(2))).status == 200
                assert (await rest_of(held)).endswith(b"[DONE]\n\n")
        assert len(old.observed.records) == len(new.observed.records) == 1


async def test_a_wide_request_waits_for_a_backend_that_moves() -> None:
    wide = StubOptions(decode=100, slots=2, ctx=1 << 16)
    async with stub(wide) as old, stub(wide) as new:
        async with (
            gateway_at("", backends=[backend("left", old)]) as rig,
            asyncio.TaskGroup() as group,
        ):
            await rig.post("/-/backends/left/pause", None)
            waiting = group.create_task(rig.post(CHAT, chat(2, n=2)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            await reload(rig, backends=[backend("left", new)])
            await rig.post("/-/backends/left/resume", None)
            assert (await waiting).status == 200


async def test_a_backends_slots_and_key_change_beneath_its_streams(tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    options = StubOptions(decode=100, slots=2, ctx=1 << 16)
    async with stub(options) as server:
        async with gateway_at("", backends=[backend("left", server)]) as rig:
            async with rig.open("POST", CHAT, ENDLESS) as held:
                await held.open()
                changed = backend("left", server, slots=1, api_key_file=str(key))
                await reload(rig, backends=[changed])
                await rig.wait_until(lambda counts: counts.slots == 1)
                assert await held.read()
                key.write_text(OTHER_KEY)
                # The same words in the file, another key behind them.
                assert (await reload(rig))["backends"]["changed"] == ["left"]
            await rig.wait_until(lambda counts: counts.processing == 0)
            assert (await rig.post(CHAT, chat(2))).status == 200
        headers = dict(server.observed.records[-1].headers)
        assert headers["authorization"] == f"Bearer {OTHER_KEY}"


async def test_a_backend_takes_another_name_for_its_model() -> None:
    async with stub() as server, stub() as other:
        far = backend("far", other, alias="far")
        before = [backend("left", server, alias="old"), far]
        async with gateway_at("", backends=before) as rig:
            await reload(rig, backends=[backend("left", server, alias="new"), far])
            assert (await rig.post(CHAT, chat(2, model="new"))).status == 200
            assert (await rig.post(CHAT, chat(2, model="old"))).code == "model_not_found"


async def test_what_the_operator_holds_stays_held() -> None:
    async with gateway(FAST) as rig:
        await rig.post("/-/backends/stub/drain", None)
        url = rig.overrides["backends"][0]["url"]
        await reload(rig, backends=[{"name": "stub", "url": url, "timeouts": {"connect": "1s"}}])
        assert await states(rig) == {"stub": "draining"}


# Tenants and numbers.


async def test_a_key_that_is_taken_away_ends_no_stream_and_begins_none() -> None:
    both = [tenant("chat", KEY), tenant("night", OTHER_KEY)]
    options = StubOptions(decode=100, slots=2, ctx=1 << 16)
    async with gateway(options, tenants=both, admin_key_sha256=ADMIN) as rig:
        async with rig.open("POST", CHAT, chat(30, stream=True), bearer(KEY)) as held:
            await held.open()
            rig.overrides["tenants"] = [both[1]]
            answer = (await rig.post("/-/reload", None, bearer(ADMIN_KEY))).json()
            assert answer["tenants"] == {"added": [], "changed": [], "removed": ["chat"]}
            assert (await rig.post(CHAT, chat(2), bearer(KEY))).status == 401
            assert (await rig.post(CHAT, chat(2), bearer(OTHER_KEY))).status == 200
            assert (await rest_of(held)).endswith(b"[DONE]\n\n")


ADMIN_KEY = "operator-key-0123456789"
ADMIN = hashlib.sha256(ADMIN_KEY.encode()).hexdigest()


async def test_tenants_come_and_change_and_are_counted_by_their_names() -> None:
    async with gateway(FAST, tenants=[tenant("chat", KEY)], admin_key_sha256=ADMIN) as rig:
        rig.overrides["tenants"] = [tenant("chat", OTHER_KEY, max_waiting=0), tenant("new", KEY)]
        answer = (await rig.post("/-/reload", None, bearer(ADMIN_KEY))).json()
        assert answer["tenants"] == {"added": ["new"], "changed": ["chat"], "removed": []}
        await rig.post(CHAT, chat(2), bearer(KEY))
        page = (await rig.get("/metrics", bearer(KEY))).body.decode()
        assert 'slotgate_tenant_requests_total{outcome="served",tenant="new"} 1.0' in page
        assert 'slotgate_reloads_total{outcome="applied"} 1.0' in page


async def test_a_cap_that_is_lifted_lets_run_who_waited_for_it() -> None:
    capped = [tenant("chat", KEY, max_in_flight=1)]
    options = StubOptions(decode=100, slots=2, ctx=1 << 16)
    async with gateway(options, tenants=capped, admin_key_sha256=ADMIN) as rig:
        async with (
            rig.open("POST", CHAT, ENDLESS, bearer(KEY)) as held,
            asyncio.TaskGroup() as group,
        ):
            await held.open()
            waiting = group.create_task(rig.post(CHAT, chat(2), bearer(KEY)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            rig.overrides["tenants"] = [tenant("chat", KEY)]
            await rig.post("/-/reload", None, bearer(ADMIN_KEY))
            assert (await waiting).status == 200


async def test_the_operators_key_changes_at_once() -> None:
    async with gateway(FAST, admin_key_sha256=ADMIN) as rig:
        rig.overrides["admin_key_sha256"] = hashlib.sha256(KEY.encode()).hexdigest()
        answer = (await rig.post("/-/reload", None, bearer(ADMIN_KEY))).json()
        assert answer["settings"] == ["admin_key"]
        assert (await rig.post("/-/reload", None, bearer(ADMIN_KEY))).status == 401
        assert (await rig.post("/-/reload", None, bearer(KEY))).json()["result"] == "unchanged"


async def test_bounds_and_budgets_hold_from_the_next_request_on() -> None:
    async with gateway(SLOW) as rig, asyncio.TaskGroup() as group:
        async with rig.open("POST", CHAT, ENDLESS) as held:
            await held.open()
            waiting = group.create_task(rig.post(CHAT, chat(2)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            answer = await reload(rig, queue__max_waiting=1, limits__max_body_bytes="1KiB")
            assert answer["settings"] == ["queue.max_waiting", "limits.max_body_bytes"]
            assert (await rig.post(CHAT, chat())).code == "queue_full"
            assert (await rig.post(CHAT, chat(user="x" * 2000))).status == 413
            await reload(rig, queue__max_waiting=9, classes__standard__budget="100ms")
            late = await rig.post(CHAT, chat())
            assert late.code in {"queue_timeout", "wait_too_long"}
            assert "0.1 s" in late.json()["error"]["message"]
            assert rig.counts.waiting == 1
        assert (await waiting).status == 200


async def test_the_head_of_a_request_is_bounded_by_the_new_number_on_old_connections_too() -> None:
    async with gateway(FAST, limits__max_head_bytes="1KiB") as rig:
        await reload(rig, limits__max_head_bytes="8KiB")
        assert (await rig.get("/health", [(b"x-long", b"x" * 4000)])).status == 200


# What stays.


async def test_what_only_a_restart_changes_is_said_and_keeps_its_value() -> None:
    async with gateway(FAST) as rig:
        answer = await reload(
            rig, listen="127.0.0.1:1", probe_interval="2s", limits__idle_timeout="1s"
        )
        assert answer["result"] == "unchanged"
        assert answer["needs_restart"] == ["listen", "limits.idle_timeout", "probe_interval"]
        config = (await rig.get("/-/config")).json()["config"]
        assert (config["listen"], config["probe_interval"]) == ("127.0.0.1:8080", "1.2s")
        assert (await reload(rig))["needs_restart"] == answer["needs_restart"], "and said again"


async def failed(rig: Rig) -> Answer:
    answer = await rig.post("/-/reload", None)
    page = (await rig.get("/metrics")).body.decode()
    assert 'slotgate_reloads_total{outcome="failed"} 1.0' in page
    return answer


async def test_a_file_with_faults_changes_nothing_and_all_are_named() -> None:
    async with gateway(FAST) as rig:
        rig.overrides["queue.max_waiting"] = -1
        rig.overrides["backends"] = [{"name": "new", "url": "nonsense"}]
        answer = await failed(rig)
        assert (answer.status, answer.code) == (422, "invalid_config")
        message = answer.json()["error"]["message"]
        assert "max_waiting" in message
        assert "url" in message
        assert await states(rig) == {"stub": "ready"}
        assert rig.app.operator.settings.queue.max_waiting == 512


async def test_keys_are_not_taken_away_from_an_address_that_others_still_reach() -> None:
    tenants = [tenant("chat", KEY)]
    settings: dict[str, Any] = {
        "tenants": tenants,
        "admin_key_sha256": ADMIN,
        "listen": "0.0.0.0:0",
    }
    async with gateway(FAST, **settings) as rig:
        rig.overrides |= {"listen": "127.0.0.1:0", "tenants": []}
        answer = await rig.post("/-/reload", None, bearer(ADMIN_KEY))
        assert (answer.status, answer.code) == (422, "invalid_config")
        assert "restart" in answer.json()["error"]["message"]
        assert (await rig.post(CHAT, chat(2))).status == 401


async def test_a_gateway_that_stops_reloads_nothing() -> None:
    async with gateway(FAST) as rig:
        rig.app.driver.begin_draining()
        answer = await failed(rig)
        assert (answer.status, answer.code) == (409, "conflict")


# Restarts of backends that others started.


async def test_newcomers_wait_for_a_backend_that_is_being_restarted() -> None:
    async with gateway(FAST) as rig, asyncio.TaskGroup() as group:
        await rig.stub.stop()
        await rig.app.fleet.probes["stub"].look()
        waiting = [group.create_task(rig.post(CHAT, chat(2))) for _ in range(3)]
        await rig.wait_until(lambda counts: counts.waiting == 3)
        [row] = (await rig.get("/-/backends")).json()["backends"]
        assert row["state"] == "down"
        assert 0 < row["expected_seconds"] <= 10
        await rig.stub.start()
        rig.app.fleet.probes["stub"].poke()
        assert [(await task).status for task in waiting] == [200] * 3
