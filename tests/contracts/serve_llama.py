"""Run a real llama.cpp until standard input ends: `python serve_llama.py MODEL LAUNCH PORT`.

LAUNCH is JSON, as `Launch` in servers.py has it; prints a line when it is ready.  A program of its
own, so that a crash there is not the tests' crash.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def main() -> None:
    model, launch, port = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_parallel = launch["slots"]
    params.kv_unified = launch["unified"]
    params.n_ctx = launch["ctx"] if launch["unified"] else launch["ctx"] * launch["slots"]
    params.n_batch = launch["batch"]
    params.n_ubatch = min(launch["batch"], 512)
    params.endpoint_slots = launch["has_slots"]
    params.endpoint_metrics = launch["has_metrics"]
    params.api_keys = launch["api_keys"]
    params.api_prefix = launch["api_prefix"]
    params.sleep_idle_seconds = launch["sleep_idle_seconds"]
    params.embedding = launch["embeddings"]
    if launch["embeddings"]:
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
