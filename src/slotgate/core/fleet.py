"""All deployments, the models they serve, and which models need a look."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from slotgate.core.free_pools import FreePools
from slotgate.core.model import Model
from slotgate.core.policies import is_same
from slotgate.core.pool import SlotPool
from slotgate.core.residency import Residency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slotgate.core.deployment import DeploymentReport, State
    from slotgate.core.limit import ConcurrencyPolicy
    from slotgate.core.limits import Limits
    from slotgate.core.model import Misfit
    from slotgate.core.policies import Policies
    from slotgate.core.waiter import Waiter


class Fleet:
    """Deployments come, change and go; a model is there while it has any, or somebody waits.

    A model is *stirred* when something changed in it, so that somebody may run now.
    """

    def __init__(
        self,
        new_model: Callable[[], Model],
        new_limit: Callable[[], ConcurrencyPolicy],
        *,
        turn_seconds: float,
    ) -> None:
        # Whose turn it is where a router cannot hold all of its models.
        self.residency = Residency(turn_seconds)
        self._new_model = new_model
        self._new_limit = new_limit
        # Deployment id -> pool, as added; a removed one stays until its last lease has ended.
        self.pools: dict[str, SlotPool] = {}
        # Model name -> its queue and deployments.
        self.models: dict[str, Model] = {}
        self._stirred: dict[str, Model] = {}
        self._count = 0
        # Models in which somebody may wait only because its class leaves slots to more urgent ones.
        self.held_back: set[str] = set()
        # Models in which somebody lingers, or did at their last look.
        self._lingering: set[str] = set()

    # Deployments.  Each returns the waiters that can never fit any more, and why.

    def update(self, report: DeploymentReport, now: float) -> list[tuple[Waiter, Misfit]]:
        """Add a deployment, or take over what was learned about one."""
        unfit = []
        pool = self.pools.get(report.id)
        if pool is None:
            pool = self.pools[report.id] = SlotPool(report, self._new_limit())
        elif pool.model != report.model:
            unfit = self._detach(pool)
        pool.update(report, now)
        self.residency.told(pool, report.residence)
        model = self.model(report.model)
        model.pools[pool.id] = pool
        model.keep_cache(pool)
        self._count += 1
        pool.attach(model.free, self._count)
        model.keep_the_best()
        self.stir(report.model)
        return [*unfit, *model.refit()]

    def remove(self, deployment_id: str) -> list[tuple[Waiter, Misfit]]:
        """Forget a deployment once its last lease has ended; KeyError if there is none."""
        pool = self.pools[deployment_id]
        pool.remove()
        unfit = self._detach(pool)
        self.release(pool)
        return unfit

    def _detach(self, pool: SlotPool) -> list[tuple[Waiter, Misfit]]:
        model = self.model(pool.model)
        model.pools.pop(pool.id, None)
        pool.attach(FreePools(), 0)
        model.keep_the_best()
        self.stir(pool.model)
        return model.refit()

    def hold(self, deployment_id: str, hold: State | None) -> None:
        """Put an operator's hold on a deployment, or lift it; KeyError if there is none."""
        pool = self.pools[deployment_id]
        pool.set_hold(hold)
        model = self.models.get(pool.model)
        if model is not None:
            model.keep_the_best()
            self.stir(pool.model)

    def release(self, pool: SlotPool) -> None:
        """Use that slots came free: for the next, unless it only waited for that to go."""
        if pool.is_gone:
            self.pools.pop(pool.id, None)
            for mate in self.residency.mates(pool):
                self.stir(mate.model)
        self.stir(pool.model)

    def reconfigure(self, limits: Limits, policies: Policies, now: float) -> None:
        """Go by other numbers and rules, in all models and on all deployments."""
        self.residency.turn_seconds = limits.model_turn_seconds
        for name, model in self.models.items():
            model.reconfigure(limits, policies)
            self.mind_holdback(name, now)
        if not is_same(self._new_limit, policies.concurrency):
            self._new_limit = policies.concurrency
            for pool in self.pools.values():
                pool.concurrency = self._new_limit()
                pool.relimit(now)
        self.stir_all()

    # Models.

    def model(self, name: str) -> Model:
        """Return the model, which is made if there is none."""
        model = self.models.get(name)
        if model is None:
            model = self.models[name] = self._new_model()
            self.stir(name)
        return model

    def stir(self, name: str) -> None:
        """Note that somebody may run now; nothing to note if the model is gone."""
        model = self.models.get(name)
        if model is not None:
            self._stirred[name] = model

    def stir_all(self) -> None:
        """Note that all models need a look."""
        self._stirred.update(self.models)

    @property
    def is_stirred(self) -> bool:
        """Whether any model needs a look."""
        return bool(self._stirred)

    def close(self, tenant: str) -> None:
        """Pass the tenant over in all models, now that it is at its cap."""
        for model in self.models.values():
            model.queue.step_aside(tenant)

    def reopen(self, tenant: str) -> None:
        """Stir the models in which the tenant waits, now that its cap has room."""
        for name, model in self.models.items():
            if model.queue.reopen(tenant):
                self.stir(name)

    def mind_holdback(self, name: str, now: float) -> None:
        """Note that somebody waits in a model, whose classes may have to leave slots just now."""
        model = self.models[name]
        if model.queue.leaves_slots and now < model.matcher.holdback_until:
            self.held_back.add(name)

    # Routers.

    def rearrange(self, now: float) -> bool:
        """Let models take turns where a router cannot hold all; whether any may run now."""
        opened = self.residency.rearrange(now, self._is_wanted)
        for pool in opened:
            self.stir(pool.model)
        return bool(opened)

    def _is_wanted(self, pool: SlotPool) -> bool:
        model = self.models.get(pool.model)
        return model is not None and any(pool.could_fit(s) for s in model.queue.shapes())

    def turn_over(self, now: float) -> None:
        """Stir the models of the routers where a turn is over."""
        for pool in self.residency.due(now):
            self.stir(pool.model)

    def turn_wait(self, name: str, now: float) -> float:
        """Return how long a model's tickets wait until it may be asked for and is loaded."""
        if not self.residency.has_routers:
            return 0.0
        pools = [pool for pool in self.models[name].pools.values() if pool.usable]
        rest = partial(self._rest, now)
        return min((self.residency.wait(pool, now, rest) for pool in pools), default=0.0)

    def _rest(self, now: float, pool: SlotPool) -> float:
        model = self.models.get(pool.model)
        if model is None:
            return 0.0
        return max((model.forecast.rest(lease, now) for lease in pool.leases()), default=0.0)

    # Classes that leave slots to others.

    def next_release(self) -> float | None:
        """Return when classes that leave slots to more urgent ones need not any more."""
        if not self.held_back:
            return None
        return min(self.models[name].matcher.holdback_until for name in self.held_back)

    def next_lingered(self) -> float | None:
        """Return when the first of those that linger has done so for long enough."""
        if not self._lingering:
            return None
        ends = (self.models[name].queue.lingering.first_key() for name in self._lingering)
        return min((end for end in ends if end is not None), default=None)

    def end_lingering(self, now: float) -> None:
        """Stir the models in which that has come; with an infinite time, for everybody."""
        for name in list(self._lingering):
            queue = self.models[name].queue
            if queue.end_lingering(now):
                self.stir(name)
            if not queue.lingering:
                self._lingering.discard(name)

    def hurry(self, now: float) -> None:
        """Let nobody linger any more who does."""
        for name in self._lingering:
            for waiter in self.models[name].queue.lingering:
                waiter.patience_ends = now
        self.end_lingering(inf)

    def release_held_back(self, now: float) -> None:
        """Stir the models in which that has come."""
        if not self.held_back:
            return
        for name in [n for n in self.held_back if self.models[n].matcher.holdback_until <= now]:
            self.held_back.discard(name)
            self.stir(name)

    def take_stirred(self) -> Iterator[Model]:
        """Yield each stirred model once, and forget those left with nothing."""
        while self._stirred:
            name = next(iter(self._stirred))
            model = self._stirred.pop(name)
            yield model
            if model.queue.lingering:
                self._lingering.add(name)
            if not model.pools and not model.queue:
                del self.models[name]
                self.held_back.discard(name)
                self._lingering.discard(name)
