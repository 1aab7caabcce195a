"""A llama-server in router mode: each of its models is a backend of its own, and has its turn."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.core.deployment import State
from slotgate.stub import StubOptions, StubServer
from tests.http.fake_router import FakeRouter, fake_router
from tests.http.rig import CHAT, PATIENCE_SECONDS, Rig, chat, gateway_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.http.rig import Answer

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def routed(
    *models: str,
    max_instances: int = 1,
    others: tuple[dict[str, Any], ...] = (),
    told: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Rig, FakeRouter]]:
    """A gateway in front of a router, and maybe of others."""
    async with fake_router(*models, max_instances=max_instances, aliases=told) as router:
        backends = [{"name": "router", "url": router.url, **settings}, *others]
        async with gateway_at("", backends=backends) as rig:
            yield rig, router


async def served_by(rig: Rig, model: str) -> str:
    answer = await rig.post(CHAT, chat(model=model))
    assert answer.status == 200, answer.body
    return answer.headers["x-slotgate-backend"]


async def eventually(rig: Rig, condition: Callable[[], bool]) -> None:
    """Wait until the probes have seen something."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await rig.app.driver.wait_until(condition)


def states(rig: Rig) -> dict[str, State]:
    return rig.app.driver.states()


async def test_each_model_of_a_router_is_a_backend_with_its_own_slots() -> None:
    async with routed("alpha", "beta") as (rig, router):
        assert states(rig) == {"router/alpha": State.READY, "router/beta": State.READY}
        assert {name: probe.slot_count for name, probe in rig.app.fleet.probes.items()} == {
            "router/alpha": 2,
            "router/beta": 2,
        }
        for name in ("alpha", "beta"):
            assert await served_by(rig, name) == f"router/{name}"
        assert [body["model"] for body in router.bodies] == ["alpha", "beta"]
        unknown = await rig.post(CHAT, chat(model="gpt-4"))
        assert (unknown.status, unknown.code) == (404, "model_not_found")


async def test_watching_loads_nothing_and_wakes_nothing() -> None:
    async with routed("alpha", "beta", "gamma", max_instances=0) as (_, router):
        router.status |= {"beta": "sleeping", "gamma": "loaded"}
        await router.until(lambda: any("gamma" in line for line in router.asked))
        seen = len(router.asked)
        await router.until(lambda: len(router.asked) > seen + 5)
        asked = [line for line in router.asked if "?" in line]
        assert all("model=gamma" in line and "autoload=false" in line for line in asked)
        assert router.status == {"alpha": "unloaded", "beta": "sleeping", "gamma": "loaded"}
        assert router.loads == []


async def test_a_loaded_model_tells_its_slots_and_context() -> None:
    async with routed("alpha", "beta") as (rig, router):
        router.slots = 3
        await served_by(rig, "alpha")
        await eventually(rig, lambda: rig.app.fleet.probes["router/alpha"].slot_count == 3)
        assert rig.app.fleet.largest_context("") == 512


async def test_a_model_waits_until_the_one_that_must_go_for_it_is_idle() -> None:
    async with routed("alpha", "beta") as (rig, router), asyncio.TaskGroup() as group:
        router.may_answer.clear()
        first = group.create_task(served_by(rig, "alpha"))
        await rig.wait_until(lambda counts: counts.processing == 1)
        second = group.create_task(served_by(rig, "beta"))
        await rig.wait_until(lambda counts: counts.waiting == 1)
        router.may_answer.set()
        assert (await first, await second) == ("router/alpha", "router/beta")
        assert (router.loads, router.delayed) == (["alpha", "beta"], [])


async def test_many_clients_of_more_models_than_fit_are_all_served_with_few_loads() -> None:
    async with routed("alpha", "beta", "gamma") as (rig, router), asyncio.TaskGroup() as group:
        names = ["alpha", "beta", "gamma"] * 10
        found = [group.create_task(served_by(rig, name)) for name in names]
        for name, task in zip(names, found, strict=True):
            assert await task == f"router/{name}"
        assert router.delayed == []
        assert len(router.loads) <= 6


async def test_where_all_models_fit_nobody_waits() -> None:
    async with routed("alpha", "beta", max_instances=4) as (rig, router):
        router.may_answer.clear()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(served_by(rig, name)) for name in ("alpha", "beta")]
            await rig.wait_until(lambda counts: counts.processing == 2)
            router.may_answer.set()
        assert [task.result() for task in tasks] == ["router/alpha", "router/beta"]


async def test_who_waits_for_a_turn_is_refused_at_its_deadline() -> None:
    async with routed("alpha", "beta") as (rig, router), asyncio.TaskGroup() as group:
        router.may_answer.clear()
        first = group.create_task(served_by(rig, "alpha"))
        await rig.wait_until(lambda counts: counts.processing == 1)
        hasty = [(b"x-slotgate-deadline-ms", b"50")]
        late = await rig.post(CHAT, chat(model="beta"), hasty)
        assert (late.status, late.code) == (429, "queue_timeout")
        assert int(late.headers["retry-after"]) >= 1
        router.may_answer.set()
        assert await first == "router/alpha"


# Names.


async def test_an_alias_of_ours_is_written_as_the_name_that_the_router_knows() -> None:
    models = [{"id": "alpha", "alias": "fast", "aliases": ["cheap"]}]
    async with routed("alpha", "beta", models=models) as (rig, router):
        for name in ("fast", "cheap", "alpha"):
            assert await served_by(rig, name) == "router/alpha"
        assert [body["model"] for body in router.bodies] == ["alpha"] * 3
        assert router.bodies[0]["messages"] == chat()["messages"]


async def test_the_names_of_a_router_with_one_model_are_its_models() -> None:
    async with routed("alpha", alias="fast", aliases=["cheap"]) as (rig, router):
        for name in ("fast", "cheap", "whatever"):
            assert await served_by(rig, name) == "router/alpha"
        assert await served_by(rig, "alpha") == "router/alpha"
        assert {body["model"] for body in router.bodies} == {"alpha"}


async def test_a_name_that_the_router_knows_stays_as_it_is() -> None:
    async with routed("alpha", "beta", told={"quick": "alpha"}) as (rig, router):
        assert await served_by(rig, "quick") == "router/alpha"
        assert [body["model"] for body in router.bodies] == ["quick"]


async def test_a_model_of_a_router_and_a_server_of_that_name_share_a_pool() -> None:
    async with StubServer(StubOptions(decode=0, model="alpha", slots=1)) as stub:
        others = ({"name": "plain", "url": stub.url},)
        async with routed("alpha", "beta", others=others) as (rig, _):
            snapshot = rig.app.driver.snapshot()
            models = {view.id: view.model for view in snapshot.deployments}
            assert models["plain"] == models["router/alpha"] != models["router/beta"]


async def test_all_models_of_a_router_are_listed_beside_those_of_others() -> None:
    async with StubServer(StubOptions(decode=0, model="qwen")) as stub:
        others = ({"name": "plain", "url": stub.url},)
        async with routed("alpha", "beta", others=others) as (rig, _):
            listed = (await rig.get("/v1/models")).json()["data"]
            assert [model["id"] for model in listed] == ["alpha", "beta", "qwen"]
            assert [model.get("status", {}).get("value") for model in listed[:2]] == [
                "unloaded",
                "unloaded",
            ]
            found = [await served_by(rig, model["id"]) for model in listed]
            assert found == ["router/alpha", "router/beta", "plain"]


# What takes no slot.


async def test_what_takes_no_slot_loads_nothing() -> None:
    async with routed("alpha", "beta") as (rig, router):
        refused = await rig.post("/tokenize", {"model": "beta", "content": "x"})
        assert (refused.status, router.loads) == (400, [])
        await served_by(rig, "beta")
        for strange in ({"content": "x"}, {"model": "gpt-4", "content": "x"}):
            assert (await rig.post("/tokenize", strange)).status == 400
        counted = await rig.post("/tokenize", {"model": "beta", "content": "x"})
        assert counted.json() == {"tokens": [0, 1, 2]}
        props = await rig.get("/props?model=beta")
        assert props.json()["total_slots"] == 2
        assert router.loads == ["beta"]


async def test_slots_are_shown_without_waiting_for_models_that_are_not_there() -> None:
    async with routed("alpha", "beta") as (rig, router):
        await served_by(rig, "alpha")
        slots = (await rig.get("/slots")).json()
        assert [slot["backend"] for slot in slots] == ["router/alpha"] * 2 + ["router/beta"] * 2
        assert router.loads == ["alpha"]


# Coming and going.


async def test_a_router_without_models_serves_none_until_it_has_one() -> None:
    async with routed() as (rig, router):
        assert (await rig.get("/ready")).status == 503
        none = await rig.post(CHAT, chat(model="alpha"))
        assert (none.status, none.code) == (404, "model_not_found")
        router.status["alpha"] = "unloaded"
        await eventually(rig, lambda: set(states(rig)) == {"router/alpha"})
        assert await served_by(rig, "alpha") == "router/alpha"


async def test_a_router_that_goes_and_comes_back_keeps_its_models() -> None:
    async with routed("alpha", "beta") as (rig, router):
        router.is_ill = True
        await eventually(rig, lambda: set(states(rig).values()) == {State.DOWN})
        router.is_ill = False
        await eventually(rig, lambda: set(states(rig).values()) == {State.READY})
        assert await served_by(rig, "beta") == "router/beta"


async def test_a_router_that_loads_nothing_by_itself_serves_what_is_loaded() -> None:
    async with fake_router("alpha", "beta") as router:
        router.loads_by_itself = False
        router.status["beta"] = "loaded"
        async with gateway_at("", backends=[{"name": "router", "url": router.url}]) as rig:
            assert states(rig) == {"router/alpha": State.DOWN, "router/beta": State.READY}
            assert await served_by(rig, "beta") == "router/beta"
            refused = await rig.post(CHAT, chat(model="alpha"))
            assert (refused.status, refused.code) == (503, "no_backend")


async def test_a_reload_may_give_models_other_names_and_take_the_router_away() -> None:
    async with routed("alpha", "beta") as (rig, router):
        backend = {"name": "router", "url": router.url}
        rig.overrides["backends"] = [{**backend, "models": [{"id": "beta", "alias": "fast"}]}]
        await rig.post("/-/reload", None)
        models = rig.app.driver.snapshot
        await eventually(rig, lambda: "fast" in {view.model for view in models().deployments})
        assert await served_by(rig, "fast") == "router/beta"
        await rig.post("/-/backends/router/disable", None)
        rig.overrides["backends"] = [{"name": "gone", "url": "http://127.0.0.1:9"}]
        await rig.post("/-/reload", None)
        assert set(states(rig)) == {"gone"}
        # Whoever comes back is another: it is not held.
        rig.overrides["backends"] = [backend]
        await rig.post("/-/reload", None)
        both = {"router/alpha": State.READY, "router/beta": State.READY}
        await eventually(rig, lambda: states(rig) == both)


async def test_a_model_that_appears_is_served_and_one_that_goes_is_not() -> None:
    async with routed("alpha", "beta") as (rig, router):
        router.status["gamma"] = "unloaded"
        del router.status["alpha"]
        await eventually(rig, lambda: set(states(rig)) == {"router/beta", "router/gamma"})
        assert await served_by(rig, "gamma") == "router/gamma"
        gone = await rig.post(CHAT, chat(model="alpha"))
        assert (gone.status, gone.code) == (404, "model_not_found")


async def test_who_waits_for_a_model_that_goes_is_told_so() -> None:
    async with routed("alpha", "beta") as (rig, router), asyncio.TaskGroup() as group:
        router.may_answer.clear()
        first = group.create_task(served_by(rig, "alpha"))
        await rig.wait_until(lambda counts: counts.processing == 1)
        second = group.create_task(rig.post(CHAT, chat(model="beta")))
        await rig.wait_until(lambda counts: counts.waiting == 1)
        del router.status["beta"]
        refused: Answer = await second
        assert (refused.status, refused.code) == (404, "model_not_found")
        router.may_answer.set()
        assert await first == "router/alpha"


async def test_a_server_that_is_no_router_any_more_is_one_backend() -> None:
    async with routed("alpha", "beta") as (rig, router):
        router.is_ill = True
        await eventually(rig, lambda: set(states(rig).values()) == {State.DOWN})
        assert set(states(rig)) == {"router/alpha", "router/beta"}
        router.role, router.is_ill = None, False
        await eventually(rig, lambda: states(rig) == {"router": State.READY})
        router.is_ill = True
        await eventually(rig, lambda: states(rig) == {"router": State.DOWN})
        router.role, router.is_ill = "router", False
        both = {"router/alpha": State.READY, "router/beta": State.READY}
        await eventually(rig, lambda: states(rig) == both)
        assert await served_by(rig, "beta") == "router/beta"


# The operator.


async def test_one_model_of_a_router_can_be_held() -> None:
    async with routed("alpha", "org/beta") as (rig, _):
        answer = await rig.post("/-/backends/router/org/beta/disable", None)
        assert answer.json()["backend"]["state"] == "down"
        refused = await rig.post(CHAT, chat(model="org/beta"))
        assert (refused.status, refused.code) == (503, "no_backend")
        assert await served_by(rig, "alpha") == "router/alpha"


async def test_a_router_is_held_with_all_its_models_and_those_that_come() -> None:
    async with routed("alpha", "beta") as (rig, router):
        answer = (await rig.post("/-/backends/router/drain?wait=5", None)).json()
        assert [row["name"] for row in answer["backends"]] == ["router/alpha", "router/beta"]
        assert answer["is_empty"]
        router.status["gamma"] = "unloaded"
        await eventually(rig, lambda: len(states(rig)) == 3)
        assert set(states(rig).values()) == {State.DRAINING}
        await rig.post("/-/backends/router/resume", None)
        assert await served_by(rig, "gamma") == "router/gamma"


async def test_the_operator_sees_which_models_are_there_and_whose_turn_it_is() -> None:
    async with routed("alpha", "beta") as (rig, _):
        await served_by(rig, "beta")
        beta = "router/beta"
        await eventually(rig, lambda: bool(rig.app.driver.snapshot().deployment(beta).is_loaded))
        rows = (await rig.get("/-/backends")).json()["backends"]
        assert [(row["kind"], row["loaded"], row["awaits_turn"]) for row in rows] == [
            ("model", False, True),
            ("model", True, False),
        ]
