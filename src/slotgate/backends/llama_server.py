"""A llama-server, or another server of its API, that is already running somewhere."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec

from slotgate.errors import BackendError, BrokenAnswerError, UnreachableError
from slotgate.wire import llama_cpp
from slotgate.wire.counting import TOKENIZE
from slotgate.wire.models import parse_models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slotgate.core.deployment import Residence
    from slotgate.net.client import Client
    from slotgate.net.exchange import Exchange
    from slotgate.wire.models import ListedModel

# Control answers are small; a slot list with 256 slots is about 300 KiB.
# A million tokens take about 8 MiB.
CONTROL_LIMIT_BYTES = 16 << 20
CONTROL_TIMEOUT_SECONDS = 5.0
# Its threads answer this in a millisecond, whatever the slots do.
HEALTH_TIMEOUT_SECONDS = 2.0


class Unsupported(BackendError):  # noqa: N818 - a condition, not a fault
    """The server does not offer this endpoint (404 or 501)."""


class NotAuthorizedError(BackendError):
    """The server wants an API key, or another one."""


class LlamaServer:
    """Speaks to one llama-server: generations through `exchange`, its state through the rest.

    The state methods raise `BackendError`: `Unsupported`, `NotAuthorizedError`, or the client's.
    """

    def __init__(self, name: str, client: Client | None, *, api_key: str | None = None) -> None:
        """`client` is None while it is not known yet where the server will listen."""
        self.name = name
        self._client = client
        self._auth: tuple[tuple[bytes, bytes], ...] = ()
        if api_key is not None:
            self._auth = ((b"authorization", b"Bearer " + api_key.encode()),)

    def exchange(  # noqa: PLR0913 - a request is what it is
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes = b"",
        *,
        single_use: bool = False,
        first_byte: float | None = None,
        on_complete: Callable[[], None] | None = None,
    ) -> Exchange:
        """Return an exchange that has not begun; our key for the backend is added here."""
        return self._reach().exchange(
            method,
            target,
            (*headers, *self._auth),
            body,
            single_use=single_use,
            first_byte=first_byte,
            on_complete=on_complete,
        )

    # What a router has that any other server has not; see `backends.router`.

    @property
    def is_awake(self) -> bool:
        """Whether it may be asked for its slots without being loaded or woken by that."""
        return True

    @property
    def residence(self) -> Residence | None:
        """Where its model shares its place with others."""
        return None

    def addressed(self, body: bytes, named: str | None) -> bytes:
        """Return a request's body under the model name that the server knows."""
        return body

    def free_target(self, target: str) -> str:
        """Return the target of a request that takes no slot and must not load a model."""
        return target

    @property
    def heard_at(self) -> float:
        """When a part of an answer last came, by the loop's time."""
        return -inf if self._client is None else self._client.heard_at

    async def health(self) -> llama_cpp.Health:
        status, body = await self._call("GET", "/health", timeout=HEALTH_TIMEOUT_SECONDS)
        if status == 404:
            # Ollama and llama-cpp-python have none; any answer to this shows that they serve.
            status, _ = await self._call("GET", "/v1/models", timeout=HEALTH_TIMEOUT_SECONDS)
            body, status = b"", 200 if status < 500 else status
        return llama_cpp.parse_health(status, body)

    async def props(self) -> llama_cpp.Props:
        return llama_cpp.parse_props(await self._get_ok("/props"))

    async def slots(self) -> tuple[llama_cpp.SlotView, ...]:
        return llama_cpp.parse_slots(await self._get_ok("/slots"))

    async def models(self) -> tuple[ListedModel, ...]:
        return parse_models(await self._get_ok("/v1/models"))

    async def metrics(self) -> bytes:
        return await self._get_ok("/metrics")

    async def count_tokens(
        self, target: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> int:
        """Ask for a prompt's exact length in tokens, or for these themselves; needs no slot."""
        status, answer = await self._call("POST", target, body, headers)
        if status != 200:
            raise Unsupported(f"{self.name}: {target} answered {status}")
        try:
            told = msgspec.json.decode(answer)
            is_list = target.partition("?")[0] == TOKENIZE
            return len(told["tokens"]) if is_list else int(told["input_tokens"])
        except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
            raise BrokenAnswerError(f"{self.name}: {target} told no number of tokens") from error

    @property
    def is_reachable(self) -> bool:
        """Whether it is known where to send anything."""
        return self._client is not None

    def close(self) -> None:
        """Close the idle connections; exchanges that run go on."""
        if self._client is not None:
            self._client.close()

    def _reach(self) -> Client:
        if self._client is None:
            raise UnreachableError(f"{self.name} was not started yet")
        return self._client

    async def _get_ok(self, target: str) -> bytes:
        status, body = await self._get(target)
        if status in {404, 501}:
            raise Unsupported(f"{self.name}: {target} answered {status}")
        if status in {401, 403}:
            raise NotAuthorizedError(f"{self.name}: {target} wants an API key ({status})")
        if status != 200:
            raise BrokenAnswerError(f"{self.name}: {target} answered {status}")
        return body

    async def _get(self, target: str) -> tuple[int, bytes]:
        return await self._call("GET", target)

    async def _call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
        *,
        timeout: float = CONTROL_TIMEOUT_SECONDS,
    ) -> tuple[int, bytes]:
        exchange = self._reach().exchange(
            method,
            target,
            (*headers, *self._auth),
            body,
            first_byte=timeout,
        )
        try:
            await exchange.open()
            return exchange.status, await exchange.read_all(CONTROL_LIMIT_BYTES)
        finally:
            exchange.close()
