"""`slotgate stub`: a simulated llama-server, to rehearse a configuration without a model."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from slotgate.cli.running import announce, fail, run_loop
from slotgate.errors import ConfigError
from slotgate.stub import Build, Fault, StubOptions, StubServer
from slotgate.stub.options import parse_curve


def stub(
    listen: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:8081",
    slots: Annotated[int, typer.Option(min=1, help="Sequences at once.")] = 4,
    ctx: Annotated[
        int, typer.Option(min=1, help="Tokens a slot may hold; with --unified, all together.")
    ] = 4096,
    decode: Annotated[
        float, typer.Option(min=0, help="Tokens a second each slot writes; 0: all at once.")
    ] = 40.0,
    curve: Annotated[
        str | None,
        typer.Option(help="Instead of --decode, by busy slots: 1:40,2:35,4:25,8:14."),
    ] = None,
    prefill: Annotated[
        float, typer.Option(min=0, help="Prompt tokens a second; 0: all at once.")
    ] = 1000.0,
    batch: Annotated[int, typer.Option(min=1, help="Most tokens of one pass.")] = 2048,
    unified: Annotated[
        bool | None, typer.Option("--unified", help="One KV pool for all slots.")
    ] = None,
    output_tokens: Annotated[
        int, typer.Option(min=0, help="Where the model ends its text; 0: never.")
    ] = 128,
    model: Annotated[str, typer.Option(help="The model's name.")] = "stub",
    api_key: Annotated[list[str] | None, typer.Option(help="Repeatable.")] = None,
    api_prefix: Annotated[str, typer.Option(help="Before every path.")] = "",
    load_seconds: Annotated[float, typer.Option(min=0, help="503 for so long.")] = 0.0,
    speed: Annotated[float, typer.Option(min=0.001, help="Run so many times faster.")] = 1.0,
    build: Annotated[Build, typer.Option(help="Which generation of llama.cpp.")] = Build.NEW,
    no_slots: Annotated[bool | None, typer.Option("--no-slots", help="/slots is 501.")] = None,
    no_metrics: Annotated[
        bool | None, typer.Option("--no-metrics", help="/metrics is 501.")
    ] = None,
    ctx_train: Annotated[
        int | None, typer.Option(min=1, help="Tokens that the model was trained for; else --ctx.")
    ] = None,
    build_info: Annotated[str, typer.Option(help="What /props calls it.")] = "b11434-stub",
    sleep_idle_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Sleep after so long without work.")
    ] = None,
    embeddings: Annotated[bool | None, typer.Option("--embeddings", help="Embed too.")] = None,
    reranking: Annotated[bool | None, typer.Option("--reranking", help="Rerank too.")] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:ARG; repeatable. See docs.")
    ] = None,
) -> None:
    """Serve a simulated llama-server, faithful in its faults: real sockets, no model."""
    try:
        host, port = _address(listen)
        options = StubOptions(
            host=host,
            port=port,
            slots=slots,
            ctx=ctx,
            decode=decode,
            curve=parse_curve(curve or ""),
            prefill=prefill,
            batch=batch,
            unified=bool(unified),
            output_tokens=output_tokens or None,
            model=model,
            api_keys=tuple(api_key or ()),
            api_prefix=api_prefix,
            load_seconds=load_seconds,
            speed=speed,
            build=build,
            has_slots=not no_slots,
            has_metrics=not no_metrics,
            ctx_train=ctx_train,
            build_info=build_info,
            sleep_idle_seconds=sleep_idle_seconds,
            embeddings=bool(embeddings),
            reranking=bool(reranking),
            faults=tuple(Fault.parse(text) for text in fault or ()),
        )
    except ConfigError as error:
        raise fail(error, 2) from error
    run_loop(lambda: _serve(options))


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--listen {listen}: expected HOST:PORT")
    return host.strip("[]"), int(port)


async def _serve(options: StubOptions) -> None:
    """Serve until a signal comes; exit 1 when the fault `exits` strikes."""
    server = StubServer(options)
    try:
        await server.start()
    except OSError as error:
        raise ConfigError(f"--listen {options.host}:{options.port}: {error}") from error
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        server.exit()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    announce(f"ready on {server.url}, a stub with {options.slots} slots of {options.ctx} tokens")
    await server.wait_exited()
    await server.stop()
    if not signals:
        raise typer.Exit(1)
