"""Plans made, started on a real llama.cpp, and what became of them.

The memory of a started server is what llama.cpp logs: the buffers of weights, context, scratch and
output, each printed in MiB to two places.  The *waste* of a plan is the share of its budget that
the server left unused.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotgate.capacity.devices import by_hand
from slotgate.capacity.header import read_header
from slotgate.capacity.model import Model, model_of_file
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.wish import Wish
from tests.capacity.tiny_models import write_model

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = Path(__file__).with_name("run_commands.py")
MiB = 1 << 20

Q8, Q4 = {"type_k": "q8_0", "type_v": "q8_0"}, {"type_k": "q4_0", "type_v": "q4_0"}
# What is asked, and the share that the budget is of what the model could take at most.  The
# micro-batches are small, as the models are: at their real size the context outweighs the scratch.
BY_CONTEXT = (
    ({"slots": 1, "n_ubatch": 128}, 0.55),
    ({"slots": 4, "n_ubatch": 64, **Q8}, 0.4),
    ({"slots": 3, "n_ubatch": 32, "unified": True}, 0.5),
    ({"slots": 6, "n_ubatch": 32, "flash_attn": "off"}, 0.3),
    ({"ctx_per_slot": 2048, "n_ubatch": 64, **Q4}, 0.5),
)
# Those whose context hardly grows are asked for more slots instead.
BY_SLOTS = (
    ({"ctx_per_slot": 256, "n_ubatch": 64}, 0.6),
    ({"ctx_per_slot": 1024, "n_ubatch": 64, **Q8}, 0.4),
    ({"ctx_per_slot": 512, "n_ubatch": 64, "unified": True}, 0.5),
    ({"ctx_per_slot": 256, "n_ubatch": 64, "flash_attn": "off"}, 0.5),
    ({"ctx_per_slot": 2048, "n_ubatch": 64, "swa_full": True}, 0.6),
)
# One or more of each kind of memory -> what is asked of it.
MODELS = dict.fromkeys(
    (
        *("llama", "qwen3", "openelm", "deci"),
        *("gemma2", "gemma3", "gemma4", "gpt-oss", "llama4"),
        *("deepseek2-mla", "deepseek2-old", "glm-dsa", "minimax-m3"),
        *("qwen35", "granitehybrid", "falcon-h1"),
    ),
    BY_CONTEXT,
) | dict.fromkeys(("mamba2", "rwkv7", "lfm2-swa"), BY_SLOTS)
MOST_SLOTS = 60
# The graph of this one has no room for more.
FEWER_SLOTS = {"minimax-m3": 16}
_BUFFER = re.compile(
    r"tensors from (\S+) \("
    r"|: +\S+ +(?:(model|KV|RS|compute) buffer|(output) buffer) size = +([\d.]+) MiB"
)


@dataclass(frozen=True)
class Outcome:
    """A plan, and what the server that was started by its command says."""

    plan: Plan
    budget: int
    # What the log names a buffer for -> MiB.
    mib: dict[str, float]
    # How many buffers of a context were printed; each is rounded.
    context_buffers: int
    slots: list[dict[str, Any]]
    error: str = ""

    @property
    def used(self) -> float:
        """Bytes in all that the server allocated."""
        return sum(self.mib.values()) * MiB

    @property
    def context_mib(self) -> float:
        return self.mib.get("KV", 0.0) + self.mib.get("RS", 0.0)

    @property
    def waste(self) -> float:
        return (self.budget - self.used) / self.budget


def plans_of(name: str, directory: Path) -> list[tuple[Plan, int]]:
    """Plan one model for each wish, in a budget that binds."""
    path = write_model(name, directory)
    header = read_header(path)
    plans = []
    for number, (asked, share) in enumerate(MODELS[name]):
        # Each under a name of its own, by which its lines are found in the log.
        link = directory / f"{name}-{number}.gguf"
        link.hardlink_to(path)
        model = model_of_file(header, name=name, source=str(link))
        wish = Wish(cache_ram_mib=0, **asked)  # type: ignore[arg-type]
        budget = int(share * _most(model, wish))
        plans.append((make_plan(model, by_hand((), host_bytes=budget), wish), budget))
    return plans


def _most(model: Model, wish: Wish) -> int:
    """The bytes of the largest plan there is: the whole trained context, or very many slots."""
    slots = FEWER_SLOTS.get(model.shape.row.name, MOST_SLOTS)
    largest = replace(
        wish,
        slots=wish.slots or slots,
        ctx_per_slot=wish.ctx_per_slot or model.shape.n_ctx_train,
    )
    return make_plan(model, by_hand((), host_bytes=1 << 40), largest).usage.devices[0].used


def run(plans: Sequence[tuple[Plan, int]]) -> list[Outcome]:
    """Start each plan's command, and read what it says."""
    answers, log = start([plan.command for plan, _ in plans])
    buffers = _buffers(log)
    return [
        _outcome(plan, budget, answer, buffers.get(plan.model.source, []))
        for (plan, budget), answer in zip(plans, answers, strict=True)
    ]


def start(commands: Sequence[Sequence[str]]) -> tuple[list[dict[str, Any]], str]:
    """Start a server for each command; return what each answered, and the whole log."""
    told = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input="".join(json.dumps(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    answers = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(commands), told.stderr[-3000:]
    return answers, told.stderr


def _buffers(log: str) -> dict[str, list[tuple[str, float]]]:
    """The file of a model -> what its buffers are for, and their MiB."""
    found: dict[str, list[tuple[str, float]]] = {}
    current: list[tuple[str, float]] = []
    for path, kind, output, size in _BUFFER.findall(log):
        if path:
            current = found.setdefault(path, [])
        else:
            current.append((kind or output, float(size)))
    return found


def _outcome(
    plan: Plan, budget: int, answer: dict[str, Any], buffers: list[tuple[str, float]]
) -> Outcome:
    mib: dict[str, float] = {}
    for kind, size in buffers:
        mib[kind] = mib.get(kind, 0.0) + size
    return Outcome(
        plan=plan,
        budget=budget,
        mib=mib,
        context_buffers=sum(kind in {"KV", "RS"} for kind, _ in buffers),
        slots=answer.get("slots", []),
        error=answer.get("error", ""),
    )
