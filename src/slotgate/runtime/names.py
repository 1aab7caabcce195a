"""Which pool a backend belongs to, and which one a request means.

A pool is what backends of one model form.  Its name is what the operator calls the model (`alias`).
Backends without an alias form one pool without a name, as long as they tell the same of their
model; one that tells another model has a pool of its own, under that name.  What they tell counts
without directory and `.gguf`: the same file on two machines is the same model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from slotgate.wire.models import public_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

# The pool of the first model that no alias names.
UNNAMED = ""


class PoolNames:
    """Names pools.  The first model that is told of without an alias is the one without a name."""

    def __init__(self) -> None:
        self._first: str | None = None

    def pool_of(self, alias: str, told: Sequence[str]) -> str:
        """Return the pool of a backend that has this alias ("": none) and tells these names."""
        if alias or not told:
            return alias
        name = public_name(told[0])
        if self._first is None:
            self._first = name
        return UNNAMED if name == self._first else name


class Named(Protocol):
    """A backend as far as names go: `given` by the operator, `told` by itself."""

    @property
    def model(self) -> str: ...
    @property
    def given(self) -> Collection[str]: ...
    @property
    def told(self) -> Collection[str]: ...


def resolve(name: str | None, backends: Iterable[Named]) -> str | None:
    """Return the pool that a request means, None if there is no such model.

    What the operator says goes before what backends tell.  Where all serve one model, any name
    will do, as with llama-server itself.
    """
    backends = list(backends)
    pools = {each.model for each in backends}
    if len(pools) == 1:
        return next(iter(pools))
    if name is None:
        return None
    for each in backends:
        if name in each.given or name == each.model:
            return each.model
    for each in backends:
        if name in each.told or name in map(public_name, each.told):
            return each.model
    return None
