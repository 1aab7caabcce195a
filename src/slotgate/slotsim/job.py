"""What a simulated server is asked to do, and what it answers: values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


class Work(Enum):
    """What a slot does for a request."""

    GENERATE = auto()
    EMBED = auto()  # embeddings and reranking: one pass over the prompt, no output


class Stop(StrEnum):
    """Why a generation ended, in llama-server's words (`stop_type`)."""

    LIMIT = "limit"
    EOS = "eos"
    NONE = "none"


class Fault(StrEnum):
    """Why a task failed."""

    EXCEEDS_CONTEXT = "exceeds_context"  # its prompt does not fit the slot
    EXCEEDS_BATCH = "exceeds_batch"  # an embedding's input must fit one batch
    POOL_EXHAUSTED = "pool_exhausted"  # the shared KV pool overflowed: everyone fails


@dataclass(frozen=True, slots=True)
class Prompt:
    """`tokens` to read.

    `text` only serves to find a common prefix in a slot's cache, and `ahead` is how it goes on with
    the answer, at as many bytes a token; a slot keeps of it what was written.
    """

    tokens: int
    text: bytes = b""
    ahead: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One HTTP request: a task per prompt, and each of them `n` answers at once.

    `max_tokens` is the client's bound, `natural_tokens` where the model itself would stop.
    `ping_interval` in seconds, not positive: no pings.  A stream's first token is an event, then
    every `report_every` tokens and the last are; 0: the first only.  A long simulation need not
    hear of them all.
    """

    id: Hashable
    prompts: tuple[Prompt, ...]
    work: Work = Work.GENERATE
    stream: bool = False
    max_tokens: int | None = None
    natural_tokens: int | None = None
    n: int = 1
    progress: bool = False
    ping_interval: float = 0.0
    uses_cache: bool = True
    slot: int | None = None
    report_every: int = 1

    @property
    def output_bound(self) -> tuple[int | None, Stop]:
        """How many tokens will be written if the context allows, and what stops them."""
        if self.natural_tokens is None:
            return self.max_tokens, Stop.LIMIT
        if self.max_tokens is None or self.natural_tokens <= self.max_tokens:
            return self.natural_tokens, Stop.EOS
        return self.max_tokens, Stop.LIMIT


@dataclass(frozen=True, slots=True)
class Result:
    """A finished task in numbers.  Times are of the simulation's clock."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    held_tokens: int
    began_at: float
    first_token_at: float
    ended_at: float
    stop: Stop
    truncated: bool


@dataclass(frozen=True, slots=True)
class Started:
    """A stream's task got its slot: llama-server sends the response's head now."""

    at: float
    job: Hashable
    index: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """A part of the prompt was read; the first of them comes in the place of `Started`."""

    at: float
    job: Hashable
    index: int
    total: int
    cached: int
    processed: int
    elapsed: float


@dataclass(frozen=True, slots=True)
class Generated:
    """A stream's task wrote `count` tokens and has now written `total`."""

    at: float
    job: Hashable
    index: int
    count: int
    total: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A task ended well; `is_last` says that with it the whole job did."""

    at: float
    job: Hashable
    index: int
    slot: int
    result: Result
    is_last: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """A task failed and took its job with it.  `is_first`: nothing had been answered before.

    `input_tokens` and `output_tokens` are what its slot had read and written for it.
    """

    at: float
    job: Hashable
    index: int
    fault: Fault
    prompt_tokens: int
    is_first: bool
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Pinged:
    """A stream has been silent for longer than its ping interval."""

    at: float
    job: Hashable


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The server noticed that the client left, and the last of the job's slots is free again.

    The tokens are what was read and written for the job in vain.
    """

    at: float
    job: Hashable
    input_tokens: int = 0
    output_tokens: int = 0


Event = Started | Progressed | Generated | Finished | Failed | Pinged | Cancelled
