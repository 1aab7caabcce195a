"""What flags become, on a real llama-server and in our arithmetic: slots, pool and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from slotgate.capacity import Settings, context_memory, read_header
from slotgate.capacity.devices import by_hand
from slotgate.capacity.model import model_of_file
from slotgate.capacity.plan import make_plan
from slotgate.capacity.wish import Wish
from tests.capacity.real_server import start_one
from tests.capacity.tiny_models import write_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.llama, pytest.mark.process]

MiB = 1 << 20
TRAINED = 32768


class Row(NamedTuple):
    """The words a user gives llama-server, the settings they mean, and what comes of them."""

    words: str
    settings: Settings
    slots: int
    tokens: int
    pool: int


def _apart(n_ctx: int, n_seq: int) -> Settings:
    return Settings(n_ctx=n_ctx, n_seq=n_seq, unified=False)


# `-np -1` is llama-server's own default.
ROWS = (
    Row("-np -1", Settings(), 4, TRAINED, TRAINED),
    Row("-np -1 -c 8192", Settings(n_ctx=8192), 4, 8192, 8192),
    Row("-c 8192 -np 4", _apart(8192, 4), 4, 2048, 8192),
    Row("-c 8192 -np 4 --kv-unified", Settings(n_ctx=8192), 4, 8192, 8192),
    Row("-c 8192 -np 3", _apart(8192, 3), 3, 2816, 8448),
    Row("-c 1000 -np 4", _apart(1000, 4), 4, 256, 1024),
    Row("-c 100 -np 1", _apart(100, 1), 1, 256, 256),
    Row("-c 65536 -np 1", _apart(65536, 1), 1, TRAINED, 65536),
    Row("-np 2", _apart(0, 2), 2, TRAINED // 2, TRAINED),
    # Unless it is told not to, llama-server multiplies a context that nobody gave by the slots.
    Row("-np 2 --fit on", _apart(2 * TRAINED, 2), 2, TRAINED, 2 * TRAINED),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_flags_become_the_slots_and_the_pool_that_are_worked_out(tmp_path: Path, row: Row) -> None:
    path = write_model("llama", tmp_path)
    fit = () if "--fit" in row.words else ("--fit", "off")
    started = start_one(("-m", str(path), *row.words.split(), *fit))
    memory = context_memory(read_header(path).meta, row.settings)
    assert started.failure == ""
    assert (memory.n_ctx_slot, memory.n_ctx) == (row.tokens, row.pool)
    assert started.slots == [row.tokens] * row.slots
    assert (started.total_slots, started.n_ctx) == (row.slots, row.pool)


@pytest.mark.parametrize(("kind", "pool"), [("--kv-unified", 12032), ("", 12288)])
def test_a_limit_for_each_slot_makes_a_pool_for_all_of_them(
    tmp_path: Path, kind: str, pool: int
) -> None:
    path = write_model("llama", tmp_path)
    words = f"-np 4 --kv-unified-per-slot 3000 {kind} --fit off"
    started = start_one(("-m", str(path), *words.split()))
    settings = Settings(n_ctx=4 * 3000, n_seq=4, unified=bool(kind))
    assert context_memory(read_header(path).meta, settings).n_ctx == pool
    assert (started.slots, started.n_ctx) == ([3000] * 4, pool)


# Words -> the MiB of the full layer and of the windows, of gemma3 with four slots of 8,192 in all.
WINDOWS: tuple[tuple[str, dict[str, Any], tuple[float, float]], ...] = (
    ("", {"unified": False}, (2.0, 6.0)),
    ("--kv-unified", {}, (2.0, 3.75)),
    ("--swa-full", {"unified": False, "swa_full": True}, (2.0, 12.0)),
    ("--kv-unified -ub 2048", {"n_ubatch": 2048}, (2.0, 6.0)),
)


@pytest.mark.parametrize(("words", "asked", "mib"), WINDOWS)
def test_slots_pools_and_batches_size_the_windows_as_worked_out(
    tmp_path: Path, words: str, asked: dict[str, Any], mib: tuple[float, float]
) -> None:
    path = write_model("gemma3", tmp_path)
    started = start_one(("-m", str(path), *f"-c 8192 -np 4 {words} --fit off".split()))
    settings = Settings(n_ctx=8192, n_seq=4, **asked)
    parts = context_memory(read_header(path).meta, settings).parts
    assert (parts["full"] / MiB, parts["window"] / MiB) == mib
    assert tuple(started.kv_mib) == mib


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_the_command_of_a_plan_becomes_the_slots_of_the_plan(tmp_path: Path, name: str) -> None:
    path = write_model(name, tmp_path)
    model = model_of_file(read_header(path), name=name, source=str(path))
    wish = Wish(slots=3, ctx_per_slot=3000, n_ubatch=128, type_k="q8_0", type_v="q8_0")
    plan = make_plan(model, by_hand((), host_bytes=64 * MiB), wish)
    started = start_one(plan.command[1:])
    assert (plan.slots, plan.ctx_per_slot) == (3, 3072)
    assert started.slots == [3072] * 3
    assert started.n_ctx == plan.usage.memory.n_ctx
