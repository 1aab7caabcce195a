"""What a stub llama-server is told to be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from slotgate.errors import ConfigError
from slotgate.slotsim import Pace, ServerSpec

BYTES_PER_TOKEN = 4
"""The stub's tokenizer: so many bytes of text are a token."""


class Build(StrEnum):
    """Which generation of llama.cpp: they differ in `/slots` and `/health`."""

    OLD = "old"  # early 2024: /health counts slots, /slots has a numeric `state`
    MIDDLE = "middle"  # 2025: `is_processing`, `next_token` is an object, prompts are shown
    NEW = "new"  # late 2026


class FaultKind(StrEnum):
    """A way to misbehave."""

    WEDGE = "wedge"  # after ARG tokens of any answer nothing comes; /slots hangs, /health is 200
    ZOMBIE = "zombie"  # slots go on with the work of clients that left
    SLOW = "slow"  # everything takes ARG times as long
    ERRORS500 = "errors500"  # the part ARG of requests gets a 500 when it would start
    DIES = "dies"  # the connection is reset after ARG tokens
    EXITS = "exits"  # the whole server ends after ARG tokens of any answer
    LOADING = "loading"  # 503 "Loading model" to everything
    SILENT = "silent"  # requests are read and never answered
    ERROR_IN_STREAM = "error_in_stream"  # a stream breaks with a KV error after ARG tokens
    FAST500 = "fast500"  # every request gets a 500 at once
    FAST503 = "fast503"  # every request gets a 503 at once, as from a proxy without a server


DEFAULT_ARGUMENTS = {
    FaultKind.WEDGE: 20.0,
    FaultKind.SLOW: 10.0,
    FaultKind.ERRORS500: 1.0,
    FaultKind.DIES: 10.0,
    FaultKind.EXITS: 10.0,
    FaultKind.ERROR_IN_STREAM: 10.0,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and its argument (0.0 where it takes none)."""

    kind: FaultKind
    argument: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read `NAME` or `NAME:ARG`."""
        name, _, argument = text.partition(":")
        try:
            kind = FaultKind(name)
            value = float(argument) if argument else DEFAULT_ARGUMENTS.get(kind, 0.0)
        except ValueError as error:
            known = ", ".join(FaultKind)
            raise ConfigError(f"--fault {text}: expected NAME or NAME:NUMBER; {known}") from error
        return cls(kind, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StubOptions:
    """Everything has a default; `port` 0 takes a free one.

    `ctx` is what a slot may hold and, with `unified`, what all of them share.  `decode` is tokens
    a second and slot, `prefill` tokens a second, 0 in either: at once; `curve` gives `decode` by
    busy slots instead.  `output_tokens` is where the model stops by itself, None: never.
    `ctx_train` is what the model was trained for, None: as much as `ctx`.  `build_info` is what
    `/props` calls the build.  After `sleep_idle_seconds` without work it sleeps, None: never.
    With `speed` 2 everything but timeouts of sockets takes half the time.
    """

    host: str = "127.0.0.1"
    port: int = 0
    slots: int = 4
    ctx: int = 4096
    decode: float = 40.0
    curve: tuple[tuple[int, float], ...] = ()
    prefill: float = 1000.0
    batch: int = 2048
    unified: bool = False
    output_tokens: int | None = 128
    model: str = "stub"
    api_keys: tuple[str, ...] = ()
    api_prefix: str = ""
    load_seconds: float = 0.0
    speed: float = 1.0
    build: Build = Build.NEW
    has_slots: bool = True
    has_metrics: bool = True
    embeddings: bool = False
    reranking: bool = False
    keep_alive_seconds: float = 5.0
    ping_interval: float = 30.0
    ctx_train: int | None = None
    build_info: str = "b11434-stub"
    sleep_idle_seconds: float | None = None
    faults: tuple[Fault, ...] = ()

    def server_spec(self) -> ServerSpec:
        return ServerSpec(
            slots=self.slots,
            ctx=self.ctx,
            pace=self._pace(),
            pool=self.ctx if self.unified else None,
            batch=self.batch,
        )

    def _pace(self) -> Pace:
        prefill = self.prefill or inf
        if self.curve:
            return Pace.curve(dict(self.curve), slots=self.slots, prefill=prefill)
        if self.decode:
            return Pace.constant(self.decode, slots=self.slots, prefill=prefill)
        return Pace((0.0,) * (self.slots + 1), prefill)


def parse_curve(text: str) -> tuple[tuple[int, float], ...]:
    """Read `1:40,2:35,8:14`: tokens a second and slot, by busy slots."""
    try:
        points = tuple(
            (int(busy), float(rate)) for busy, rate in (p.split(":") for p in text.split(",") if p)
        )
    except ValueError as error:
        raise ConfigError(f"--curve {text}: expected BUSY:RATE,BUSY:RATE,...") from error
    if any(busy < 1 or rate <= 0 for busy, rate in points):
        raise ConfigError(f"--curve {text}: slots and rates must be positive")
    return points
