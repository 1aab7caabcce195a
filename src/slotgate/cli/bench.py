"""`slotgate bench`: load a server and report what its users would have seen."""

from __future__ import annotations

import asyncio
import os
import random  # noqa: TID251 - made here, and handed to the load
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slotgate.cli.bench_options import keys_of, kinds_of, number_of_files, trace_of
from slotgate.cli.running import fail, run_loop
from slotgate.errors import ConfigError, SlotgateError
from slotgate.load.backoff import ClientKind
from slotgate.load.bench import Bench, BenchOptions
from slotgate.load.generate import Bounds
from slotgate.load.run import Targets

if TYPE_CHECKING:
    from slotgate.load.report import Report


def bench(
    url: Annotated[str, typer.Argument(help="Any server with OpenAI's chat completions.")],
    workload: Annotated[
        str, typer.Option(help="What to send; `--workload list` says what there is.")
    ] = "overload",
    load: Annotated[
        float | None, typer.Option(min=0.01, help="As a multiple of the capacity.")
    ] = None,
    capacity: Annotated[
        float | None, typer.Option(min=0.001, help="Requests/s; measured first if not given.")
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Requests at once to measure it; its slots.")
    ] = None,
    measure_seconds: Annotated[float, typer.Option(min=1, help="How long to measure it.")] = 10.0,
    hog_share: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="The hog's part of the load.")
    ] = 0.8,
    lengths: Annotated[
        str, typer.Option(help="chat, code, summ, reason or small; or A=chat,B=code by tenant.")
    ] = "chat",
    trace: Annotated[
        Path | None, typer.Option(help="Send a CSV or JSON lines file instead, also .gz.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Its columns: arrival=NAME,prompt=NAME,output=NAME.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.001, help="Send the trace so much faster.")] = 1.0,
    seconds: Annotated[float, typer.Option(min=1, help="How long to send requests.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the first run; the same seed, the same load.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each with its seed.")] = 1,
    ttft: Annotated[float, typer.Option(min=0, help="Target: seconds to the first token.")] = 10.0,
    tpot: Annotated[
        float | None, typer.Option(min=0, help="Target: seconds a token after it.")
    ] = None,
    patience: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a client without a token leaves.")
    ] = 30.0,
    retries: Annotated[
        ClientKind | None, typer.Option(help="Refused clients come back as this one does.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="TENANT=ENV, or ENV for all others: a key's variable; repeatable."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Its name; else the first it lists.")] = None,
    exact_lengths: Annotated[
        bool | None,
        typer.Option("--exact-lengths", help="llama.cpp: write just as many tokens as drawn."),
    ] = None,
    max_open: Annotated[int, typer.Option(min=1, help="Most requests open at once.")] = 2000,
    max_requests: Annotated[int, typer.Option(min=1, help="Most requests of a run.")] = 100_000,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for answers after the last request.")
    ] = 60.0,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the report as JSON; - for the output.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the report as a page with plots.")
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit 1 if fewer requests met the targets: 0 to 1."),
    ] = None,
) -> None:
    """Load a server with an open loop of requests and report what its users would have seen.

    Ctrl-C ends it with the report so far.
    """
    from slotgate.cli.bench_report import list_workloads, show, write

    if workload == "list":
        list_workloads()
        return
    try:
        options = BenchOptions(
            url=url,
            workload=workload,
            trace=trace_of(trace, columns, speed=speed, seconds=seconds, patience=patience),
            load=load,
            hog_share=hog_share,
            capacity=capacity,
            at_once=at_once,
            measure_seconds=measure_seconds,
            kinds=kinds_of(lengths),
            seconds=seconds,
            seeds=tuple(range(seed, seed + runs)),
            patience=patience,
            targets=Targets(ttft=ttft) if tpot is None else Targets(ttft=ttft, tpot=tpot),
            retries=retries,
            keys=keys_of(key or [], os.environ),
            model=model,
            exact_lengths=bool(exact_lengths),
            bounds=Bounds(open=number_of_files(max_open), drain_seconds=drain),
            most_requests=max_requests,
        )
        made = Bench(options, make_dice=random.Random, announce=_announce)
    except ConfigError as error:
        raise fail(error, 2) from error
    gathered: list[tuple[Report, bool]] = []
    run_loop(lambda: _run(made, gathered))
    report, was_stopped = gathered[0]
    try:
        write(report, json=json, html=html)
    except SlotgateError as error:
        raise fail(error) from error
    if json is None or str(json) != "-":
        show(report)
    if was_stopped:
        raise typer.Exit(130)
    met = report.whole.mean("attainment") or 0.0
    if fail_under is not None and met < fail_under:
        raise typer.Exit(1)


def _announce(line: str) -> None:
    # Beside the report, which may be read by a program.
    typer.echo(f"slotgate: {line}", err=True)


async def _run(made: Bench, gathered: list[tuple[Report, bool]]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, made.stop)
    done = await made.run()
    gathered.append((done.report, done.was_stopped))
