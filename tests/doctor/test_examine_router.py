"""A router: itself, and those of its models that can be asked without loading or waking one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.doctor.evidence import Make
from slotgate.doctor.examine import Examination, examine_all
from slotgate.doctor.judge import ExitStatus, status_of
from slotgate.doctor.stated import Stated, parse_flags
from tests.doctor.examining import by_check, only, severities
from tests.doctor.pages import serving
from tests.http.fake_router import FakeRouter, fake_router
from tests.net.scripted import plain

if TYPE_CHECKING:
    from slotgate.doctor.judge import Examined
    from tests.net.scripted import Peer

pytestmark = [pytest.mark.anyio, pytest.mark.process]


async def examined(router: FakeRouter, **how: Any) -> list[Examined]:
    return await examine_all([router.url], Examination(timeout=2.0, watch_seconds=2.5, **how))


async def test_each_model_that_is_loaded_is_examined_by_its_name() -> None:
    async with fake_router("a", "b", "c", max_instances=2) as router:
        router.status |= {"a": "loaded", "c": "loaded"}
        server, *models = await examined(router)
        assert (server.evidence.make, server.evidence.model) == (Make.ROUTER, None)
        assert [each.evidence.name for each in models] == [
            f"{router.url}, model a",
            f"{router.url}, model c",
        ]
        assert all(each.evidence.size == (2, 512) for each in models)
        assert all("slot-stuck" in by_check(each) for each in models)


async def test_no_model_is_loaded_or_woken_by_it() -> None:
    async with fake_router("a", "b", "c", max_instances=2) as router:
        router.status |= {"a": "loaded", "b": "sleeping"}
        before = dict(router.status)
        await examined(router, measures=True, is_forced=True)
        assert router.status == before
        asked = [line for line in router.asked if "model=" in line]
        assert asked
        assert all("model=a&autoload=false" in line for line in asked)


async def test_a_router_without_a_loaded_model_is_examined_alone() -> None:
    async with fake_router("a", "b") as router:
        (server,) = await examined(router)
        assert str(only(server, "router").severity) == "note"
        assert "a (unloaded), b (unloaded)" in only(server, "router").found


async def test_what_holds_for_the_router_is_not_told_of_each_model() -> None:
    async with fake_router("a") as router:
        router.status["a"] = "loaded"
        server, model = await examined(router)
        assert "no-key" in severities(server)
        assert not {"no-key", "any-origin", "router", "build-unknown", "other-make"} & set(
            severities(model)
        )


async def test_the_flags_of_a_model_are_those_that_its_router_tells() -> None:
    async with fake_router("a") as router:
        router.status["a"] = "loaded"
        stated = Stated(flags=parse_flags("--models-max 2 -np 9 -kvu"))
        _, model = await examined(router, stated=stated)
        assert model.evidence.flags is not None
        assert (model.evidence.flags.ctx_size, model.evidence.flags.parallel) == (1024, 2)
        finding = only(model, "context-overcommitted")
        assert str(finding.severity) == "ok"
        assert "GET /v1/models: status.args" in finding.known_by


async def test_a_model_that_is_measured_gets_requests_of_its_own() -> None:
    async with fake_router("a") as router:
        router.status["a"] = "loaded"
        _, model = await examined(router, measures=True)
        assert model.evidence.measured is not None
        assert router.bodies
        assert all(body["model"] == "a" for body in router.bodies)


def router_with(**child: tuple[int, Any]) -> Any:
    """A router whose one model is loaded, and answers so."""
    props = {"role": "router", "default_generation_settings": {"n_ctx": 0}}
    listed = {"data": [{"id": "m/x y", "status": {"value": "loaded"}}]}
    own = {"/health": {"status": "ok"}, "/props": props, "/v1/models": listed}

    async def play(peer: Peer) -> None:
        while True:
            path, _, query = (await peer.read_request()).split(b" ")[1].decode().partition("?")
            status, body = (200, own.get(path)) if not query else child.get(path[1:], (501, {}))
            if query:
                assert query == "model=m%2Fx+y&autoload=false"
            if status == 0:
                await peer.wait_closed_by_client()
                return
            await peer.send(plain(json.dumps(body).encode(), status=b"%d X" % status))

    return play


async def test_a_model_that_was_unloaded_meanwhile_is_left_out() -> None:
    async with serving(router_with(props=(400, {"error": {"message": "not loaded"}}))) as server:
        (alone,) = await examine_all([server.url], Examination(timeout=2.0))
        assert alone.evidence.make is Make.ROUTER


async def test_a_model_whose_server_is_frozen_is_told() -> None:
    async with serving(router_with(props=(0, None))) as server:
        router, model = await examine_all([server.url], Examination(timeout=0.3))
        assert severities(model) == {"silent": "error"}
        assert only(model, "silent").known_by.startswith("GET /props: no answer within 0.3 s")
        assert status_of([router, model]) is ExitStatus.NOT_EXAMINED


async def test_a_model_whose_server_died_is_told() -> None:
    async with serving(router_with(props=(500, {}))) as server:
        _, model = await examine_all([server.url], Examination(timeout=2.0))
        assert severities(model) == {"not-serving": "error"}


async def test_a_model_whose_slots_hang_is_wedged() -> None:
    props = {"total_slots": 2, "build_info": "b11434-x"}
    async with serving(router_with(props=(200, props), slots=(0, None))) as server:
        _, model = await examine_all([server.url], Examination(timeout=0.3))
        assert severities(model)["wedged"] == "error"
        assert only(model, "wedged").known_by.startswith("GET /props: 200; GET /slots: no answer")
