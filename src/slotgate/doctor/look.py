"""Looks at one server from outside, and takes no slot.

Rule 1: nothing is asked that would wake a server that sleeps, or load a router's model.
Rule 2: `/slots` is asked at most once in 1.2 s: asked more often it keeps llama-server from
        noticing clients that left.
Rule 3: it is asked again only while a slot works, so that an idle server may fall asleep.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from slotgate.capacity.builds import change_of
from slotgate.doctor.checks.work import LOOK_SECONDS, standing
from slotgate.doctor.evidence import (
    HEALTH,
    METRICS,
    MODELS,
    PROPS,
    READY,
    SLOTS,
    Answer,
    Behind,
    Counted,
    Evidence,
    Look,
    Make,
)
from slotgate.errors import BrokenAnswerError
from slotgate.runtime.kv_pool import KvPool
from slotgate.wire.llama_cpp import (
    Health,
    HealthState,
    Props,
    SlotView,
    parse_health,
    parse_props,
    parse_slots,
    prompt_work,
    requests_deferred,
    requests_processing,
)
from slotgate.wire.models import ListedModel, parse_models
from slotgate.wire.usage import as_mapping

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from slotgate.doctor.asking import Asker, Reply

T = TypeVar("T")

# A build of the same month as #27376, and after it: before, `/metrics` wakes a server.
METRICS_LET_SLEEP = change_of("slot-limit").build or 0


class Looking:
    """What was seen of one server so far, or of one `model` of a router.

    `watch_seconds` is how long a slot is watched that does not get on.
    """

    def __init__(
        self, asker: Asker, *, url: str, watch_seconds: float, model: ListedModel | None = None
    ) -> None:
        self._asker = asker
        self._url = url
        self._watch_seconds = watch_seconds
        self._kv = KvPool()
        self._answers: dict[str, Answer] = {}
        self._looks: list[Look] = []
        self._health: Health | None = None
        self._props: Props | None = None
        self._model = model
        self._models: tuple[ListedModel, ...] = () if model is None else (model,)
        self._counted: Counted | None = None
        self._has_queue = False
        self._behind: tuple[Behind, ...] = ()
        self._any_origin = False

    async def run(self) -> None:
        """Ask everything that may be asked."""
        if self._model is None:
            await self._ask_health()
            if not self._is_serving:
                return
            self._models = self._read(parse_models, await self._ask(MODELS)) or ()
        # Last before the slots: whether it sleeps must be known as of now.
        self._props = self._read(parse_props, await self._ask(PROPS))
        if self._has_queue:
            self._behind = parse_ready((await self._ask(READY)).body)
        elif self._is_llama_server:
            await self._watch_slots()
            await self._ask_metrics()

    async def learn_sharing(self, work: Callable[[], Awaitable[None]]) -> None:
        """See what becomes of idle slots while other work is done: a shared pool empties them.

        What is seen here is our own work, so it counts for nothing else.
        """
        if self._looks:
            await self._compare()
            await work()
            await self._compare()

    async def _compare(self) -> None:
        await asyncio.sleep(LOOK_SECONDS)
        views = self._read(parse_slots, await self._asker.get_again(SLOTS))
        self._kv.looked(views or (), is_all_ours=False)

    def evidence(self) -> Evidence:
        """What was seen, without what is known of the place and from the operator."""
        return Evidence(
            url=self._url,
            model=None if self._model is None else self._model.id,
            is_encrypted=self._url.startswith("https:"),
            has_key=self._asker.has_key,
            answers=dict(self._answers),
            health=self._health,
            has_queue=self._has_queue,
            props=self._props,
            models=self._models,
            counted=self._counted,
            behind=self._behind,
            looks=tuple(self._looks),
            sharing=self._kv.sharing if self._props is not None else None,
            any_origin=self._any_origin,
        )

    # Routes.

    async def _ask(self, route: str) -> Reply:
        answer, reply = await self._asker.get(route)
        self._answers[route] = answer
        is_of_value = reply.status == 200 and route != HEALTH
        self._any_origin = self._any_origin or (is_of_value and reply.allows_origin)
        return reply

    def _read(self, parse: Callable[[bytes], T], reply: Reply) -> T | None:
        if reply.status != 200:
            return None
        try:
            return parse(reply.body)
        except BrokenAnswerError:  # another make's answer, perhaps
            return None

    async def _ask_health(self) -> None:
        reply = await self._ask(HEALTH)
        if reply.trouble is None:
            self._health = parse_health(reply.status, reply.body)
            self._has_queue = self._health.queue is not None

    @property
    def _is_serving(self) -> bool:
        health = self._health
        if health is None or health.state is HealthState.LOADING:
            return False
        # An error below 500 is another make's, which has no such route.
        status = self._answers[HEALTH].status or 0
        return status < 500 or health.state is HealthState.NO_SLOT

    @property
    def _is_llama_server(self) -> bool:
        seen = Evidence(url=self._url, props=self._props, has_queue=self._has_queue)
        return seen.make is Make.LLAMA_SERVER

    async def _ask_metrics(self) -> None:
        props = self._props
        if props is None or props.endpoint_metrics is False:
            return
        if props.is_sleeping and (props.build or 0) < METRICS_LET_SLEEP:
            return
        reply = await self._ask(METRICS)
        if reply.status == 200:
            tokens, seconds = prompt_work(reply.body) or (0.0, 0.0)
            self._counted = Counted(
                processing=requests_processing(reply.body),
                deferred=requests_deferred(reply.body),
                prompt_tokens=tokens,
                prompt_seconds=seconds,
            )

    # Slots.

    async def _watch_slots(self) -> None:
        props = self._props
        if props is None or props.is_sleeping or props.endpoint_slots is False:
            return
        self._kv.sized(props.slots or 0, props.ctx_per_slot)
        self._note(await self._ask(SLOTS))
        while self._must_look_again():
            await asyncio.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> None:
        reply = await self._asker.get_again(SLOTS)
        if reply.trouble is not None:
            self._answers[SLOTS] = Answer(trouble=reply.trouble, message=reply.message)
        self._note(reply)

    def _note(self, reply: Reply) -> None:
        views: tuple[SlotView, ...] = self._read(parse_slots, reply) or ()
        if views:
            self._looks.append(Look(at=asyncio.get_running_loop().time(), slots=views))
            self._kv.looked(views, is_all_ours=False)

    def _must_look_again(self) -> bool:
        looks = tuple(self._looks)
        if not looks or self._answers[SLOTS].trouble is not None:
            return False
        stands = standing(looks)
        if len(looks) == 1:
            return bool(stands)
        watched = looks[-1].at - looks[0].at
        return any(stands.values()) and watched < self._watch_seconds


def parse_ready(body: bytes) -> tuple[Behind, ...]:
    """What a gateway of ours says of the servers behind it; nothing if it says something else."""
    try:
        backends = as_mapping(as_mapping(msgspec.json.decode(body)).get("backends"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    told = ((name, as_mapping(each)) for name, each in backends.items())
    return tuple(
        Behind(name=name, state=str(each.get("state")), why=str(each.get("why")))
        for name, each in told
    )
