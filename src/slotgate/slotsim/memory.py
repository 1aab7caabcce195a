"""The host's memory in which a server keeps what its slots had to give up (`--cache-ram`).

When a slot is taken from another conversation, what it holds is saved, and the saved state that has
most in common with the new prompt takes its place, if it has more than the slot itself.  Saving and
restoring take no time here.
"""

from __future__ import annotations

from typing import NamedTuple


class State(NamedTuple):
    """What a slot held: so many tokens, which begin with this text."""

    text: bytes
    held: int


class HostMemory:
    """Saved states up to so many tokens, the oldest first."""

    def __init__(self, tokens: int) -> None:
        self._left = tokens
        self._states: list[State] = []

    def save(self, state: State) -> None:
        """Keep a state in the place of those that it begins with, and of the oldest."""
        if not state.text or not state.held:
            return
        covered = [each for each in self._states if state.text.startswith(each.text)]
        for each in covered:
            self._drop(each)
        self._states.append(state)
        self._left -= state.held
        while self._left < 0:
            self._drop(self._states[0])

    def take(self, text: bytes, *, beyond: int) -> State | None:
        """Return the state with most of the text, and more of it than `beyond` bytes; it goes."""
        found = max(self._states, key=lambda state: common_prefix(state.text, text), default=None)
        if found is None or common_prefix(found.text, text) <= beyond:
            return None
        self._drop(found)
        return found

    def _drop(self, state: State) -> None:
        self._states.remove(state)
        self._left += state.held


def common_prefix(left: bytes, right: bytes) -> int:
    """Return how many bytes they begin with in common."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
