"""A real llama-server for each command: the slots it shows, what it logs, or why it does not start.

Each is a process of its own, so that it may abort, and gives its memory back.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from slotgate.capacity.devices import by_hand
from slotgate.capacity.header import read_header
from slotgate.capacity.model import Model, model_of_file
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.wish import Wish
from tests.capacity.closed_loop import Q4, Q8, Outcome, run
from tests.capacity.real_models import write_popular

if TYPE_CHECKING:
    from collections.abc import Iterable

# What llama.cpp logs last where a server does not start.
LAST_WORDS = "exiting due to"
PROGRAM = Path(__file__).with_name("run_commands.py")
MiB = 1 << 20
MUCH = by_hand((), host_bytes=1 << 40)

# What is asked of a popular model, and the MiB that there are beside its weights.  The micro-batch
# is llama.cpp's own but for one.
POPULAR_WISHES: tuple[tuple[dict[str, Any], int], ...] = (
    ({"slots": 4}, 640),
    ({"ctx_per_slot": 2048, **Q4}, 512),
    ({"slots": 2, "unified": True, **Q8}, 512),
    ({"slots": 3, "n_ubatch": 128}, 320),
)
# There is not more room than this share of what the context could fill: a budget that binds.
MOST_OF_ALL = 0.7
MOST_SLOTS = 60


@dataclass(frozen=True)
class Started:
    """What became of one command; `failure` is all that was logged, "" if there is a server."""

    slots: list[int]
    total_slots: int
    # Tokens of all slots together, as logged.
    n_ctx: int
    # The sizes of the caches in MiB, in the order of the log.
    kv_mib: list[float]
    compute_mib: float
    failure: str


def start_one(words: tuple[str, ...]) -> Started:
    """Start `llama-server WORDS`."""
    answer, log = _told(words)
    pools = re.findall(r"llama_context: n_ctx += (\d+)", log)
    return Started(
        slots=[slot["n_ctx"] for slot in answer.get("slots", [])],
        total_slots=answer.get("props", {}).get("total_slots", 0),
        n_ctx=int(pools[-1]) if pools else 0,
        kv_mib=_sizes("KV", log),
        compute_mib=sum(_sizes("compute", log)),
        failure="" if "slots" in answer else log or "nothing was logged",
    )


def _told(words: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """Return what became of a command, and the whole log: a thread of llama.cpp's writes that."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # An aborting llama.cpp would start a debugger first.
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        log: list[str] = []
        is_written = threading.Event()

        def read(stderr: IO[str]) -> None:
            for line in stderr:
                log.append(line)
                if LAST_WORDS in line:
                    is_written.set()

        reader = threading.Thread(target=read, args=(child.stderr,))
        reader.start()
        child.stdin.write(json.dumps(["llama-server", *words]) + "\n")
        child.stdin.flush()
        # What aborts answers nothing.
        answer: dict[str, Any] = json.loads(child.stdout.readline() or "{}")
        if "error" in answer:
            is_written.wait(60)
        child.stdin.close()
        reader.join()
    return answer, "".join(log)


def _sizes(kind: str, log: str) -> list[float]:
    return [float(size) for size in re.findall(rf"{kind} buffer size = +([\d.]+)", log)]


def run_popular(name: str, directory: Path, wishes: Iterable[int]) -> list[Outcome]:
    """Plan a popular model for some of the wishes, and start each plan by itself."""
    path = write_popular(name, directory)
    model = model_of_file(read_header(path), name=name, source=str(path))
    plans = [plan_popular(model, *POPULAR_WISHES[number]) for number in wishes]
    return [outcome for plan in plans for outcome in run([plan])]


def plan_popular(model: Model, asked: dict[str, Any], room_mib: int) -> tuple[Plan, int]:
    wish = Wish(cache_ram_mib=0, **asked)
    largest = Wish(
        cache_ram_mib=0,
        **{"slots": MOST_SLOTS, "ctx_per_slot": model.shape.n_ctx_train, **asked},
    )
    usage = make_plan(model, MUCH, largest).usage
    room = min(room_mib * MiB, MOST_OF_ALL * (usage.devices[0].used - usage.weights.total))
    budget = usage.weights.total + int(room)
    return make_plan(model, by_hand((), host_bytes=budget), wish), budget


def waste_of_room(outcome: Outcome) -> float:
    """The unused share of what the weights leave of the budget."""
    return (outcome.budget - outcome.used) / (outcome.budget - outcome.mib["model"] * MiB)
