"""What an engine of ours is started with, for the memory at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slotgate.backends.engine_plan import EnginePlan, EngineWish, plan_engine
from slotgate.backends.llama_server import LlamaServer
from slotgate.backends.managed import ManagedServer
from slotgate.backends.models import ResolvedModel
from slotgate.capacity.context import context_memory
from slotgate.capacity.header import read_header
from slotgate.capacity.settings import Settings
from slotgate.errors import ConfigError, HeaderError, PlanRefused
from slotgate.net.address import Address
from slotgate.net.client import Client
from tests.capacity.gguf_writer import write_gguf
from tests.capacity.tiny_models import META, write_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio

MiB = 1 << 20


async def _plan(path: Path, **wish: object) -> EnginePlan:
    return await plan_engine(ResolvedModel(path, "m"), "m", EngineWish(**wish))  # type: ignore[arg-type]


async def test_who_asks_for_nothing_gets_four_slots_for_a_conversation(small_model: Path) -> None:
    plan = await _plan(small_model)
    assert (plan.options.parallel, plan.options.ctx_size) == (4, 16384)
    assert plan.sentences[0] == (
        "planned 4 slots of 4,096 tokens each (the model was trained for 8,192); "
        "change it with --parallel, --ctx-size or --memory"
    )
    assert "context 360.0 MiB" in plan.sentences[1]


async def test_given_memory_the_slots_fill_it_and_not_more(small_model: Path) -> None:
    plan = await _plan(small_model, memory="600MiB")
    options = plan.options
    settings = Settings(n_ctx=options.ctx_size, n_seq=options.parallel, unified=False)
    taken = context_memory(read_header(small_model).meta, settings).total
    assert options.parallel == 4
    assert 16384 < options.ctx_size < 32768
    # What is left is for scratch.
    left = 600 * MiB - taken - small_model.stat().st_size  # noqa: ASYNC240 - a local file
    assert 0 < left < 50 * MiB
    assert "(as long as fits)" in plan.sentences[0]


async def test_fewer_slots_are_made_rather_than_useless_ones(small_model: Path) -> None:
    plan = await _plan(small_model, memory="400MiB")
    assert (plan.options.parallel, plan.options.ctx_size) == (3, 12288)


async def test_given_memory_and_a_context_as_many_slots_as_fit_are_made(small_model: Path) -> None:
    plan = await _plan(small_model, memory="1GiB", ctx_per_slot=2048)
    assert plan.options.parallel > 8
    assert plan.options.ctx_size == 2048 * plan.options.parallel
    assert "(as many as fit)" in plan.sentences[0]


async def test_a_smaller_cache_type_makes_room_and_is_passed_on(small_model: Path) -> None:
    plain = await _plan(small_model, memory="600MiB", ctx_per_slot=1024)
    small = await _plan(small_model, memory="600MiB", ctx_per_slot=1024, cache_type="q8_0")
    assert small.options.parallel > 1.8 * plain.options.parallel
    assert (small.options.cache_type_k, small.options.cache_type_v) == ("q8_0", "q8_0")


async def test_what_does_not_fit_into_the_memory_that_was_given_is_refused(
    small_model: Path,
) -> None:
    with pytest.raises(
        ConfigError, match=r"16 slots of 4,096 tokens each do not fit: .* would fit"
    ):
        await _plan(small_model, memory="300MiB", parallel=16, ctx_per_slot=4096)


async def test_memory_that_the_weights_alone_overflow_is_refused(small_model: Path) -> None:
    with pytest.raises(ConfigError, match="do not fit: weights") as caught:
        await _plan(small_model, memory="50MiB")
    assert "would fit" not in str(caught.value)


async def test_what_is_asked_beyond_the_free_memory_is_tried_and_said(small_model: Path) -> None:
    # 256 slots of 8,192 tokens take 45 GiB, and may be more than this machine has.
    plan = await _plan(small_model, parallel=256, ctx_per_slot=1 << 20)
    assert "more than is free" in plan.sentences[0]
    assert plan.options.parallel == 256


async def test_more_context_than_the_model_can_use_is_said(small_model: Path) -> None:
    plan = await _plan(small_model, parallel=1, ctx_per_slot=9000)
    assert "more was asked, but the model was trained for 8,192" in plan.sentences[0]


async def test_a_model_that_llama_cpp_would_not_load_is_refused_before_it_is_started(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "m.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(HeaderError, match=r"m\.gguf"):
        await _plan(broken)
    with pytest.raises(PlanRefused, match="do not divide the head size"):
        await _plan(write_model("falcon", tmp_path), cache_type="q8_0")


async def test_what_would_make_the_engine_slow_or_fail_is_noted(tmp_path: Path) -> None:
    known = META["llama"]
    unknown = {key.replace("llama.", "newcomer.", 1): value for key, value in known.items()}
    unknown["general.architecture"] = "newcomer"
    said = (await _plan(write_gguf(tmp_path / "new.gguf", unknown), memory="64MiB")).sentences
    assert len(said) == 3
    assert said[2].startswith("note: ")
    assert "newcomer" in said[2]
    assert len((await _plan(write_model("llama", tmp_path), memory="64MiB")).sentences) == 2


@pytest.fixture
def binary(tmp_path: Path) -> Callable[[str], Path]:
    """A program that lists these devices, as llama-server does."""

    def make(devices: str) -> Path:
        path = tmp_path / "llama-server"
        path.write_text(f"#!/bin/sh\necho 'Available devices:'\nprintf '{devices}'\n")
        path.chmod(0o755)
        return path

    return make


@pytest.mark.process
async def test_a_binary_is_planned_for_the_gpus_that_it_lists(
    small_model: Path, binary: Callable[[str], Path]
) -> None:
    server = binary("  CUDA0: NVIDIA GeForce RTX 4090 (24210 MiB, 23871 MiB free)\\n")
    plan = await _plan(small_model, llama_server=server, memory="auto")
    assert plan.options.gpu_layers == 31
    assert "of 22.7 GiB on CUDA0" in plan.sentences[1]


@pytest.mark.process
async def test_a_binary_without_gpus_is_planned_for_the_host(
    small_model: Path, binary: Callable[[str], Path]
) -> None:
    plan = await _plan(small_model, llama_server=binary("  (none)\\n"), memory="1GiB")
    assert plan.options.gpu_layers is None
    assert "of 1.0 GiB on the host" in plan.sentences[1]


@pytest.mark.llama
@pytest.mark.process
@pytest.mark.parametrize("kv_unified", [False, True])
async def test_a_real_engine_takes_the_plan_as_it_is(tmp_path: Path, kv_unified: bool) -> None:
    model = write_model("gemma3", tmp_path)
    plan = await _plan(model, memory="40MiB", parallel=3, kv_unified=kv_unified)
    engine = ManagedServer(plan.options)
    await engine.start()
    try:
        server = LlamaServer("m", Client(Address.parse(engine.url)))
        slots = await server.slots()
        server.close()
    finally:
        await engine.stop(0)
    assert [slot.n_ctx for slot in slots] == [plan.options.ctx_size // 3] * 3
