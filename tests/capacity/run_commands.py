"""Start a real llama.cpp for each llama-server command, and say what it made of it.

    python run_commands.py < COMMANDS        (one JSON list of words a line)

llama.cpp's log goes to standard error, a JSON line for each command to standard output: the slots
that `/slots` shows and what `/props` says, or the error.  Servers stay until the end: one that ends
before it has begun to serve waits for ever.  A program of its own: a crash is not the tests' crash.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from typing import Any

import xllamacpp

_FLASH = {
    "on": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_NUMBERS = {
    "-c": "n_ctx",
    "-np": "n_parallel",
    "-b": "n_batch",
    "-ub": "n_ubatch",
    "--kv-unified-per-slot": "kv_unified_per_slot",
    "--ctx-checkpoints": "n_ctx_checkpoints",
    "--cache-ram": "cache_ram_mib",
}
_SWITCHES = {"--kv-unified": "kv_unified", "--swa-full": "swa_full"}


def main() -> None:
    servers = []
    for line in sys.stdin:
        try:
            server = xllamacpp.Server(_params(json.loads(line)))
            servers.append(server)
            told = {"slots": _get(server, "/slots"), "props": _get(server, "/props")}
        except RuntimeError as error:
            told = {"error": str(error)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    os._exit(0)


def _params(words: list[str]) -> Any:
    params = xllamacpp.CommonParams()
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.warmup = False
    params.verbosity = 4
    params.endpoint_slots = True
    # An explicit number of slots means a pool for each.
    params.kv_unified = False
    # Weights as they are: neither mapped, nor repacked for this machine's processor.
    params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.no_extra_bufts = True
    rest = iter(words[1:])
    for word in rest:
        if word in _SWITCHES:
            setattr(params, _SWITCHES[word], True)
        else:
            _set(params, word, next(rest))
    return params


def _set(params: Any, flag: str, value: str) -> None:
    if flag == "-m":
        params.model.path = value
    elif flag == "-fa":
        params.flash_attn_type = _FLASH[value]
    elif flag == "--fit":
        params.fit_params = value == "on"
    elif flag in ("-ctk", "-ctv"):
        kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}")
        setattr(params, f"cache_type_{flag[-1]}", kind)
    else:
        setattr(params, _NUMBERS[flag], int(value))


def _get(server: Any, path: str) -> Any:
    connection = http.client.HTTPConnection(server.listening_address.removeprefix("http://"))
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


if __name__ == "__main__":
    main()
