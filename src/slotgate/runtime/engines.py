"""Keeps the engines that we start alive: one that dies is started again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.engine_plan import EngineWish, plan_engine
from slotgate.backends.managed import ManagedServer
from slotgate.backends.models import resolve_model
from slotgate.errors import SlotgateError
from slotgate.telemetry.events import Event
from slotgate.telemetry.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.config import ManagedSettings
    from slotgate.runtime.probes import Probe
    from slotgate.telemetry.logs import Logger

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
# An engine that ran for this long has recovered: the next pause is the first again.
STEADY_SECONDS = 60.0
STOP_GRACE_SECONDS = 5.0


async def start_engine(settings: ManagedSettings, announce: Callable[[str], None]) -> ManagedServer:
    """Find the model, plan what fits, and start llama.cpp on it.

    Raises `ModelError` or `ConfigError`, saying why in plain words; nothing is left behind then.
    """
    model = await resolve_model(settings.model_spec, progress=announce)
    binary = settings.llama_server_path
    wish = EngineWish(
        parallel=settings.parallel,
        ctx_per_slot=settings.ctx_per_slot,
        memory=settings.memory,
        cache_type=settings.cache_type,
        kv_unified=settings.kv_unified,
        threads=settings.threads,
        llama_server=Path(binary) if binary is not None else None,
        args=settings.args,
    )
    plan = await plan_engine(model, settings.alias or model.name, wish)
    for sentence in plan.sentences:
        announce(sentence)
    engine = ManagedServer(plan.options, announce)
    await engine.start()
    return engine


class Supervisor:
    """Watches one running engine and starts it again, each time after a longer pause."""

    def __init__(self, engine: ManagedServer, probe: Probe, logger: Logger) -> None:
        self._engine = engine
        self._probe = probe
        self._logger = logger
        probe.is_supervised = True

    async def run(self) -> None:
        """Go on until cancelled."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = loop.time()
            status = await self._engine.wait_exit()
            if loop.time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._tell(Event.ENGINE_EXITED, status=status, last=self._engine.log_tail()[-1:])
            self._probe.is_restarting = True
            self._probe.poke()
            self._tell(Event.ENGINE_RESTARTING, pause=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            await self._start()
            self._probe.poke()

    async def _start(self) -> None:
        try:
            await self._engine.start()
        except SlotgateError as error:
            # It has ended again, which `wait_exit` says at once.
            self._tell(Event.ENGINE_EXITED, why=str(error))
        else:
            self._probe.is_restarting = False

    def _tell(self, event: Event, **fields: object) -> None:
        log(self._logger, event, backend=self._probe.backend.name, **fields)
