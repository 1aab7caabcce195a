"""Headers made at random for every architecture, against what llama.cpp allocated for them.

They were not used to write the formulas.  Headers without tensors: llama.cpp was let read the keys
and create the memory, and nothing else.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from slotgate.capacity.context import context_memory
from slotgate.capacity.settings import Settings
from slotgate.errors import PlanRefused

_FILE = Path(__file__).parent / "data" / "random_headers.json.gz"
_CONTENT = json.loads(gzip.decompress(_FILE.read_bytes()))


def _by_architecture() -> dict[str, list[tuple[dict[str, Any], dict[str, Any], int | None]]]:
    cases = defaultdict(list)
    for header, settings, actual in _CONTENT["rows"]:
        meta = _CONTENT["headers"][header]
        cases[meta["general.architecture"]].append((meta, settings, actual))
    return cases


_CASES = _by_architecture()


@pytest.mark.parametrize("name", _CASES)
def test_random_headers_take_exactly_what_llama_cpp_allocated_or_are_refused(name: str) -> None:
    wrong = []
    for meta, settings, actual in _CASES[name]:
        try:
            total: int | None = context_memory(meta, Settings(**settings)).total
        except PlanRefused:
            total = None
        if total != actual:
            wrong.append((settings, actual, total))
    assert wrong == []
