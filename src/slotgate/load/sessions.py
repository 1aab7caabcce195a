"""Conversations: each turn's prompt is all that was said before, and one thing more.

A conversation has three to seven turns, five on average, and its client thinks for a quarter of a
minute on average before it goes on.  It goes on only when it was answered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slotgate.load.lengths import CHAT, Fixed, LengthClass, Lognormal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.load.arrival import Arrival
    from slotgate.load.dice import Dice
    from slotgate.load.streams import Stream

# Instructions and the first question; the questions after it.
OPENING: Final = Lognormal(1500, 0.7, 8000)
QUESTION: Final = Lognormal(150, 0.9, 2000)
_FEWEST_TURNS, _MOST_TURNS = 3, 7
_MEAN_TURNS: Final = (_FEWEST_TURNS + _MOST_TURNS) / 2
_THINKING_SECONDS: Final = 15.0


def _mean_prompt() -> float:
    """Of all turns: turn i has the opening, and i questions and answers before it."""
    counts = range(_FEWEST_TURNS, _MOST_TURNS + 1)
    before = sum(turns * (turns - 1) / 2 for turns in counts) / sum(counts)
    return OPENING.mean + before * (QUESTION.mean + CHAT.output.mean)


TURN: Final = LengthClass(
    "turn", "a turn of a conversation", Fixed(round(_mean_prompt())), CHAT.output
)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Conversations of one tenant; its stream gives as many turns as it has requests."""

    stream: Stream

    def arrivals(self, dice: Dice) -> Iterator[Arrival]:
        """Yield the first turns; the others hang on them."""
        first, rate = self.stream, self.stream.rate
        openings = replace(first, rate=lambda at: rate(at) / _MEAN_TURNS)
        for number, opening in enumerate(openings.arrivals(dice)):
            yield _conversation(opening, f"{first.tenant}{number}", dice)


def _conversation(opening: Arrival, session: str, dice: Dice) -> Arrival:
    turns = [replace(opening, input_tokens=OPENING.draw(dice), session=session)]
    count = _FEWEST_TURNS + int(dice.random() * (_MOST_TURNS - _FEWEST_TURNS + 1))
    while len(turns) < count:
        said = turns[-1].input_tokens + turns[-1].wanted_tokens + QUESTION.draw(dice)
        thinking = dice.expovariate(1 / _THINKING_SECONDS)
        answer = CHAT.output.draw(dice)
        turns.append(replace(turns[0], at=thinking, input_tokens=said, output_tokens=answer))
    turn = turns.pop()
    while turns:
        turn = replace(turns.pop(), then=turn)
    return turn
