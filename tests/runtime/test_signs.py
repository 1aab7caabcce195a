"""How the fate of a probe's questions is written down."""

from __future__ import annotations

import pytest

from slotgate.core.vitals import Question
from slotgate.errors import BackendError, BackendTimeoutError, UnreachableError
from slotgate.runtime.signs import Asked


def test_a_question_is_open_until_it_is_answered() -> None:
    asked = Asked()
    seen = [asked.health]
    with asked.asking_health():
        seen.append(asked.health)
    assert [*seen, asked.health] == [Question.NONE, Question.OPEN, Question.ANSWERED]
    assert asked.slots is Question.NONE


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (BackendTimeoutError("slow"), Question.TIMED_OUT),
        (UnreachableError("gone"), Question.NONE),
    ],
)
def test_only_silence_is_held_against_a_backend(error: BackendError, fate: Question) -> None:
    asked = Asked()
    with pytest.raises(BackendError), asked.asking_slots():
        raise error
    with pytest.raises(BackendError), asked.asking_health():
        raise error
    assert (asked.slots, asked.health) == (fate, fate)
