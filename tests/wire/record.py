"""Record what a real llama-server answers: `python -m tests.wire.record MODEL [NAME...]`.

For each case of `cases.py` four exchanges are kept: the client's own request and what `prepare`
makes of it; and the same for a client that asks for a stream.  Without names all cases are recorded
anew, one file for each family.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from slotgate.errors import BadRequestError
from slotgate.wire.request import Prepared, prepare
from slotgate.wire.routes import find_route
from tests.wire.cases import CASES, SERVERS, Case
from tests.wire.live import Server, serving

FOLDER = Path(__file__).parent / "recordings"


@dataclass(frozen=True, slots=True)
class Recording:
    """One case as a real server answered it; statuses and bodies, bodies as text."""

    name: str
    answer: tuple[int, str]
    upstream: tuple[int, str]
    streamed: tuple[int, str]
    streamed_upstream: tuple[int, str]


def prepared_of(case: Case, *, stream: bool) -> Prepared:
    route = find_route("POST", case.path)
    assert route is not None
    request = case.request | {"stream": True} if stream else case.request
    return prepare(route, json.dumps(request).encode(), content_type="application/json")


def record(server: Server, case: Case) -> Recording:
    def exchange(body: bytes) -> tuple[int, str]:
        status, answer = server.post(case.path, body)
        return status, answer.decode()

    def own(**extra: Any) -> bytes:
        return json.dumps(case.request | extra).encode()

    if case.finds_itself_cached:
        exchange(own())
    return Recording(
        name=case.name,
        answer=exchange(own()),
        upstream=exchange(prepared_of(case, stream=False).body),
        streamed=exchange(own(stream=True)),
        streamed_upstream=exchange(prepared_of(case, stream=True).body),
    )


def load() -> dict[str, Recording]:
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        for entry in json.loads(path.read_text()):
            found[entry["name"]] = msgspec.convert(entry, Recording)
    return found


def save(recordings: dict[str, Recording]) -> None:
    families: dict[str, list[Recording]] = {}
    for case in CASES:
        if case.name in recordings:
            family = case.name.split("_", maxsplit=1)[0]
            families.setdefault(family, []).append(recordings[case.name])
    for family, entries in families.items():
        text = json.dumps([asdict(entry) for entry in entries], indent=0, ensure_ascii=False)
        (FOLDER / f"{family}.json").write_text(text + "\n")


def main() -> None:
    model, *names = sys.argv[1:]
    recordings = load() if names else {}
    for name, options in SERVERS.items():
        cases = [c for c in CASES if c.server == name and (not names or c.name in names)]
        if not cases:
            continue
        with serving(Path(model), options) as server:
            for case in cases:
                try:
                    recordings[case.name] = record(server, case)
                except BadRequestError as error:
                    sys.stdout.write(f"{case.name}: {error}\n")
    save(recordings)


if __name__ == "__main__":
    main()
