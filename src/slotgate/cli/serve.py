"""`slotgate serve`: the gateway in front of servers that already run."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from slotgate.cli.running import load, run_gateway
from slotgate.config import load_settings

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The configuration file.", dir_okay=False)
]
ListenOption = Annotated[
    str | None, typer.Option(help="Where clients connect: HOST:PORT or unix:///PATH.")
]
MaxWaitingOption = Annotated[int | None, typer.Option(help="The most requests that may wait.")]
InsecureOption = Annotated[
    bool | None, typer.Option("--insecure", help="Allow a public address without keys.")
]
LogLevelOption = Annotated[
    str | None, typer.Option(help="debug, info, warning or error.", show_default=False)
]


def serve(
    config: ConfigOption = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="URL of a running llama-server; may be given several times."),
    ] = None,
    listen: ListenOption = None,
    max_waiting: MaxWaitingOption = None,
    insecure: InsecureOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Put an ordered, bounded queue in front of llama-servers that already run."""
    options = {
        "backends": [{"url": url} for url in backend] if backend else None,
        "listen": listen,
        "queue.max_waiting": max_waiting,
        "insecure": insecure,
        "log.level": log_level,
    }
    again = partial(load_settings, config, overrides=options, env=os.environ)
    run_gateway(load(config, options), None if config is None else again)
