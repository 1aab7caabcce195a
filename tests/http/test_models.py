"""Several models behind one gateway: each request goes to its own, by whichever of its names."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.stub import StubOptions, StubServer
from tests.http.rig import CHAT, Rig, chat, free_port, gateway_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

GONE = f"http://127.0.0.1:{free_port()}"


@contextlib.asynccontextmanager
async def models(**backends: dict[str, Any]) -> AsyncIterator[Rig]:
    """A gateway in front of stubs, each with a model that it names itself, and maybe settings."""
    async with contextlib.AsyncExitStack() as stack:
        listed = []
        for name, settings in backends.items():
            options = StubOptions(decode=0, model=settings.pop("says"))
            stub = await stack.enter_async_context(StubServer(options))
            listed.append({"name": name, "url": stub.url, **settings})
        yield await stack.enter_async_context(gateway_at("", backends=listed))


async def served_by(rig: Rig, model: str) -> str:
    answer = await rig.post(CHAT, chat(model=model))
    assert answer.status == 200, answer.body
    return answer.headers["x-slotgate-backend"]


async def test_backends_without_an_alias_that_run_other_models_are_told_apart() -> None:
    async with models(left={"says": "qwen"}, right={"says": "llama"}) as rig:
        for _ in range(3):
            assert await served_by(rig, "qwen") == "left"
            assert await served_by(rig, "llama") == "right"
        unknown = await rig.post(CHAT, chat(model="gpt-4"))
        assert (unknown.status, unknown.code) == (404, "model_not_found")


async def test_aliases_are_further_names() -> None:
    left = {"says": "qwen", "aliases": ["fast", "cheap"]}
    async with models(left=left, right={"says": "llama", "alias": "big"}) as rig:
        for name in ("qwen", "fast", "cheap"):
            assert await served_by(rig, name) == "left"
        for name in ("llama", "big"):
            assert await served_by(rig, name) == "right"


async def test_all_models_are_listed_each_under_a_name_that_finds_it() -> None:
    left, right = {"says": "qwen"}, {"says": "llama", "alias": "big"}
    async with models(left=left, right=right, third={"says": "llama", "alias": "big"}) as rig:
        for path in ("/v1/models", "/models"):
            listed = (await rig.get(path)).json()["data"]
            assert [model["id"] for model in listed] == ["qwen", "big"]
        assert listed[1]["aliases"] == ["llama"]
        assert await served_by(rig, "qwen") == "left"
        assert await served_by(rig, "big") in {"right", "third"}


async def test_the_list_of_one_model_is_its_servers_own() -> None:
    async with models(left={"says": "qwen"}, right={"says": "qwen"}) as rig:
        body = (await rig.get("/v1/models")).json()
        assert [model["id"] for model in body["data"]] == ["qwen"]
        assert "models" in body, "llama-server's own list for other clients"
        assert await served_by(rig, "whatever") in {"left", "right"}
