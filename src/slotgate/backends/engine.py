"""The embedded engine: llama.cpp's own HTTP server in a child process of the gateway.

    python -m slotgate.backends.engine      (started by `managed`, not by hand)

Its life: one line of JSON on standard input says what to run; it loads the model, prints
`listening on URL`, and serves.  Standard input stays open as a lifeline.  It ends on SIGTERM, and
with its parent.  There is nothing to save: the gateway has drained before it ends us.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from slotgate.backends.orphan import ORPHANED, die_with, watch_lifeline

FAILED_TO_LOAD = 3
_STDIN = 0


def main() -> int:
    # The default action ends a process at once, even while llama.cpp holds the interpreter.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    document = _read_document()
    die_with(document.pop("parent"))
    threading.Thread(
        target=watch_lifeline, args=(_STDIN, lambda: os._exit(0)), name="lifeline", daemon=True
    ).start()
    server = _serve(document)
    if server is None:
        return FAILED_TO_LOAD
    print(f"engine: listening on {server.listening_address}", flush=True)  # noqa: T201
    while True:
        signal.pause()


def _read_document() -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(_STDIN, 1 << 16)
        if not chunk:
            os._exit(ORPHANED)
        line += chunk
    document: dict[str, Any] = json.loads(line)
    return document


def _serve(document: dict[str, Any]) -> Any:
    try:
        import xllamacpp  # here, so that a machine where it cannot be loaded gets a sentence
    except (ImportError, OSError) as error:
        print(f"engine: xllamacpp cannot be loaded: {error}", flush=True)  # noqa: T201
        return None
    try:
        return xllamacpp.Server(_params(xllamacpp, document))
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        # llama.cpp's own log, just above, says more than the exception does.
        print(f"engine: {error}", flush=True)  # noqa: T201
        return None


def _params(xllamacpp: Any, document: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    for attribute, value in document.items():
        *owners, name = attribute.split(".")
        target = params
        for owner in owners:
            target = getattr(target, owner)
        setattr(target, name, _converted(xllamacpp, name, value))
    return params


def _converted(xllamacpp: Any, name: str, value: Any) -> Any:
    if name == "model_alias":
        return set(value)
    if name in ("cache_type_k", "cache_type_v"):
        return getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}")
    if name == "pooling_type":
        return getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{value.upper()}")
    return value


if __name__ == "__main__":
    sys.exit(main())
