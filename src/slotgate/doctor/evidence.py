"""What was seen of a server, and nothing else: the judge knows no more than this.

Rule: a value that the server did not tell is None, never a guess.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING

from typing_extensions import override

from slotgate.doctor.stated import Stated

if TYPE_CHECKING:
    from slotgate.doctor.flags import Flags
    from slotgate.runtime.kv_pool import Sharing
    from slotgate.wire.llama_cpp import Health, Props, SlotView
    from slotgate.wire.models import ListedModel

HEALTH, PROPS, MODELS, SLOTS, METRICS = "/health", "/props", "/v1/models", "/slots", "/metrics"
# What Slotgate alone answers: how each server behind it is.
READY = "/ready"
KEY_STATUSES = (401, 403)


class Trouble(StrEnum):
    """Why a route gave no answer at all."""

    UNREACHABLE = "unreachable"
    TLS = "tls"
    SILENT = "silent"
    BROKEN = "broken"


class Place(Enum):
    """From where an address can be reached."""

    HERE = auto()  # loopback, or a socket of this machine
    PRIVATE = auto()  # addresses that no router forwards to the internet
    PUBLIC = auto()


class Make(Enum):
    """What kind of server it is, as far as its answers tell."""

    LLAMA_SERVER = "llama-server"
    ROUTER = "llama-server, as a router"
    SLOTGATE = "Slotgate"
    OPENAI = "another make with OpenAI's routes"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of asking one route.

    `without_key` and `with_key` are the statuses got so, None if it was not asked so.  `message`
    says what the trouble was, or what an error's body said.  `is_late`: the time was over.
    """

    without_key: int | None = None
    with_key: int | None = None
    trouble: Trouble | None = None
    message: str = ""
    seconds: float = 0.0
    is_late: bool = False

    @property
    def status(self) -> int | None:
        """The best that could be had."""
        return self.without_key if self.with_key is None else self.with_key

    @property
    def is_open(self) -> bool:
        """Whether it needs no key."""
        return self.without_key == 200

    @override
    def __str__(self) -> str:
        return str(self.status) if self.trouble is None else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who listens at an address of this machine.

    `listens_at` are the addresses of its sockets, `connections` how many to them are held, and
    `program` is the name of what it runs.  `problem` says why its flags are not known;
    `is_hidden`: because this user may not see them.
    """

    listens_at: tuple[str, ...]
    connections: int = 0
    pid: int | None = None
    program: str = ""
    flags: Flags | None = None
    problem: str = ""
    is_hidden: bool = False

    @property
    def beyond(self) -> tuple[str, ...]:
        """Those of its addresses that other machines may reach."""
        return tuple(each for each in self.listens_at if not _is_loopback(each))


def _is_loopback(at: str) -> bool:
    return at.startswith("/") or ipaddress.ip_address(at).is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The slots at one moment, in seconds of a clock that only goes on."""

    at: float
    slots: tuple[SlotView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What `/metrics` counted, as of the server's last batch.

    `prompt_tokens` is how many tokens of prompts were read since it started, in `prompt_seconds`.
    """

    processing: int | None = None
    deferred: int | None = None
    prompt_tokens: float = 0.0
    prompt_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A server behind a gateway of ours: its name, the gateway's word for how it is, and why."""

    name: str
    state: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What requests of ours have met.  Rates are tokens a second.

    `usual_gap` is the median time between two tokens of a stream, `worst_gap` the longest while
    a prompt of `prompt_tokens` was read in another slot, both in seconds; None: not measured.
    `piece_tokens` is how much of it was read at once, where the build tells.

    Tokens came in lumps of `lump_tokens`, in the mean, with a median of `lump_gap` seconds between
    two lumps; with nothing in between that keeps them back, a lump is one token.

    `refusal` says why nothing, or not all, was measured; `failure` what went wrong with it.
    """

    usual_gap: float | None = None
    worst_gap: float | None = None
    prompt_tokens: int = 0
    prefill_rate: float | None = None
    piece_tokens: int | None = None
    lump_tokens: float = 1.0
    lump_gap: float = 0.0
    refusal: str = ""
    failure: str = ""

    @property
    def decode_rate(self) -> float | None:
        return 1 / self.usual_gap if self.usual_gap else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one server.

    `model` is set where it is not the server itself but this model of a router that was examined.
    `answers` are by route, in the order in which they were asked.  `any_origin` is whether it lets
    web pages of a foreign origin read its answers.  `local_bytes` is the memory of this machine,
    where the server runs on it, and `listener` who listens there.  `trained_in_file` is the context
    for which its model was trained, as the file says.  `read_flags` are its flags as they were
    found, without the operator.
    """

    url: str
    model: str | None = None
    place: Place = Place.HERE
    is_encrypted: bool = False
    has_key: bool = False
    answers: Mapping[str, Answer] = field(default_factory=dict)
    health: Health | None = None
    has_queue: bool = False
    props: Props | None = None
    models: tuple[ListedModel, ...] = ()
    counted: Counted | None = None
    behind: tuple[Behind, ...] = ()
    looks: tuple[Look, ...] = ()
    sharing: Sharing | None = None
    any_origin: bool = False
    local_bytes: int | None = None
    listener: Listener | None = None
    trained_in_file: int | None = None
    read_flags: Flags | None = None
    measured: Measured | None = None
    stated: Stated = field(default_factory=Stated)

    @property
    def name(self) -> str:
        """What was examined."""
        return self.url if self.model is None else f"{self.url}, model {self.model}"

    @property
    def first(self) -> str:
        """The route that was asked first; a router answers for its own health alone."""
        return HEALTH if self.model is None else PROPS

    def status(self, route: str) -> int | None:
        answer = self.answers.get(route)
        return None if answer is None else answer.status

    @property
    def make(self) -> Make:
        if self.has_queue:
            return Make.SLOTGATE
        props = self.props
        if props is not None and props.role == "router":
            return Make.ROUTER
        if props is not None and (props.slots or props.ctx_per_slot or props.build_info):
            return Make.LLAMA_SERVER
        return Make.OPENAI if self.models else Make.UNKNOWN

    @property
    def flags(self) -> Flags | None:
        """What it was started with: as the operator says, else as was found."""
        return self.read_flags if self.stated.flags is None else self.stated.flags

    @property
    def is_sleeping(self) -> bool:
        return self.props is not None and self.props.is_sleeping

    @property
    def build(self) -> int | None:
        return None if self.props is None else self.props.build

    @property
    def slots(self) -> int | None:
        """How many: as `/slots` shows, else as `/props` says."""
        if self.looks:
            return len(self.looks[-1].slots)
        return None if self.props is None else self.props.slots

    @property
    def ctx_per_slot(self) -> int | None:
        """Tokens of the smallest slot."""
        shown = [slot.n_ctx for slot in self.looks[-1].slots if slot.n_ctx] if self.looks else []
        if shown:
            return min(shown)
        return None if self.props is None else self.props.ctx_per_slot

    @property
    def idle_slots(self) -> int | None:
        """How many were idle at the last look, or else by the metrics."""
        if self.looks:
            return sum(not slot.is_processing for slot in self.looks[-1].slots)
        if self.counted is None or self.counted.processing is None or self.slots is None:
            return None
        return self.slots - self.counted.processing

    @property
    def trained(self) -> int | None:
        """Tokens that the model was trained for."""
        return self.models[0].ctx_train if self.models else None

    @property
    def size(self) -> tuple[int, int] | None:
        """Slots, and tokens of each, if both are known; of a gateway they are sums, and none."""
        if self.make is Make.SLOTGATE:
            return None
        slots, context = self.slots, self.ctx_per_slot
        return None if not slots or not context else (slots, context)
