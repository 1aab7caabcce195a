"""Which faults are on, now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.stub.options import Fault, FaultKind

if TYPE_CHECKING:
    from collections.abc import Iterable


class Faults:
    """A set of faults with their arguments; one of a kind at a time."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._on = {fault.kind: fault.argument for fault in faults}
        self._share_of_errors = 0.0

    def __contains__(self, kind: FaultKind) -> bool:
        return kind in self._on

    def set(self, fault: Fault) -> None:
        self._on[fault.kind] = fault.argument

    def clear(self, kind: FaultKind | None = None) -> None:
        """Switch one off, or all."""
        if kind is None:
            self._on.clear()
        else:
            self._on.pop(kind, None)

    def argument(self, kind: FaultKind) -> float | None:
        return self._on.get(kind)

    def tokens(self, kind: FaultKind) -> int | None:
        """After how many tokens it strikes; None: it is off."""
        argument = self._on.get(kind)
        return None if argument is None else int(argument)

    def next_fails(self) -> bool:
        """Whether the next request is among those that `errors500` hits; evenly, without dice."""
        self._share_of_errors += self._on.get(FaultKind.ERRORS500, 0.0)
        if self._share_of_errors < 1.0:
            return False
        self._share_of_errors -= 1.0
        return True

    def names(self) -> list[str]:
        return [kind.value for kind in self._on]
