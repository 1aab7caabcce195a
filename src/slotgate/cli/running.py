"""What `serve` and `up` share: settings from everywhere, a fast loop, and errors in plain words."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import typer

from slotgate.config import load_settings
from slotgate.errors import SlotgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from slotgate.config import Settings


def announce(line: str) -> None:
    """Tell the user; scripts wait for the line that begins with `slotgate: ready`."""
    typer.echo(f"slotgate: {line}")
    sys.stdout.flush()


def load(path: Path | None, overrides: Mapping[str, object]) -> Settings:
    """Read the settings, or exit 2 saying what is wrong with them."""
    try:
        return load_settings(path, overrides=overrides, env=os.environ)
    except SlotgateError as error:
        raise fail(error, 2) from error


def fail(error: SlotgateError, status: int = 1) -> typer.Exit:
    """Print an error for the user and return the exit to raise."""
    typer.echo(f"slotgate: {error}", err=True)
    return typer.Exit(status)


def run_gateway(settings: Settings, read_settings: Callable[[], Settings] | None = None) -> None:
    """Serve until stopped; exits 0 after a drain, 1 when it could not start."""
    from slotgate.app import run

    run_loop(lambda: run(settings, announce=announce, read_settings=read_settings))


def run_loop(main: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run a coroutine on the fastest event loop there is."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(main())
    except SlotgateError as error:
        raise fail(error) from error
    except KeyboardInterrupt:
        # Before the gateway took over the signals: nothing was accepted yet.
        raise typer.Exit(130) from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if sys.platform == "win32":
        return asyncio.new_event_loop
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
