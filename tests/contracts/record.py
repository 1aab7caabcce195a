"""Record the shapes of a real server's answers: `python -m tests.contracts.record MODEL`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.contracts.cases import CASES, skeleton
from tests.contracts.servers import HERE, Servers

SKELETONS = HERE / "skeletons.json"


def main() -> None:
    servers = Servers(Path(sys.argv[1]))
    try:
        server = servers()
        found = {case.name: skeleton(case.send(server)) for case in CASES}
    finally:
        servers.close()
    SKELETONS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
