"""One slot, and the task in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from sys import maxsize
from typing import TYPE_CHECKING

from slotgate.slotsim.job import Result, Stop
from slotgate.slotsim.memory import State, common_prefix

if TYPE_CHECKING:
    from slotgate.slotsim.job import Job, Prompt
    from slotgate.slotsim.memory import HostMemory
    from slotgate.slotsim.readers import Reader


class Phase(Enum):
    """What a slot is doing.

    idle -> started -> prompt -> generating -> idle; a child of an `n > 1` task goes
    idle -> waiting -> generating, at the moment when its parent's prompt has been read.
    """

    IDLE = auto()
    STARTED = auto()  # has a task, and no place in a batch yet
    WAITING = auto()  # for the parent's prompt
    PROMPT = auto()
    GENERATING = auto()


class Task:
    """One sequence of a job."""

    __slots__ = ("children", "id", "index", "job", "parent", "prompt", "reader")

    def __init__(
        self, id: int, reader: Reader, prompt: Prompt, index: int, *, parent: Task | None = None
    ) -> None:
        self.id = id
        self.reader = reader
        self.job = reader.job
        self.prompt = prompt
        self.index = index
        self.parent = parent
        self.children: list[Task] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """A slot as `/slots` shows it: as of the last batch boundary.

    `job` and the numbers are of the task in it, or of the one before; None: it was never used.
    """

    id: int
    n_ctx: int
    is_processing: bool
    task_id: int | None
    job: Job | None
    prompt_tokens: int
    prompt_tokens_processed: int
    prompt_tokens_cached: int
    decoded: int
    remaining: int


class Slot:
    """A place for one sequence, with the KV cache that the last one left in it."""

    __slots__ = (
        "began_at",
        "cached",
        "chunk",
        "decoded",
        "due_at",
        "first_token_at",
        "held",
        "id",
        "is_streaming",
        "last_task",
        "last_used",
        "limit",
        "n_ctx",
        "phase",
        "processed",
        "report_at",
        "shared",
        "stop",
        "task",
        "text",
        "told",
    )

    def __init__(self, id: int, n_ctx: int) -> None:
        self.id = id
        self.n_ctx = n_ctx
        self.phase = Phase.IDLE
        self.task: Task | None = None
        self.last_task: Task | None = None
        self.last_used = -1.0
        self.held = 0  # tokens in the KV cache
        self.shared = 0  # tokens that it has in common with its parent's slot
        self.text = b""  # the prompt they begin with
        self._forget()

    def _forget(self) -> None:
        self.cached = self.processed = self.chunk = self.decoded = 0
        self.limit = self.told = 0
        self.report_at = self.due_at = maxsize
        self.is_streaming = False
        self.stop = Stop.NONE
        self.began_at = self.first_token_at = 0.0

    @property
    def running(self) -> Task:
        if self.task is None:
            raise ValueError(f"slot {self.id} is idle")
        return self.task

    @property
    def unread(self) -> int:
        """Prompt tokens that no batch has taken yet."""
        return self.running.prompt.tokens - self.cached - self.processed - self.chunk

    @property
    def is_truncated(self) -> bool:
        """Whether the context ended it; that is looked at before the client's own bound."""
        return self.running.prompt.tokens + self.decoded >= self.n_ctx

    def launch(self, task: Task) -> None:
        self._forget()
        self.task = self.last_task = task
        self.is_streaming = task.job.stream
        self.report_at = 1 if task.job.stream else maxsize
        self.phase = Phase.STARTED if task.parent is None else Phase.WAITING

    def begin(self, now: float) -> None:
        """Take what the cache has of the prompt; at least one token is always read."""
        prompt = self.running.prompt
        self.began_at = now
        common = self._common_tokens(prompt) if self.running.job.uses_cache else 0
        self.cached = min(common, max(prompt.tokens - 1, 0))
        self.held = self.cached
        self.text = prompt.text
        self.phase = Phase.PROMPT
        self._set_limit()

    def follow(self, parent: Slot, now: float) -> None:
        """Continue from the parent's prompt, whose KV entries are shared."""
        self.began_at, self.first_token_at = parent.began_at, now
        self.cached, self.processed = parent.cached, parent.processed
        self.held, self.shared, self.text = 0, parent.held, b""
        self._set_limit()
        self.start_writing(now)

    def start_writing(self, now: float) -> None:
        self.phase = Phase.GENERATING
        self.first_token_at = now
        self.decoded = 1

    def report(self) -> int:
        """Tell of what was written since the last report, and say how many tokens that is."""
        count, self.told = self.decoded - self.told, self.decoded
        every = self.running.job.report_every
        self.report_at = min(self.decoded + every, self.limit) if every else maxsize
        self.due_at = min(self.report_at, self.limit)
        return count

    def silence(self) -> None:
        """Nobody is there any more to be told of its tokens."""
        self.is_streaming = False
        self.report_at = maxsize
        self.due_at = self.limit

    def similarity(self, prompt: Prompt) -> float:
        """The part of the prompt that the cache has."""
        return self._common_tokens(prompt) / prompt.tokens if prompt.tokens else 0.0

    def trade(self, memory: HostMemory, prompt: Prompt) -> None:
        """Unless most of the cache is of use, give it up for what the host has of the prompt."""
        own = common_prefix(self.text, prompt.text) if self.held else 0
        if 2 * own > len(self.text):
            return
        better = memory.take(prompt.text, beyond=own)
        memory.save(State(self.text, self.held))
        if better is not None:
            self.text, self.held = better

    def clear(self) -> None:
        self.held = self.shared = 0
        self.text = b""

    def release(self, now: float) -> None:
        """Become idle; a child's cache is not kept."""
        prompt = self.running.prompt
        if self.running.parent is not None:
            self.clear()
        elif prompt.ahead:
            self.text += prompt.ahead[: len(prompt.text) * self.decoded // prompt.tokens]
        self.task = None
        self.phase = Phase.IDLE
        self.last_used = now
        self._forget()

    def result(self, now: float) -> Result:
        return Result(
            prompt_tokens=self.running.prompt.tokens,
            cached_tokens=self.cached,
            output_tokens=self.decoded,
            held_tokens=self.held + self.shared,
            began_at=self.began_at,
            first_token_at=self.first_token_at,
            ended_at=now,
            stop=Stop.LIMIT if self.is_truncated and self.decoded else self.stop,
            truncated=bool(self.decoded) and self.is_truncated,
        )

    def view(self) -> SlotView:
        task = self.last_task
        is_processing = self.phase is not Phase.IDLE
        bound = task.job.max_tokens if task is not None else None
        return SlotView(
            id=self.id,
            n_ctx=self.n_ctx,
            is_processing=is_processing,
            task_id=task.id if task is not None else None,
            job=task.job if task is not None else None,
            # A batch runs, and what it adds counts already.
            prompt_tokens=self.held + self.shared + (self.phase is Phase.GENERATING),
            prompt_tokens_processed=self.processed,
            prompt_tokens_cached=self.cached,
            decoded=self.decoded,
            remaining=bound - self.decoded if is_processing and bound is not None else -1,
        )

    def _set_limit(self) -> None:
        room = self.n_ctx - self.running.prompt.tokens
        bound, self.stop = self.running.job.output_bound
        self.limit = room if bound is None else max(1, min(bound, room))
        self.due_at = min(self.report_at, self.limit)

    def _common_tokens(self, prompt: Prompt) -> int:
        """Whole tokens of the longest prefix that the prompt and the cache share."""
        if not prompt.text or not self.held:
            return 0
        share = common_prefix(self.text, prompt.text) / len(prompt.text)
        return min(int(share * prompt.tokens), self.held)
