"""`slotgate pause|resume|drain|disable|enable`, `kill` and `reload`: the operator's verbs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from slotgate.cli.operator import (
    DEFAULT_GATEWAY,
    SAYS_NO,
    GatewayOption,
    JsonOption,
    KeyOption,
    connect,
    fail,
    show_json,
)

BackendArgument = Annotated[str, typer.Argument(help="The backend's name.", show_default=False)]
# The longest that the gateway lets anybody wait; a longer wait asks again.
_ONE_WAIT_SECONDS = 600.0


def pause(
    backend: BackendArgument,
    *,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let newcomers wait for a backend; what runs there goes on."""
    _hold("pause", backend, gateway, admin_key_env, as_json=as_json)


def resume(
    backend: BackendArgument,
    *,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo pause and drain."""
    _hold("resume", backend, gateway, admin_key_env, as_json=as_json)


def disable(
    backend: BackendArgument,
    *,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Treat a backend as down; what runs there may end."""
    _hold("disable", backend, gateway, admin_key_env, as_json=as_json)


def enable(
    backend: BackendArgument,
    *,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo pause, drain and disable."""
    _hold("enable", backend, gateway, admin_key_env, as_json=as_json)


def drain(
    backend: BackendArgument,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when nothing runs there any more.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Wait so many seconds at most, then exit 1.")
    ] = None,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start nothing new on a backend; what runs there may end."""
    client = connect(gateway, admin_key_env)
    left = (float("inf") if timeout is None else timeout) if wait or timeout is not None else 0.0
    while True:
        seconds = min(left, _ONE_WAIT_SECONDS)
        query = f"?wait={seconds:g}" if seconds else ""
        answer = client.ask("POST", "backends", backend, "drain", query=query, patience=seconds)
        left -= seconds
        if answer["is_empty"] or not left:
            break
    _say(answer, as_json=as_json)
    if (wait or timeout is not None) and not answer["is_empty"]:
        raise fail(f"{backend} is not empty yet", SAYS_NO)


def kill(
    ticket: Annotated[str, typer.Argument(help="The ticket's id, as `show tickets` has it.")],
    *,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """End one request, whether it waits or runs."""
    answer = connect(gateway, admin_key_env).ask("POST", "tickets", ticket, "kill")
    if as_json:
        show_json(answer)
    else:
        typer.echo(f"{ticket}: killed")


def reload(
    *,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have the gateway read its configuration file anew; all of it is checked before."""
    answer = connect(gateway, admin_key_env).ask("POST", "reload")
    if as_json:
        show_json(answer)
        return
    typer.echo(answer["result"])
    for kind in ("backends", "tenants"):
        for change, names in answer[kind].items():
            if names:
                typer.echo(f"{kind} {change}: {', '.join(names)}")
    for key in ("settings", "needs_restart"):
        if answer[key]:
            typer.echo(f"{key.replace('_', ' ')}: {', '.join(answer[key])}")
    for warning in answer["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


def _hold(verb: str, backend: str, gateway: str, key: str | None, *, as_json: bool) -> None:
    answer = connect(gateway, key).ask("POST", "backends", backend, verb)
    _say(answer, as_json=as_json)


def _say(answer: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        show_json(answer)
        return
    for row in answer["backends"]:
        held = f"{row['state']} (hold: {row['hold'] or 'none'})"
        typer.echo(f"{row['name']}: {held}, {row['running']} running, {row['settling']} settling")
