"""How exact the capacity planner is, beside other estimates, and how long a plan takes.

Everything is compared with what llama.cpp itself allocated (the tables of tests/capacity/data), and
plans are started on the real server of the xllamacpp wheel.  Sizes are bytes.
`python -m bench.capacity`
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from slotgate.capacity import PlanRefused, Settings, context_memory
from slotgate.capacity.compute import compute_bytes
from slotgate.capacity.saved import checkpoint_bytes, saved_prompt_bytes
from tests.capacity import truth
from tests.capacity.closed_loop import MODELS, Outcome, plans_of, run
from tests.capacity.gguf_writer import TensorSpec, encode_header
from tests.capacity.real_models import POPULAR
from tests.capacity.real_server import POPULAR_WISHES, run_popular, waste_of_room

RANDOM = Path(truth.__file__).parent / "data" / "random_headers.json.gz"
MiB = 1 << 20


def main() -> None:
    print_exactness()
    print_compute()
    print_estimators()
    print_closed_loop()
    print_time()


# Rows exact of rows in all.


def print_exactness() -> None:
    print(f"{'what llama.cpp allocated or wrote':40} {'rows':>6} {'exact':>6}")
    for name, checks in (
        ("tiny models x settings, refusals included", tiny_rows()),
        ("popular models at their real size", catalog_rows()),
        ("headers made at random", random_rows()),
        ("saved prompts and checkpoints", saved_rows()),
    ):
        results = list(checks)
        print(f"{name:40} {len(results):6} {sum(results):6}")


def total_of(meta: Mapping[str, Any], settings: Callable[[], Settings]) -> int | None:
    try:
        return context_memory(meta, settings()).total
    except PlanRefused:
        return None


def tiny_rows() -> Iterable[bool]:
    for row in truth.KV_ROWS:
        meta = truth.meta_of(row["name"])
        yield total_of(meta, lambda row=row: truth.settings_of(row["params"])) == row["actual"]


def catalog_rows() -> Iterable[bool]:
    for model in truth.CATALOG:
        for row in model["checked"]:
            total = context_memory(model["meta"], truth.settings_of(row)).total
            yield total == row["actual"]


def random_rows() -> Iterable[bool]:
    content = json.loads(gzip.decompress(RANDOM.read_bytes()))
    for header, settings, actual in content["rows"]:
        meta = content["headers"][header]
        yield total_of(meta, lambda settings=settings: Settings(**settings)) == actual


def saved_rows() -> Iterable[bool]:
    started = {"n_ctx": 16384, "n_seq": 2, "unified": 0}
    for row in truth.SAVED_ROWS:
        meta = truth.meta_of(row["name"])
        settings = truth.settings_of({**started, **row["params"]})
        if row["what"] == "checkpoint":
            said = checkpoint_bytes(meta, settings, row["n_tokens"]) / MiB
            yield f"{said:.3f}" == f"{row['actual_mib']:.3f}"
        else:
            yield saved_prompt_bytes(meta, settings, row["n_tokens"]) == row["actual"]


# The estimate of scratch memory.


def print_compute() -> None:
    print(
        f"\n{'scratch: estimate / llama.cpp':40} {'rows':>6} {'<= 5 %':>7} {'<= 15 %':>8}"
        f" {'least':>6} {'most':>6} {'over x1.2':>10}"
    )
    tiny = [ratio for row in truth.KV_ROWS if "compute" in row for ratio in [tiny_compute(row)]]
    popular = [compute(model["meta"], row) for model in truth.CATALOG for row in model["checked"]]
    for name, ratios in (("tiny models", tiny), ("popular models", popular)):
        near = [sum(abs(r - 1) <= bound for r in ratios) / len(ratios) for bound in (0.05, 0.15)]
        over = sum(r * 1.2 < 1 for r in ratios)
        print(
            f"{name:40} {len(ratios):6} {near[0]:7.1%} {near[1]:8.1%}"
            f" {min(ratios):6.3f} {max(ratios):6.3f} {over:10}"
        )


def tiny_compute(row: Mapping[str, Any]) -> float:
    settings = truth.settings_of(row["params"])
    estimate = compute_bytes(truth.meta_of(row["name"]), settings, n_outputs=row["n_batch"])
    return estimate.total / row["compute"]


def compute(meta: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    options = {"n_outputs": row["n_out"]} if "n_out" in row else {}
    return compute_bytes(meta, truth.settings_of(row), **options).total / row["compute"]


# Others.


def print_estimators() -> None:
    from xllamacpp.memory import graph_size

    def wheel(meta: Mapping[str, Any], kind: str, n_ctx: int, slots: int) -> float:
        told = {key: {"value": value} for key, value in meta.items()}
        told["tokenizer.ggml.tokens"] = {"value": range(meta_value(meta, "vocab_size"))}
        return sum(graph_size(told, n_ctx, 512, slots, kind)[0])

    def ours(meta: Mapping[str, Any], kind: str, n_ctx: int, slots: int) -> float:
        settings = Settings(n_ctx=n_ctx, n_seq=slots, unified=True, type_k=kind, type_v=kind)
        return context_memory(meta, settings).total

    print("\nContext memory of 72 popular models in one pool: how far estimates are off")
    columns = (("f16", 32768, 4), ("q8_0", 32768, 4), ("f16", 131072, 8))
    titles = [f"{kind}, {slots} slots, {n_ctx:,} tokens" for kind, n_ctx, slots in columns]
    print(f"{'':25}" + "".join(f"{title:>29}" for title in titles))
    print(f"{'estimate by':25}" + f"{'exact':>10} {'> 10 %':>8} {'worst':>9}" * len(columns))
    for name, estimate in (
        ("Slotgate", ours),
        ("xllamacpp.memory", wheel),
        ("layers x KV heads x head", naive),
    ):
        print(f"{name:25}" + "".join(summary(estimate, *column) for column in columns))


Estimate = Callable[[Mapping[str, Any], str, int, int], float]


def summary(estimate: Estimate, kind: str, n_ctx: int, slots: int) -> str:
    ratios = {}
    for model in truth.CATALOG:
        row = next(
            row
            for row in model["checked"]
            if (row["n_ctx"], row["n_seq"]) == (n_ctx, slots)
            and row.get("unified")
            and row.get("tk", "f16") == kind
        )
        ratios[model["name"]] = estimate(model["meta"], kind, n_ctx, slots) / row["actual"]
    worst = max(ratios.values(), key=lambda ratio: max(ratio, 1 / ratio if ratio else 1e9))
    exact = sum(ratio == 1 for ratio in ratios.values())
    off = sum(abs(ratio - 1) > 0.1 for ratio in ratios.values())
    return f"{exact / len(ratios):10.1%} {off / len(ratios):8.1%} {worst:8.2f}x"


def naive(meta: Mapping[str, Any], kind: str, n_ctx: int, _slots: int) -> float:
    heads, kv_heads = first(meta, "attention.head_count"), most(meta, "attention.head_count_kv")
    head = meta_value(meta, "embedding_length") // heads if heads else 0
    layers = meta_value(meta, "block_count")
    return 2 * layers * (kv_heads or heads) * head * {"f16": 2, "q8_0": 1}[kind] * n_ctx


def meta_value(meta: Mapping[str, Any], key: str) -> Any:
    return meta.get(f"{meta['general.architecture']}.{key}", 0)


def first(meta: Mapping[str, Any], key: str) -> int:
    value = meta_value(meta, key)
    return value[0] if isinstance(value, list) else value


def most(meta: Mapping[str, Any], key: str) -> int:
    value = meta_value(meta, key)
    return max(value) if isinstance(value, list) else value


# Plans, started.


def print_closed_loop() -> None:
    print("\nPlans started on a real llama.cpp, in budgets that bind")
    print(
        f"{'':40} {'plans':>6} {'context':>8} {'slots':>6} {'over':>6}"
        f" {'unused: median':>15} {'mean':>6} {'of the room':>12}"
    )
    print(f"{'':40} {'':>6} {'equal':>8} {'equal':>6} {'budget':>6}")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tiny = [one for model in MODELS for one in run(plans_of(model, directory))]
        wishes = range(len(POPULAR_WISHES))
        real = [one for model in POPULAR for one in run_popular(model, directory, wishes)]
    print_outcomes(f"{len(MODELS)} tiny models, micro-batches <= 128", tiny)
    print_outcomes(f"{len(POPULAR)} popular models at their real size", real)


def print_outcomes(name: str, outcomes: list[Outcome]) -> None:
    """Show how they came out; the room is what the weights leave of the budget."""
    waste = [outcome.waste for outcome in outcomes]
    exact = sum(
        abs(one.plan.usage.context_bytes / MiB - one.context_mib)
        <= 0.005 * one.context_buffers + 1e-9
        for one in outcomes
    )
    slots = sum(
        [slot["n_ctx"] for slot in one.slots] == [one.plan.ctx_per_slot] * one.plan.slots
        for one in outcomes
    )
    print(
        f"{name:40} {len(outcomes):6} {exact:8} {slots:6} {sum(share < 0 for share in waste):6}"
        f" {statistics.median(waste):15.1%} {statistics.mean(waste):6.1%}"
        f" {statistics.median(map(waste_of_room, outcomes)):12.1%}"
    )


# Time.


def print_time() -> None:
    print(f"\n{'time of a whole command, of 9':28} {'best':>7} {'median':>7} {'x python':>9}")
    with tempfile.TemporaryDirectory() as directory:
        path = eight_billion(Path(directory))
        plan = ["-m", "slotgate", "plan", str(path), "--memory", "24GiB"]
        python = 0.0
        for name, words in (("python -c pass", ["-c", "pass"]), ("slotgate plan, 8B file", plan)):
            times = sorted(seconds(words) for _ in range(9))
            python = python or times[0]
            print(f"{name:28} {times[0]:6.3f}s {times[4]:6.3f}s {times[0] / python:9.1f}")


def seconds(words: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def eight_billion(directory: Path) -> Path:
    """Write a file like Llama 3.1 8B in Q4_0: a real header, and holes for the weights."""
    meta = next(model["meta"] for model in truth.CATALOG if model["name"] == "Llama-3.1-8B")
    tokens = [f"token {number}" for number in range(128_256)]
    tensors = [TensorSpec("token_embd.weight", (4096, len(tokens)), "q4_0")]
    shapes = {
        "attn_q": (4096, 4096),
        "attn_k": (4096, 1024),
        "attn_v": (4096, 1024),
        "attn_output": (4096, 4096),
        "ffn_gate": (4096, 14336),
        "ffn_up": (4096, 14336),
        "ffn_down": (14336, 4096),
    }
    for layer in range(32):
        tensors += [
            TensorSpec(f"blk.{layer}.{name}.weight", shape, "q4_0")
            for name, shape in shapes.items()
        ]
    tensors.append(TensorSpec("output.weight", (4096, len(tokens)), "q6_K"))
    header = encode_header({**meta, "tokenizer.ggml.tokens": tokens}, tensors)
    path = directory / "llama-3.1-8b-q4_0.gguf"
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(tensor.n_bytes for tensor in tensors) + 32 * 512)
    return path


if __name__ == "__main__":
    main()
