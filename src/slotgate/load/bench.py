"""A whole benchmark of one server: look at it, measure what it can do, load it, and report."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slotgate.errors import ConfigError
from slotgate.load.asking import Asking
from slotgate.load.backoff import ClientKind
from slotgate.load.capacity import Rate
from slotgate.load.generate import Bounds, Generator
from slotgate.load.measure import look_at, measure_capacity
from slotgate.load.report import Report, make_report
from slotgate.load.run import Run, Targets
from slotgate.load.visit import Visiting
from slotgate.load.workloads import RECIPES, Plan, Workload, make_workload
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slotgate.load.arrival import Arrival
    from slotgate.load.dice import Dice
    from slotgate.load.lengths import LengthClass

# Patience is the clients' affair; these only end what would hang for ever.
_TIMEOUTS: Final = Timeouts(connect=10.0, first_byte=3600.0, idle=3600.0)
DEFAULT_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to send where.

    `trace`, if given, is sent in the place of a workload.  `keys` are API keys by tenant, and ""
    has the key of all others.  Without `capacity` (requests a second) it is measured first, by
    `at_once` clients for `measure_seconds`.
    """

    url: str
    workload: str = "overload"
    trace: tuple[Arrival, ...] | None = None
    load: float | None = None
    hog_share: float = 0.8
    capacity: float | None = None
    at_once: int | None = None
    measure_seconds: float = 10.0
    kinds: Mapping[str, LengthClass]
    seconds: float = 60.0
    seeds: tuple[int, ...] = (1,)
    patience: float = 30.0
    targets: Targets = field(default_factory=Targets)
    retries: ClientKind | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    exact_lengths: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    most_requests: int = 100_000


@dataclass(frozen=True, slots=True)
class Benched:
    """The report, and whether somebody stopped it before its end."""

    report: Report
    was_stopped: bool


class Bench:
    """One benchmark.  `stop` may be called at any moment: `run` then reports what there is."""

    def __init__(
        self,
        options: BenchOptions,
        *,
        make_dice: Callable[[int], Dice],
        announce: Callable[[str], None],
    ) -> None:
        self._options = options
        self._make_dice = make_dice
        self._announce = announce
        # SDKs are given the URL with its version, people give it without.
        address = Address.parse(options.url.rstrip("/").removesuffix("/v1"))
        self._client = Client(address, timeouts=_TIMEOUTS)
        self._generator: Generator | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()
        if self._generator is not None:
            self._generator.stop()

    async def run(self) -> Benched:
        """Run once for each seed; ConfigError if the server cannot be measured at all."""
        options = self._options
        served = await look_at(self._client, self._headers(""))
        model = options.model or served.model
        at_once = options.at_once or served.slots or DEFAULT_AT_ONCE
        capacity = options.capacity
        if capacity is None and options.trace is None:
            self._announce(f"measuring what {options.url} can do, {at_once} requests at once")
            shared = self._visiting(model, self._make_dice(0), ClientKind.NONE)
            capacity = await measure_capacity(
                shared,
                options.kinds,
                at_once=at_once,
                seconds=options.measure_seconds,
                stopped=self._stopped,
            )
            if self._stopped.is_set():
                raise ConfigError("stopped before anything was sent")
            self._announce(f"it serves {capacity:.2f} requests/s of these lengths")
        runs: list[Run] = []
        notes: list[str] = []
        for seed in options.seeds:
            if runs and self._stopped.is_set():
                break
            run, said = await self._run(seed, model, capacity)
            runs.append(run)
            notes += [note for note in said if note not in notes]
        self._client.close()
        report = make_report(
            runs,
            title=f"{options.workload if options.trace is None else 'trace'} on {options.url}",
            targets=options.targets,
            facts=self._facts(model, capacity, runs),
            notes=notes,
        )
        return Benched(report, self._stopped.is_set())

    async def _run(
        self, seed: int, model: str | None, capacity: float | None
    ) -> tuple[Run, list[str]]:
        dice = self._make_dice(seed)
        workload = self._workload(dice, capacity)
        kind = self._options.retries or (ClientKind.OPENAI if workload.retries else ClientKind.NONE)
        generator = Generator(self._visiting(model, dice, kind), self._options.bounds)
        self._generator = generator
        if self._stopped.is_set():
            generator.stop()
        self._announce(
            f"sending {len(workload.arrivals)} requests in {workload.seconds:.0f} s (seed {seed})"
        )
        gathered = await generator.run(workload.arrivals, workload.seconds)
        run = Run(
            records=tuple(gathered.records),
            seconds=gathered.seconds,
            seed=seed,
            heavy=workload.heavy,
            burst_ended_at=workload.burst_ended_at,
        )
        return run, gathered.notes

    def _workload(self, dice: Dice, capacity: float | None) -> Workload:
        options = self._options
        if options.trace is not None:
            seconds = min(options.seconds, options.trace[-1].at + 1.0)
            within = tuple(arrival for arrival in options.trace if arrival.at < seconds)
            made = Workload(name="trace", seconds=seconds, arrivals=within)
        else:
            plan = Plan(
                capacity=Rate(capacity or 1.0),
                dice=dice,
                seconds=options.seconds,
                load=options.load,
                hog_share=options.hog_share,
                patience=options.patience,
                kinds=options.kinds,
            )
            made = make_workload(options.workload, plan)
        if not made.arrivals:
            raise ConfigError("the load has no request in this time; make it longer or larger")
        if len(made.arrivals) > options.most_requests:
            raise ConfigError(
                f"the load has {len(made.arrivals)} requests, more than --max-requests "
                f"{options.most_requests}"
            )
        return made

    def _visiting(self, model: str | None, dice: Dice, kind: ClientKind) -> Visiting:
        return Visiting(
            client=self._client,
            target="/v1/chat/completions",
            headers=self._headers,
            body=Asking(model=model, exact_lengths=self._options.exact_lengths).body,
            kind=kind,
            dice=dice,
        )

    def _headers(self, tenant: str) -> Sequence[tuple[bytes, bytes]]:
        key = self._options.keys.get(tenant, self._options.keys.get("", ""))
        return [(b"authorization", b"Bearer " + key.encode())] if key else []

    def _facts(
        self, model: str | None, capacity: float | None, runs: Sequence[Run]
    ) -> dict[str, str]:
        facts = {"requests": str(sum(len(run.records) for run in runs))}
        if model is not None:
            facts["model"] = model
        if capacity is not None and self._options.trace is None:
            load = self._options.load
            facts["load"] = f"{RECIPES[self._options.workload].load if load is None else load:g}"
            facts["capacity"] = f"{capacity:.2f} requests/s"
        return facts
