"""`slotgate simulate`: rehearse a load in virtual time, hours of it in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slotgate.cli.running import fail
from slotgate.cli.simulate_options import Asked
from slotgate.errors import ConfigError
from slotgate.load.backoff import ClientKind
from slotgate.load.workloads import RECIPES
from slotgate.sim.policies import DEFAULT, POLICIES


def simulate(
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="Arrivals, prompts and answers in tokens: .csv or .jsonl, or .gz of it."
        ),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"Instead of TRACE: {', '.join(RECIPES)}.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Repeatable, to compare: {', '.join(POLICIES)}; {DEFAULT} if left out.",
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(min=0.001, help="Times what the servers can do; a trace is sped up to it."),
    ] = None,
    hog_share: Annotated[
        float, typer.Option(min=0, max=1, help="What the hog asks for, of the whole load.")
    ] = 0.8,
    duration: Annotated[
        float, typer.Option(min=1, help="Seconds in which requests arrive.")
    ] = 600.0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="So many runs; a trace: one.")] = 5,
    slots: Annotated[int, typer.Option(min=1, max=1024, help="Slots of each server.")] = 8,
    backends: Annotated[int, typer.Option(min=1, max=10_000, help="Servers, all alike.")] = 1,
    pace: Annotated[
        str,
        typer.Option(
            metavar="PACE",
            help="gpu, cpu, or MS,MS,TOKENS: a step, what each busy slot adds to it, and prompt "
            "tokens a second.",
        ),
    ] = "gpu",
    ctx: Annotated[int, typer.Option(min=1, help="Tokens a slot may hold.")] = 32768,
    kv_pool: Annotated[
        int | None, typer.Option(min=1, help="Tokens that the slots of a server share.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Most tokens of one pass.")] = 2048,
    ttft: Annotated[
        float, typer.Option(min=0.001, help="Target: seconds to a first token.")
    ] = 10.0,
    tpot: Annotated[
        float | None, typer.Option(min=0.001, help="Target: seconds a token after it.")
    ] = None,
    patience: Annotated[
        float, typer.Option(min=0.001, help="A client without a first token leaves after it.")
    ] = 30.0,
    client: Annotated[
        ClientKind, typer.Option(help="Whose SDK refused clients use, hence how they come back.")
    ] = ClientKind.NONE,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Queue, classes, tenants and scheduling of this file."),
    ] = None,
    as_json: Annotated[
        bool | None, typer.Option("--json", help="One JSON document, for programs.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with plots.")
    ] = None,
) -> None:
    """Rehearse a load in virtual time: the scheduler itself in front of simulated servers."""
    try:
        asked = Asked(
            trace=trace,
            workload=workload,
            policies=tuple(policy or (DEFAULT,)),
            load=load,
            hog_share=hog_share,
            duration=duration,
            seeds=seeds,
            slots=slots,
            backends=backends,
            pace=pace,
            ctx=ctx,
            kv_pool=kv_pool,
            batch=batch,
            ttft=ttft,
            tpot=tpot,
            patience=patience,
            client=client,
            config=config,
            html=html,
        )
        asked.check()
        from slotgate.cli.simulate_answer import answer, show

        show(answer(asked), html=html, as_json=bool(as_json))
    except ConfigError as error:
        raise fail(error, 2) from error
