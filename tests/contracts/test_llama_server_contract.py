"""What llama-server does to its clients, asserted of the real one and of the stub alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.cases import CASES, Case, skeleton
from tests.contracts.record import SKELETONS

if TYPE_CHECKING:
    from tests.contracts.servers import Servers

EXPECTED: dict[str, Any] = json.loads(SKELETONS.read_text())


def _lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1).splitlines()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_answer_has_the_recorded_shape(launched: Servers, case: Case) -> None:
    assert _lines(skeleton(case.send(launched()))) == _lines(EXPECTED[case.name])
