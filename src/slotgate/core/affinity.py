"""What a deployment's slots still hold of the sessions that it served last.

A *session* is a run of requests whose prompts begin alike, such as the turns of a conversation; its
key is the ticket's `affinity`.  A slot keeps what it has read and written, so the next turn has
only its new part to be read, if it comes to the same deployment in time.

Which of its slots a request gets is llama-server's choice: the idle one whose cache has most in
common with the prompt, or else the one that was used least recently.  So of n slots the idle ones
hold the sessions that left last, and each newcomer costs the oldest of them its place.  What was
displaced may still be in the server's memory (`--cache-ram`), from where it is restored.

All this is seen from outside, so it is only expected.  How often it was right is learned from what
the backend says it found (`cache_n`), apart for sessions that should still be in their slot and for
those that were displaced.
"""

from __future__ import annotations

# At first sessions are taken to be still in their slots, and displaced ones to be half restored:
# by itself llama-server keeps 8 GiB of them, but nothing says so.
_KEPT = 1.0
_RESTORED = 0.5
# The weight of the latest look in what is learned.
_PART = 1 / 16
# A shorter prefix says nothing: templates alone have as much in common.
_TELLING_TOKENS = 64
# Displaced sessions that are remembered: 8 GiB hold some hundreds.
_MOST_DISPLACED = 256


class Trust:
    """How much of what was expected in a cache is found there, from 0 to 1; old looks fade."""

    __slots__ = ("part",)

    def __init__(self, part: float) -> None:
        self.part = part

    def learn(self, expected: int, found: int) -> None:
        """Note that so many tokens of the expected ones were found."""
        if expected >= _TELLING_TOKENS:
            self.part += _PART * (min(1.0, found / expected) - self.part)


class Stay:
    """One lease's time in a deployment: what its prompt should find there, and what it leaves.

    `held` is the tokens that its session left there, as many as its prompt can use; `expected`
    those of them that are likely to be found.
    """

    __slots__ = ("_key", "_prefixes", "_trust", "expected", "held")

    def __init__(self, prefixes: Prefixes, key: str | None, held: int, trust: Trust) -> None:
        self._prefixes = prefixes
        self._key = key
        self._trust = trust
        self.held = held
        self.expected = held * trust.part

    def found(self, tokens: int) -> None:
        """Learn from how many tokens of the prompt the backend found in its cache."""
        self._trust.learn(self.held, tokens)

    def end(self, lease_id: str, tokens: int) -> None:
        """Leave so many tokens behind, in the slot that was used last."""
        if self._key is None:
            self._prefixes.leave(lease_id, 0)
        else:
            self._prefixes.leave(self._key, tokens)


class Prefixes:
    """The sessions of one deployment.  After a restart a new one takes its place.

    Rule: a session is here only while nobody works in it.  What another request of the same session
    would find meanwhile is nothing, since its slot is taken.
    """

    def __init__(self) -> None:
        # Session -> tokens that its slot holds; the one used least recently first.
        self._kept: dict[str, int] = {}
        # Session -> tokens that its slot held; the one displaced first is first.
        self._displaced: dict[str, int] = {}
        self._keeps = Trust(_KEPT)
        self._restores = Trust(_RESTORED)

    def expected(self, session: str, input_tokens: int) -> float:
        """Return how many tokens of a prompt are expected in the cache."""
        held, trust = self._look_up(session)
        return min(held, input_tokens) * trust.part

    def begin(self, session: str | None, input_tokens: int) -> Stay:
        """Let a lease take a slot: its session's own, or whichever; see `keep_only`."""
        if session is None:
            return Stay(self, None, 0, self._restores)
        held, trust = self._look_up(session)
        self._kept.pop(session, None)
        self._displaced.pop(session, None)
        return Stay(self, session, min(held, input_tokens), trust)

    def leave(self, key: str, tokens: int) -> None:
        """Note what a slot holds that came free: of a session, or nothing that anybody wants."""
        self._kept.pop(key, None)
        self._kept[key] = tokens

    def keep_only(self, idle_slots: int) -> None:
        """Displace the oldest, so that one is left for each idle slot at most."""
        while len(self._kept) > idle_slots:
            oldest = next(iter(self._kept))
            tokens = self._kept.pop(oldest)
            if tokens:
                self._displaced[oldest] = tokens
        while len(self._displaced) > _MOST_DISPLACED:
            del self._displaced[next(iter(self._displaced))]

    def _look_up(self, session: str) -> tuple[int, Trust]:
        held = self._kept.get(session)
        if held is not None:
            return held, self._keeps
        return self._displaced.get(session, 0), self._restores
