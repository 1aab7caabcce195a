"""`slotgate doctor`: what is wrong with servers that run, how that is known, and what mends it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from slotgate.cli.running import fail
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from slotgate.doctor.examine import Examination
    from slotgate.doctor.judge import Examined
    from slotgate.doctor.stated import Stated


def doctor(
    urls: Annotated[
        list[str], typer.Argument(metavar="URL...", help="Servers that run, each by its URL.")
    ],
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Variable that holds their API key.")
    ] = None,
    flags: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What they were started with, like '-c 32768 -np 4', for what cannot be asked.",
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of your longest request, with its answer."),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of their machine, like 64GiB, if not this one."),
    ] = None,
    measure: Annotated[
        bool | None,
        typer.Option("--measure", help="Also send a stream and a long prompt of its own."),
    ] = None,
    no_process: Annotated[
        bool | None,
        typer.Option(
            "--no-process",
            help="Do not read what the process that listens was started with, if it is here.",
        ),
    ] = None,
    force: Annotated[
        bool | None,
        typer.Option("--force", help="With --measure: even if no slot is known to be free."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that one answer may take.")
    ] = 5.0,
    watch: Annotated[
        float, typer.Option(min=0, help="Seconds to watch a slot that does not get on.")
    ] = 12.0,
    as_json: Annotated[
        bool | None, typer.Option("--json", help="One JSON document, for programs.")
    ] = None,
) -> None:
    """Examine running servers from outside; wakes none, and takes no slot unless told to measure.

    Exits 0 if nothing is worse than a note, 1 on warnings, 3 on errors, 4 if one could not be
    examined.
    """
    from slotgate.doctor.examine import Examination
    from slotgate.doctor.judge import status_of

    try:
        how = Examination(
            key=_key(api_key_env),
            timeout=timeout,
            watch_seconds=watch,
            stated=_stated(flags, context, host_memory),
            reads_process=not no_process,
            measures=bool(measure),
            is_forced=bool(force),
            announce=_announce,
        )
        examined = _examine(urls, how)
    except ConfigError as error:
        raise fail(error, 2) from error
    _show(examined, as_json=bool(as_json))
    raise typer.Exit(status_of(examined))


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise ConfigError(f"--api-key-env {name}: no such variable is set")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"--api-key-env {name}: what it holds cannot be sent as a key")
    return key


def _stated(flags: str | None, context: int | None, host_memory: str | None) -> Stated:
    from slotgate.capacity.units import parse_bytes
    from slotgate.doctor.stated import Stated, parse_flags

    return Stated(
        flags=None if flags is None else parse_flags(flags),
        context=context,
        host_bytes=None if host_memory is None else parse_bytes(host_memory),
    )


def _examine(urls: list[str], how: Examination) -> list[Examined]:
    from slotgate.doctor.examine import examine_all

    try:
        return asyncio.run(examine_all(urls, how))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _show(examined: list[Examined], *, as_json: bool) -> None:
    if as_json:
        import json

        from slotgate.cli.doctor_json import document

        typer.echo(json.dumps(document(examined), indent=2))
        return
    from slotgate.cli.doctor_report import print_report
    from slotgate.cli.terminal import standard_output

    print_report(examined, standard_output())


def _announce(line: str) -> None:
    # Beside the report, which may be read by a program.
    typer.echo(f"slotgate: {line}", err=True)
