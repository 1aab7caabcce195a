"""The answers put together from streams equal a real llama-server's own, now and not as recorded.

The recordings say the same of one build; this says it of the build that is installed.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from slotgate.wire.assemble import assembler
from tests.wire.cases import CASES, LOST, SERVERS, Case
from tests.wire.compare import settled
from tests.wire.live import Server, serving
from tests.wire.record import prepared_of
from tests.wire.replay import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.llama, pytest.mark.process]

STREAMED = [
    case
    for case in CASES
    if case.name not in LOST and prepared_of(case, stream=False).upstream_stream
]


@pytest.fixture(scope="module")
def servers(small_model: Path) -> Iterator[dict[str, Server]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(serving(small_model, options))
            for name, options in SERVERS.items()
        }


@pytest.mark.parametrize("case", STREAMED, ids=lambda case: case.name)
def test_the_answer_from_a_stream_is_the_answer(servers: dict[str, Server], case: Case) -> None:
    server = servers[case.server]
    own = json.dumps(case.request).encode()
    if case.finds_itself_cached:
        server.post(case.path, own)
    wanted = server.post(case.path, own)
    prepared = prepared_of(case, stream=False)
    status, body = server.post(case.path, prepared.body)
    if status == 200:
        assembly = assembler(shape_of(case), prepared)
        assembly.feed(body)
        result = assembly.finish()
        status, body = result.status, result.body
    assert status == wanted[0]
    assert settled(body) == settled(wanted[1])
