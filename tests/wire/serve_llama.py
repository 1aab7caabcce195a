"""Run one real llama.cpp server on a free port until standard input ends.

`python serve_llama.py MODEL '{"n_parallel": 4, ...}'`; prints its address when it is ready.
A program of its own, so that a crash there is not the tests' crash.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def main() -> None:
    model, options = sys.argv[1], json.loads(sys.argv[2])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.use_jinja = True
    params.kv_unified = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    for name, value in options.items():
        setattr(params, name, value)
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
