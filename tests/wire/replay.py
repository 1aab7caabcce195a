"""The recordings, by name, and ways to cut them up."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from slotgate.wire.routes import find_route
from tests.wire.cases import CASES
from tests.wire.record import load

if TYPE_CHECKING:
    from slotgate.wire.routes import Shape
    from tests.wire.cases import Case

RECORDINGS = load()
BY_NAME = {case.name: case for case in CASES}


def shape_of(case: Case) -> Shape:
    route = find_route("POST", case.path)
    assert route is not None
    assert route.shape is not None
    return route.shape


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut the data at these places, taken modulo its length."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
