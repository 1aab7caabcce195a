"""Asks a running llama-server what it has now: slots, context, model and build.

Neither the types of its cache nor whether its pool is unified can be asked.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.backends.llama_server import LlamaServer, NotAuthorizedError, Unsupported
from slotgate.errors import BackendError
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.wire.models import parse_models

if TYPE_CHECKING:
    from slotgate.wire.llama_cpp import Props

_LIMIT_BYTES = 1 << 20
_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """What a server has.

    `ctx_per_slot` is in tokens.  `model_path` is where the model is on the server's machine.
    `weights_bytes` is the size of its tensors, None if it does not say.
    `build` is llama.cpp's number, None if it is not told.
    """

    url: str
    slots: int
    ctx_per_slot: int
    model_path: str = ""
    model_alias: str = ""
    build: int | None = None
    weights_bytes: int | None = None
    notes: tuple[str, ...] = ()


def ask_server(url: str, *, api_key: str | None = None) -> RunningServer:
    """Ask; it blocks for some seconds at most.

    Raises ConfigError for what is no URL, BackendError if no llama-server answers there.
    """
    return asyncio.run(_ask(Address.parse(url), api_key))


async def _ask(address: Address, api_key: str | None) -> RunningServer:
    server = LlamaServer(str(address), Client(address), api_key=api_key)
    try:
        props = await _props(server)
        slots, ctx_per_slot, notes = await _slots(server, props)
        return RunningServer(
            url=server.name,
            slots=slots,
            ctx_per_slot=ctx_per_slot,
            model_path=props.model_path or "",
            model_alias=props.model_alias or "",
            build=props.build,
            weights_bytes=await _weights_bytes(server),
            notes=notes,
        )
    finally:
        server.close()


async def _props(server: LlamaServer) -> Props:
    try:
        props = await server.props()
    except NotAuthorizedError as error:
        raise BackendError(f"{error}; name the variable that holds it: --api-key-env") from error
    except Unsupported as error:
        raise BackendError(f"{error}: it is no llama-server") from error
    if props.role == "router":
        raise BackendError(f"{server.name} is a router; give the URL of a server behind it")
    if props.slots is None and props.ctx_per_slot is None:
        raise BackendError(
            f"{server.name}: /props tells neither slots nor context: no llama-server"
        )
    return props


async def _slots(server: LlamaServer, props: Props) -> tuple[int, int, tuple[str, ...]]:
    """How many slots of how many tokens; by `/slots`, or where it is off by `/props`."""
    try:
        views = await server.slots()
    except (Unsupported, NotAuthorizedError):
        views = ()
    contexts = [view.n_ctx for view in views if view.n_ctx]
    if contexts:
        return len(views), min(contexts), ()
    if props.slots is None or props.ctx_per_slot is None:
        raise BackendError(
            f"{server.name}: /slots is off, and /props of this build does not tell all; "
            "start the server with --slots"
        )
    return props.slots, props.ctx_per_slot, ("/slots is off there: the numbers are /props' own",)


async def _weights_bytes(server: LlamaServer) -> int | None:
    """The size of the model, as `/v1/models` tells it; nothing hangs on it."""
    exchange = server.exchange("GET", "/v1/models", (), first_byte=_TIMEOUT_SECONDS)
    try:
        await exchange.open()
        models = parse_models(await exchange.read_all(_LIMIT_BYTES))
    except BackendError:
        return None
    finally:
        exchange.close()
    return models[0].size_bytes if models else None
