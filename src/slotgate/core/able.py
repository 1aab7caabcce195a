"""Which of a model's deployments a shape could ever have, were nobody else there; and all slots.

That is asked several times for each ticket, and changes only with the deployments, which are
few but may be a hundred; so the answer is kept until one of them has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.core.ends import FreeSlots
    from slotgate.core.pool import SlotPool
    from slotgate.core.waiter import Shape


class AblePools:
    """Deployments in which the same shapes fit, and when their slots come free (None: unasked)."""

    __slots__ = ("free", "pools")

    def __init__(self, pools: tuple[SlotPool, ...]) -> None:
        self.pools = pools
        self.free: FreeSlots | None = None


class Able:
    """The deployments of one model, by shape."""

    def __init__(self, pools: dict[str, SlotPool]) -> None:
        self._pools = pools
        # (width, context) -> those that could have it, which for many is the same.
        self._of_shape: dict[tuple[int, int], AblePools] = {}
        self._distinct: dict[tuple[SlotPool, ...], AblePools] = {}
        # Slots of all of them that are ours to hand out, free or not (None: not counted yet).
        self._slots: int | None = None

    def forget(self) -> None:
        """Note that a deployment came, went or changed."""
        self._of_shape.clear()
        self._distinct.clear()
        self._slots = None

    @property
    def slots(self) -> int:
        """Slots that are ours to hand out, free or not."""
        if self._slots is None:
            self._slots = sum([pool.usable for pool in self._pools.values()])
        return self._slots

    def of(self, shape: Shape) -> AblePools:
        """Return the deployments in which the shape would fit if all our leases ended."""
        key = shape.width, shape.context
        able = self._of_shape.get(key)
        if able is None:
            pools = tuple(pool for pool in self._pools.values() if pool.could_fit(shape))
            able = self._of_shape[key] = self._distinct.setdefault(pools, AblePools(pools))
        return able
