"""`slotgate plan`: how many slots of which context fit, before anything is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slotgate.cli.plan_options import Asked, check
from slotgate.errors import ConfigError, SlotgateError

if TYPE_CHECKING:
    from slotgate.backends.plan_server import RunningServer
    from slotgate.backends.plan_source import PlanSource
    from slotgate.cli.plan_answer import Answer

_SIZES = "What is asked"
_SERVER = "As llama-server has them"
_OUTPUT = "The answer"


def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A GGUF file, hf:ORG/REPO[:QUANT], pypi:PACKAGE, or a name like Llama-3.1-8B."
        ),
    ] = None,
    from_url: Annotated[
        str | None, typer.Option("--from", help="URL of a running llama-server, to compare with.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Variable that holds the API key for --from.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Size of the model's file, like 4.7GB; only for a name of the catalog."),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(help="Memory of each GPU, like 24GiB,16GiB; auto measures what is free."),
    ] = "auto",
    context: Annotated[int | None, typer.Option(min=1, help="Tokens of one slot.")] = None,
    request: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a request: how many run at once?")
    ] = None,
    ctx_size: Annotated[
        int | None,
        typer.Option("--ctx-size", "-c", min=0, help="Tokens of all slots together; 0: trained."),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", "-np", help="Slots; as many as fit if left out.")
    ] = None,
    kv_unified: Annotated[
        bool | None,
        typer.Option(
            "--kv-unified/--no-kv-unified", "-kvu/-no-kvu", help="One pool for all slots."
        ),
    ] = None,
    kv_unified_per_slot: Annotated[
        int | None, typer.Option(min=1, help="Tokens of one slot in that pool.")
    ] = None,
    cache_type: Annotated[
        str | None, typer.Option(help="Type of keys and values: f16, q8_0, q4_0, ...")
    ] = None,
    cache_type_k: Annotated[
        str | None, typer.Option("--cache-type-k", "-ctk", help="Type of keys.")
    ] = None,
    cache_type_v: Annotated[
        str | None, typer.Option("--cache-type-v", "-ctv", help="Type of values.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", min=1, help="Tokens of a batch.")
    ] = 2048,
    ubatch_size: Annotated[
        int, typer.Option("--ubatch-size", "-ub", min=1, help="Tokens of a micro-batch.")
    ] = 512,
    swa_full: Annotated[
        bool | None, typer.Option("--swa-full", help="Windows as long as the context.")
    ] = None,
    flash_attn: Annotated[
        str, typer.Option("--flash-attn", "-fa", help="on, off or auto.")
    ] = "auto",
    n_gpu_layers: Annotated[
        str | None,
        typer.Option(
            "--n-gpu-layers",
            "--gpu-layers",
            "-ngl",
            help="Layers on the GPUs, auto or all.  0: CPU only, --memory is the host's.",
        ),
    ] = None,
    tensor_split: Annotated[
        str | None, typer.Option("--tensor-split", "-ts", help="Shares of the GPUs, like 3,1.")
    ] = None,
    cpu_moe: Annotated[
        bool | None, typer.Option("--cpu-moe", "-cmoe", help="Experts on the host.")
    ] = None,
    n_cpu_moe: Annotated[
        int | None,
        typer.Option("--n-cpu-moe", "-ncmoe", min=0, help="Those of the first N layers."),
    ] = None,
    override_tensor: Annotated[
        list[str] | None,
        typer.Option("--override-tensor", "-ot", help="PATTERN=DEVICE,...; repeatable."),
    ] = None,
    cache_ram: Annotated[
        int | None,
        typer.Option("--cache-ram", "-cram", min=0, help="MiB of prompts kept on the host."),
    ] = None,
    ctx_checkpoints: Annotated[
        int | None,
        typer.Option("--ctx-checkpoints", "-ctxcp", min=0, help="Checkpoints of a slot."),
    ] = None,
    spec_type: Annotated[
        str | None, typer.Option(help="What drafts: draft-mtp, draft-eagle3, ...")
    ] = None,
    spec_draft_n_max: Annotated[
        int | None, typer.Option(min=0, help="Tokens of a draft; 3 if left out.")
    ] = None,
    build: Annotated[
        int | None, typer.Option(min=1, help="Number of your llama.cpp's build, like 9460.")
    ] = None,
    as_json: Annotated[
        bool | None, typer.Option("--json", help="One JSON document, for programs.")
    ] = None,
    explain: Annotated[
        bool | None, typer.Option("--explain", help="Show the arithmetic, line by line.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw slots against context: FILE.svg or FILE.html.")
    ] = None,
) -> None:
    """Plan how many slots of which context fit; exits 1 if what is asked does not."""
    # Each argument is a field of the same name.
    asked = Asked(**locals())
    try:
        found = _answer(asked)
        _show(found, asked)
    except ConfigError as error:
        raise _fail(error, 2) from error
    except SlotgateError as error:
        raise _fail(error, 1) from error
    if not found.plan.fits:
        raise typer.Exit(1)


def _answer(asked: Asked) -> Answer:
    check(asked)
    if asked.plot is not None:
        from slotgate.cli.plan_chart import check_suffix

        check_suffix(asked.plot)
    server = _server(asked)
    source = _source(asked, server)
    from slotgate.cli.plan_answer import answer

    return answer(asked, source, server)


def _server(asked: Asked) -> RunningServer | None:
    if asked.from_url is None:
        return None
    key = None
    if asked.api_key_env is not None and not (key := os.environ.get(asked.api_key_env)):
        raise ConfigError(f"--api-key-env {asked.api_key_env}: no such variable is set")
    from slotgate.backends.plan_server import ask_server

    return ask_server(asked.from_url, api_key=key)


def _source(asked: Asked, server: RunningServer | None) -> PlanSource:
    from slotgate.backends.plan_source import find_source

    weights = asked.weights_bytes
    spec = asked.model
    if server is not None and spec is None:
        spec = server.model_path
        if not Path(spec).is_file():
            raise ConfigError(
                f"{server.url} runs {spec or 'a model it does not name'}, which is not on this "
                "machine; say which MODEL that is, besides --from"
            )
    return find_source(spec or "", weights_bytes=weights, progress=_say)


def _show(answer: Answer, asked: Asked) -> None:
    if asked.plot is not None:
        from slotgate.cli.plan_chart import write_chart

        write_chart(asked.plot, answer.plan)
    if asked.as_json:
        import json

        from slotgate.cli.plan_json import document

        typer.echo(json.dumps(document(answer), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from slotgate.cli.plan_report import Report

    Report(Console(highlight=False, markup=False, emoji=False)).print(answer)


def _say(line: str) -> None:
    """Progress, which is no part of the answer."""
    typer.echo(f"slotgate: {line}", err=True)


def _fail(error: SlotgateError, status: int) -> typer.Exit:
    typer.echo(f"slotgate: {error}", err=True)
    return typer.Exit(status)
