"""`slotgate stub` by itself: `python -m tests.stub.command OPTIONS`."""

from __future__ import annotations

import typer

from slotgate.cli.stub import stub

if __name__ == "__main__":
    typer.run(stub)
