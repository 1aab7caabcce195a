"""A line of things in the order of their keys, which may also be left from the middle.

Leaving marks nothing in the heap: an entry counts only while its name is on the members' list
with that very key.  What has left is dropped when it comes to the front, or all at once when it
outnumbers what is left; so joining is O(log n), and leaving and looking are O(1) on average.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

# Below this many dead entries, tidying up costs more than it saves.
_FEW = 32


class Line(Generic[T]):
    """Members by name, the one with the smallest key first.

    Keys of one line must be comparable with each other.  A name is on the list at most once.
    """

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        # (key, name), smallest first; may still hold entries of those that left.
        self._heap: list[tuple[Any, str]] = []
        # Name -> (key, member).
        self._members: dict[str, tuple[Any, T]] = {}

    def join(self, name: str, key: Any, member: T) -> None:
        """Stand in line; if the name already does, it moves to where the new key belongs."""
        self._members[name] = (key, member)
        heappush(self._heap, (key, name))
        self._tidy()

    def delay_first(self, key: Any) -> None:
        """Move the one that `first_entry` has just returned to where a larger key belongs."""
        name = self._heap[0][1]
        self._members[name] = (key, self._members[name][1])
        heapreplace(self._heap, (key, name))

    def leave(self, name: str) -> T | None:
        """Leave the line from wherever; None if the name is not in it."""
        entry = self._members.pop(name, None)
        if entry is None:
            return None
        self._tidy()
        return entry[1]

    def get(self, name: str) -> T | None:
        """Return the member of that name."""
        entry = self._members.get(name)
        return None if entry is None else entry[1]

    def key_of(self, name: str) -> Any | None:
        """Return the key of that name; None if it is not in the line."""
        entry = self._members.get(name)
        return None if entry is None else entry[0]

    def first(self) -> T | None:
        """Return the member with the smallest key; it stays in line."""
        entry = self.first_entry()
        return None if entry is None else entry[1]

    def first_key(self) -> Any | None:
        """Return the smallest key."""
        entry = self.first_entry()
        return None if entry is None else entry[0]

    def first_entry(self) -> tuple[Any, T] | None:
        """Return the smallest key and its member; it stays in line."""
        heap, members = self._heap, self._members
        while heap:
            key, name = heap[0]
            entry = members.get(name)
            # The same object in nearly all cases, and then nothing need be compared.
            if entry is not None and (entry[0] is key or entry[0] == key):
                return entry
            heappop(heap)
        return None

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[T]:
        """Yield the members in order; O(n log n), for display."""
        return (self._members[name][1] for _, name in sorted(self._entries()))

    def _entries(self) -> list[tuple[Any, str]]:
        return [(key, name) for name, (key, _) in self._members.items()]

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._members) + _FEW:
            self._heap = self._entries()
            heapify(self._heap)
