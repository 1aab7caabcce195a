"""Load models in a real llama.cpp, one after the other: `python load_llama.py JSON MODEL...`.

JSON has attributes to set besides.  llama.cpp's log on standard output and error is the result.  A
program of its own, so that a crash there is not the tests' crash.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import xllamacpp


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    # Kept: a server that ends before it has begun to serve waits for ever.
    servers = [_load(path, options) for path in sys.argv[2:]]
    sys.stdout.flush()
    os._exit(0 if len(servers) == len(sys.argv[2:]) else 1)


def _load(path: str, options: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 256
    params.n_parallel = 1
    params.warmup = False
    params.fit_params = False
    params.verbosity = 4
    # Into memory as it is: neither mapped, nor repacked for this machine's processor.
    params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.no_extra_bufts = True
    for name, value in options.items():
        setattr(params, name, value)
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
