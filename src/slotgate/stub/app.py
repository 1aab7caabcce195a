"""The stub behind its sockets: which path does what, and the simulation's clockwork."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import override

from slotgate.errors import ConfigError
from slotgate.slotsim import Counters, SimulatedServer
from slotgate.stub import status
from slotgate.stub.ask import (
    AskError,
    chat_text,
    count_tokens,
    messages_text,
    read_ask,
    read_json,
    responses_text,
)
from slotgate.stub.connection import Answer, Application, Connection, Exchange, Request
from slotgate.stub.faults import Faults
from slotgate.stub.jobs import COMPUTE_MESSAGE, Jobs
from slotgate.stub.options import BYTES_PER_TOKEN, Build, Fault, FaultKind, StubOptions
from slotgate.stub.record import Observed, Outcome, RequestRecord
from slotgate.stub.shapes import WORK_PATHS, Shape
from slotgate.stub.status import early_error_body, error_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.stub.ask import Body

PUBLIC = ("/health", "/v1/health", "/")


def json_answer(value: Any, code: int = 200) -> Answer:
    return Answer(code, msgspec.json.encode(value))


class StubApplication(Application):
    """Answers requests out of a simulated server that runs by the event loop's clock."""

    def __init__(self, options: StubOptions, *, exits: Callable[[], None]) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._sim = SimulatedServer(options.server_spec())
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf
        self._connections: set[Connection] = set()
        self._last_scrape = Counters()
        self._number = 0
        # Requests that a wedged loop or a silent server does not answer.
        self._held: dict[Exchange, Request] = {}
        self.observed = Observed()
        self.faults = Faults()
        self._jobs = Jobs(options, self.faults, self.observed, give_up=self._give_up, exits=exits)
        self._routes = self._make_routes()
        for fault in options.faults:
            self.set_fault(fault)

    def close(self) -> None:
        """Break off every connection and stop the clockwork."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._connections):
            connection.abort()

    # Faults.

    def set_fault(self, fault: Fault) -> None:
        self.faults.set(fault)
        self._apply_faults()

    def clear_faults(self, kind: FaultKind | None = None) -> None:
        self.faults.clear(kind)
        self._apply_faults()

    def _apply_faults(self) -> None:
        now = self._now()
        self._sim.wedge_after(self.faults.tokens(FaultKind.WEDGE), now)
        self._sim.slow_down(self.faults.argument(FaultKind.SLOW) or 1.0, now)
        self._sim.keep_cancelled(keeps=FaultKind.ZOMBIE in self.faults)
        held, self._held = self._held, {}
        for exchange, request in held.items():
            self.handle(request, exchange)
        self._pump()

    # The connections' side.

    @override
    def connected(self, connection: Connection) -> None:
        self._connections.add(connection)
        self.observed.connections = len(self._connections)

    @override
    def disconnected(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.observed.connections = len(self._connections)

    @override
    def precheck(self, request: Request) -> Answer | None:
        if request.path.startswith("/stub/"):
            return None
        if self._is_loading():
            return self._loading_answer()
        if request.method == "OPTIONS" or not self._options.api_keys:
            return None
        if request.path in PUBLIC or _given_key(request) in self._options.api_keys:
            return None
        body = early_error_body(401, "authentication_error", "Invalid API Key")
        return Answer(401, body)

    @override
    def handle(self, request: Request, exchange: Exchange) -> None:
        if request.method == "OPTIONS":
            exchange.answer(_PREFLIGHT)
            return
        if request.path.startswith("/stub/"):
            exchange.answer(self._control(request))
            return
        path = request.path.removeprefix(self._options.api_prefix)
        if not request.path.startswith(self._options.api_prefix):
            path = ""
        shape = WORK_PATHS.get(path) if request.method == "POST" else None
        if shape is not None:
            self._work(shape, request, exchange)
            return
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._routes.get((method, path))
        if handler is None:
            exchange.answer(Answer(404, early_error_body(404, "not_found_error", "File Not Found")))
        elif self._sim.is_wedged and path in _LOOP_PATHS:
            self._held[exchange] = request
        else:
            exchange.answer(self._guarded(handler, request))

    @override
    def left(self, exchange: Exchange) -> None:
        self._held.pop(exchange, None)
        number = self._jobs.find(exchange)
        if number is not None:
            self._jobs.abandon(number, self._loop.time())
            self._give_up(number)

    # Work.

    def _work(self, shape: Shape, request: Request, exchange: Exchange) -> None:
        self._number += 1
        now = self._loop.time()
        record = RequestRecord(
            number=self._number,
            path=request.path,
            headers=request.headers,
            body=request.body,
            arrived_at=now,
        )
        self.observed.add(record)
        refusal = self._refusal(shape)
        if FaultKind.SILENT in self.faults:
            self._held[exchange] = request
            return
        if refusal is None:
            try:
                ask = read_ask(
                    shape,
                    request.body,
                    slots=self._options.slots,
                    ping_interval=self._options.ping_interval,
                )
            except AskError as error:
                refusal = Answer(error.status, error_body(error.status, error.type, str(error)))
            else:
                job = self._jobs.add(ask, exchange, record, created=_unix_time())
                self._sim.submit(job, self._now())
                self._pump()
                return
        record.status = refusal.status
        exchange.answer(refusal)
        self.observed.end(record, Outcome.COMPLETED, now)

    def _refusal(self, shape: Shape) -> Answer | None:
        if FaultKind.FAST500 in self.faults:
            return Answer(500, error_body(500, "server_error", COMPUTE_MESSAGE))
        if shape in {Shape.EMBEDDING, Shape.OPENAI_EMBEDDING} and not self._options.embeddings:
            return _unsupported("embeddings", "--embeddings")
        if shape is Shape.RERANK and not self._options.reranking:
            return _unsupported("reranking", "--reranking")
        return None

    def _give_up(self, number: int) -> None:
        """Let the simulation see the client gone."""
        self._sim.disconnect(number, self._now())
        self._pump()

    # The clockwork.

    def _now(self) -> float:
        return (self._loop.time() - self._origin) * self._options.speed

    def _pump(self) -> None:
        """Carry out what is due, and come back when more is."""
        now = self._now()
        for event in self._sim.advance(now):
            self._jobs.carry_out(event, self._loop.time())
        self.observed.deferred = self._sim.deferred
        self.observed.max_deferred = self._sim.max_deferred
        due = self._sim.next_event_time()
        if due != self._timer_due:
            self._set_timer(due)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due < inf:
            at = self._origin + due / self._options.speed
            self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_due = None, inf
        self._pump()

    # Routes.

    def _make_routes(self) -> dict[tuple[str, str], Callable[[Request], Answer]]:
        return {
            ("GET", "/health"): self._health,
            ("GET", "/v1/health"): self._health,
            ("GET", "/props"): lambda _: json_answer(status.props(self._options)),
            ("GET", "/slots"): self._slots,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/models"): self._models,
            ("GET", "/v1/models"): self._models,
            ("GET", "/lora-adapters"): lambda _: json_answer([]),
            ("POST", "/props"): lambda _: _unsupported("changing global properties", "--props"),
            ("POST", "/tokenize"): _tokenize,
            ("POST", "/audio/transcriptions"): lambda _: _NO_AUDIO,
            ("POST", "/v1/audio/transcriptions"): lambda _: _NO_AUDIO,
            ("POST", "/detokenize"): _detokenize,
            ("POST", "/apply-template"): lambda request: json_answer(
                {"prompt": chat_text(read_json(request.body))}
            ),
            ("POST", "/chat/completions/input_tokens"): _counting(chat_text),
            ("POST", "/v1/chat/completions/input_tokens"): _counting(chat_text),
            ("POST", "/responses/input_tokens"): _counting(responses_text),
            ("POST", "/v1/responses/input_tokens"): _counting(responses_text),
            ("POST", "/v1/messages/count_tokens"): _count_messages,
            **{
                ("POST", f"/slots/{slot}"): lambda _: _unsupported(
                    "slots action", "--slot-save-path"
                )
                for slot in range(self._options.slots)
            },
        }

    @staticmethod
    def _guarded(handler: Callable[[Request], Answer], request: Request) -> Answer:
        try:
            return handler(request)
        except AskError as error:
            return Answer(error.status, error_body(error.status, error.type, str(error)))

    def _is_loading(self) -> bool:
        return FaultKind.LOADING in self.faults or self._now() < self._options.load_seconds

    def _loading_answer(self) -> Answer:
        if self._options.build is Build.OLD:
            return json_answer({"status": "loading model"}, 503)
        return Answer(503, early_error_body(503, "unavailable_error", "Loading model"))

    def _health(self, request: Request) -> Answer:
        code, body = status.health(
            self._sim.slots(self._now()),
            self._options.build,
            fails="fail_on_no_slot" in request.query,
        )
        return json_answer(body, code)

    def _slots(self, request: Request) -> Answer:
        if not self._options.has_slots:
            return _unsupported("slots endpoint", "--slots")
        now = self._now()
        views = self._sim.slots(now)
        self._sim.poll(now)
        self._pump()
        if request.query.get("fail_on_no_slot") and all(view.is_processing for view in views):
            return Answer(503, error_body(503, "unavailable_error", "no slot available"))
        return json_answer(status.slots(views, self._options.build))

    def _metrics(self, _: Request) -> Answer:
        if not self._options.has_metrics:
            return _unsupported("metrics endpoint", "--metrics")
        now = self._now()
        counters = self._sim.metrics(now)
        before, self._last_scrape = self._last_scrape, counters
        self._sim.poll(now)
        self._pump()
        return Answer(
            200,
            status.metrics(counters, before),
            "text/plain; version=0.0.4",
            (("Process-Start-Time-Unix", str(int(self._origin * 1e6))),),
        )

    def _models(self, _: Request) -> Answer:
        return json_answer(status.models(self._options, _unix_time()))

    # The stub's own routes.

    def _control(self, request: Request) -> Answer:
        if (request.method, request.path) != ("POST", "/stub/fault"):
            return Answer(404, early_error_body(404, "not_found_error", "File Not Found"))
        try:
            order = read_json(request.body)
            if "set" in order:
                self.set_fault(Fault.parse(str(order["set"])))
            if "clear" in order:
                kind = order["clear"]
                self.clear_faults(None if kind == "all" else Fault.parse(str(kind)).kind)
        except (AskError, ConfigError) as error:
            return Answer(400, error_body(400, "invalid_request_error", str(error)))
        return json_answer({"faults": self.faults.names()})


_LOOP_PATHS = frozenset({"/slots", "/metrics", "/lora-adapters"})
_PREFLIGHT = Answer(
    200,
    content_type="text/html",
    headers=(
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"),
        ("Access-Control-Allow-Headers", "*"),
    ),
)


_NO_AUDIO = Answer(
    501,
    error_body(501, "not_supported_error", "The current model does not support audio input."),
)


def _unix_time() -> int:
    return int(datetime.now(UTC).timestamp())


def _given_key(request: Request) -> str:
    given = request.headers.get("authorization", "")
    if given:
        return given.removeprefix("Bearer ")
    return request.headers.get("x-api-key", "")


def _unsupported(what: str, flag: str) -> Answer:
    message = f"This server does not support {what}. Start it with `{flag}`"
    return Answer(501, error_body(501, "not_supported_error", message))


def _tokenize(request: Request) -> Answer:
    data = read_json(request.body)
    content = data.get("content", "")
    text = (content if isinstance(content, str) else "").encode()
    pieces = [text[at : at + BYTES_PER_TOKEN] for at in range(0, len(text), BYTES_PER_TOKEN)]
    ids = [int.from_bytes(piece, "big") for piece in pieces]
    if not data.get("with_pieces"):
        return json_answer({"tokens": ids})
    texts = [piece.decode(errors="replace") for piece in pieces]
    named = [{"id": token, "piece": text} for token, text in zip(ids, texts, strict=True)]
    return json_answer({"tokens": named})


def _detokenize(request: Request) -> Answer:
    tokens = read_json(request.body).get("tokens", [])
    text = b"".join(
        token.to_bytes(max(1, -(-token.bit_length() // 8)), "big")
        for token in tokens
        if isinstance(token, int) and 0 <= token < 1 << 32
    )
    return json_answer({"content": text.decode(errors="replace")})


def _counting(text: Callable[[Body], str]) -> Callable[[Request], Answer]:
    def count(request: Request) -> Answer:
        tokens = count_tokens(text(read_json(request.body))).tokens
        return json_answer({"input_tokens": tokens, "object": "response.input_tokens"})

    return count


def _count_messages(request: Request) -> Answer:
    return json_answer(
        {"input_tokens": count_tokens(messages_text(read_json(request.body))).tokens}
    )
