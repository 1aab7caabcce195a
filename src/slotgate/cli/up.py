"""`slotgate up`: one command from nothing to a queue in front of a real model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slotgate.capacity.wish import DEFAULT_SLOTS
from slotgate.cli.running import load, run_gateway
from slotgate.cli.serve import InsecureOption, ListenOption, LogLevelOption, MaxWaitingOption
from slotgate.config.backends import DEFAULT_MODEL


def up(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A GGUF file, hf:org/repo[:quant], or pypi:package; the small default if left out."
        ),
    ] = None,
    listen: ListenOption = None,
    parallel: Annotated[int | None, typer.Option(help="Slots: sequences that run at once.")] = None,
    ctx_size: Annotated[
        int | None, typer.Option(help="Context of all slots together, in tokens.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory to fill: 24GiB, one size for each GPU, or auto for all free."),
    ] = None,
    cache_type: Annotated[
        str | None, typer.Option(help="Type of keys and values: f16, q8_0, q4_0, ...")
    ] = None,
    kv_unified: Annotated[
        bool | None,
        typer.Option("--kv-unified", help="One pool for all slots, each limited to its part."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the engine.")] = None,
    llama_server: Annotated[
        Path | None, typer.Option(help="A llama-server binary, instead of the embedded engine.")
    ] = None,
    max_waiting: MaxWaitingOption = None,
    insecure: InsecureOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Start llama.cpp on a model, and the gateway in front of it."""
    slots = parallel or (DEFAULT_SLOTS if ctx_size else None)
    backend = {
        "model": model or DEFAULT_MODEL,
        "name": None if model else "smollm2",
        "parallel": slots,
        "ctx_per_slot": ctx_size // slots if ctx_size and slots else None,
        "memory": memory,
        "cache_type": cache_type,
        "kv_unified": kv_unified,
        "threads": threads,
        "llama_server": str(llama_server) if llama_server is not None else None,
    }
    settings = load(
        None,
        {
            "backends": [{key: value for key, value in backend.items() if value is not None}],
            "listen": listen,
            "queue.max_waiting": max_waiting,
            "insecure": insecure,
            "log.level": log_level or "warning",
        },
    )
    run_gateway(settings)
