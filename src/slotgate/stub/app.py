"""The stub behind its sockets: which path does what."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from typing_extensions import override

from slotgate.errors import ConfigError
from slotgate.slotsim import Counters
from slotgate.stub import answers, status, texts
from slotgate.stub.answers import failure, json_answer, unsupported
from slotgate.stub.ask import AskError, chat_text, read_json, responses_text
from slotgate.stub.connection import Answer, Application, Connection, Exchange, Request
from slotgate.stub.faults import Faults
from slotgate.stub.options import Build, Fault, FaultKind, StubOptions
from slotgate.stub.shapes import WORK_PATHS
from slotgate.stub.sleep import Sleep
from slotgate.stub.work import Work, unix_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.stub.record import Observed

    Handler = Callable[[Request], Answer]

PUBLIC = frozenset({"/health", "/v1/health", "/"})
LOOP_PATHS = frozenset({"/slots", "/metrics", "/lora-adapters"})
"""Answered by the inference loop itself: a wedged one does not."""


class StubApplication(Application):
    """Answers for a simulated server, and is told its faults."""

    def __init__(self, options: StubOptions, *, exits: Callable[[], None]) -> None:
        self._options = options
        self._faults = Faults(options.faults)
        self._loop = asyncio.get_running_loop()
        self._work = Work(options, self._faults, exits=exits)
        self._connections: set[Connection] = set()
        self._is_closed = False
        self._sleep = Sleep(options.sleep_idle_seconds, self._work.observed, self._loop.time())
        self._last_scrape = Counters()
        # Polls that a wedged loop does not answer.
        self._held: dict[Exchange, Request] = {}
        self._routes = self._make_routes()
        self._work.apply_faults()

    @property
    def observed(self) -> Observed:
        return self._work.observed

    def close(self) -> None:
        """Break off every connection and stop the clockwork."""
        self._is_closed = True
        self._work.clockwork.stop()
        for connection in list(self._connections):
            connection.abort()

    def set_fault(self, fault: Fault) -> None:
        self._faults.set(fault)
        self._apply_faults()

    def clear_faults(self, kind: FaultKind | None = None) -> None:
        self._faults.clear(kind)
        self._apply_faults()

    def _apply_faults(self) -> None:
        self._work.apply_faults()
        held, self._held = self._held, {}
        for exchange, request in held.items():
            self.handle(request, exchange)

    # The connections' side.

    @override
    def connected(self, connection: Connection) -> None:
        self._connections.add(connection)
        self.observed.connections = len(self._connections)
        if self._is_closed:  # it was on its way
            connection.abort()

    @override
    def disconnected(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.observed.connections = len(self._connections)

    @override
    def precheck(self, request: Request) -> Answer | None:
        if request.path.startswith("/stub/"):
            return None
        if self._is_loading():
            is_old = self._options.build is Build.OLD
            return answers.LOADING_OLD if is_old else answers.LOADING
        if request.method == "OPTIONS" or not self._options.api_keys:
            return None
        if request.path in PUBLIC or _given_key(request) in self._options.api_keys:
            return None
        return answers.WRONG_KEY

    @override
    def handle(self, request: Request, exchange: Exchange) -> None:
        path = self._local_path(request.path)
        now = self._loop.time()
        self.observed.asked.append((path, now))
        self._sleep.asked(request.method, path, now)
        shape = WORK_PATHS.get(path) if request.method == "POST" else None
        if shape is not None:
            self._work.take(shape, request, exchange)
        elif self._work.clockwork.simulation.is_wedged and path in LOOP_PATHS:
            self._held[exchange] = request
        else:
            exchange.answer(self._answer(path, request))

    @override
    def left(self, exchange: Exchange) -> None:
        self._held.pop(exchange, None)
        self._work.left(exchange)

    # Routes.

    def _local_path(self, path: str) -> str:
        prefix = self._options.api_prefix
        return path.removeprefix(prefix) if path.startswith(prefix) else ""

    def _answer(self, path: str, request: Request) -> Answer:
        if request.method == "OPTIONS":
            return answers.PREFLIGHT
        if request.path == "/stub/fault" and request.method == "POST" and request.is_local:
            return self._control(request)
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._routes.get((method, path))
        if handler is None:
            return answers.NOT_FOUND
        try:
            return handler(request)
        except AskError as error:
            return failure(error.status, error.type, str(error))

    def _make_routes(self) -> dict[tuple[str, str], Handler]:
        slot_action = unsupported("slots action", "--slot-save-path")
        change_props = unsupported("changing global properties", "--props")
        routes: dict[tuple[str, str], Handler] = {
            ("GET", "/health"): self._health,
            ("GET", "/v1/health"): self._health,
            ("GET", "/props"): self._props,
            ("GET", "/slots"): self._slots,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/models"): self._models,
            ("GET", "/v1/models"): self._models,
            ("GET", "/lora-adapters"): lambda _: json_answer([]),
            ("POST", "/props"): lambda _: change_props,
            ("POST", "/audio/transcriptions"): lambda _: answers.NO_AUDIO,
            ("POST", "/v1/audio/transcriptions"): lambda _: answers.NO_AUDIO,
            ("POST", "/tokenize"): texts.tokenize,
            ("POST", "/detokenize"): texts.detokenize,
            ("POST", "/apply-template"): texts.apply_template,
            ("POST", "/chat/completions/input_tokens"): texts.counting(chat_text),
            ("POST", "/v1/chat/completions/input_tokens"): texts.counting(chat_text),
            ("POST", "/responses/input_tokens"): texts.counting(responses_text),
            ("POST", "/v1/responses/input_tokens"): texts.counting(responses_text),
            ("POST", "/v1/messages/count_tokens"): texts.count_messages,
        }
        for slot in range(self._options.slots):
            routes["POST", f"/slots/{slot}"] = lambda _: slot_action
        return routes

    def _is_loading(self) -> bool:
        is_young = self._work.clockwork.now() < self._options.load_seconds
        return is_young or FaultKind.LOADING in self._faults

    def _health(self, request: Request) -> Answer:
        code, body = status.health(
            self._work.clockwork.simulation.slots(self._work.clockwork.now()),
            self._options.build,
            fails="fail_on_no_slot" in request.query,
        )
        return json_answer(body, code)

    def _props(self, _: Request) -> Answer:
        is_sleeping = self._sleep.is_asleep(self._loop.time())
        return json_answer(status.props(self._options, is_sleeping=is_sleeping))

    def _slots(self, request: Request) -> Answer:
        if not self._options.has_slots:
            return unsupported("slots endpoint", "--slots")
        clockwork = self._work.clockwork
        now = clockwork.now()
        views = clockwork.simulation.slots(now)
        clockwork.simulation.poll(now)
        clockwork.turn()
        if request.query.get("fail_on_no_slot") and all(view.is_processing for view in views):
            return answers.NO_SLOT
        return json_answer(status.slots(views, self._options.build))

    def _metrics(self, _: Request) -> Answer:
        if not self._options.has_metrics:
            return unsupported("metrics endpoint", "--metrics")
        clockwork = self._work.clockwork
        now = clockwork.now()
        counters = clockwork.counters()
        before, self._last_scrape = self._last_scrape, counters
        clockwork.simulation.poll(now)
        clockwork.turn()
        return Answer(
            200,
            status.metrics(counters, before),
            "text/plain; version=0.0.4",
            # Microseconds of a monotonic clock, whatever the name says.
            (("Process-Start-Time-Unix", str(int(clockwork.started_at * 1e6))),),
        )

    def _models(self, _: Request) -> Answer:
        return json_answer(status.models(self._options, unix_time()))

    def _control(self, request: Request) -> Answer:
        """Switch faults: `{"set": "slow:3"}`, `{"clear": "slow"}`, `{"clear": "all"}`."""
        try:
            order = read_json(request.body)
            if "set" in order:
                self.set_fault(Fault.parse(str(order["set"])))
            if "clear" in order:
                kind = str(order["clear"])
                self.clear_faults(None if kind == "all" else Fault.parse(kind).kind)
        except (AskError, ConfigError) as error:
            return failure(400, "invalid_request_error", str(error))
        return json_answer({"faults": self._faults.names()})


def _given_key(request: Request) -> str:
    given = request.headers.get("authorization", "")
    if given:
        return given.removeprefix("Bearer ")
    return request.headers.get("x-api-key", "")
