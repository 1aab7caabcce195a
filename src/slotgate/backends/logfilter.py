"""Keeps what users wrote out of the engine's log.

llama.cpp's log of ordinary operation has numbers only.  Its complaints do not: a malformed body, a
grammar, a schema, an unreadable template or tool call is quoted, sometimes over several lines.  So
once requests can arrive, only what is known to carry no text is kept; of other log lines stays
who spoke, so that one sees that something was said.
"""

from __future__ import annotations

import re

WITHHELD = "(withheld: it may quote a request)"

# `0.03.668.868 I slot launch_slot_: ...`; time and level are missing in older builds.
_LINE = re.compile(
    r"^(?P<head>(?:[\d.]+ )?(?:(?P<level>[IWED]) )?"
    r"(?:(?P<module>srv|slot|que|res|cmn)\s+)?(?P<function>[\w() ]{1,64}?): )(?P<text>.*)$"
)
# Functions of loading, memory and hardware; they see no request.
_SILENT_FUNCTIONS = re.compile(
    r"^(?:gguf_|ggml_|llama_(?:model|init|context|kv|params|memory)|llama_\w+_from_|"
    r"common_(?:init|fit|param|download)|load_model$|init$|init_listene|start$)"
)
# What the server says about itself; all but numbers is in the pattern.
_SILENT_TEXTS = re.compile(
    r"all slots are idle|server is (?:entering|exiting) sleeping|(?:operator\(\): )?cleaning up|"
    r"cancel task, id_task = \d+$|received second interrupt|unauthorized: Invalid API Key$|"
    r"(?:task id = \d+, )?error: (?:request|input) \(\d+ tokens\)|"
    r"(?:task id = \d+, )?error: Context size has been exceeded|"
    r"purging slot \d|failed to (?:find|allocate|restore)|prompt cache|making room|"
    r" - (?:cache|prompt|making)|decode\(\) failed|Compute error"
)
# What a slot says about its work is numbers.
_SLOT_TEXT = re.compile(r"id\s+-?\d+ \| task -?\d+ \| ")
# How a program dies: assertions, drivers, the runtime.
_DEATHS = re.compile(
    r"^(?:\S+:\d+: )?(?:GGML_ASSERT|(?:CUDA|ROCm|HIP|Vulkan|Metal|SYCL) error|terminate called|"
    r"Segmentation fault|\s*current device: \d|engine: )"
)


def harmless(line: str) -> str | None:
    """The line as it may be kept, None if nothing of it may."""
    if _DEATHS.match(line):
        return line
    found = _LINE.match(line)
    if not found:
        return None
    if _is_silent(found):
        return line
    return found["head"] + WITHHELD if found["level"] or found["module"] else None


def _is_silent(found: re.Match[str]) -> bool:
    if found["module"] == "slot" and found["level"] in {"I", None}:
        return bool(_SLOT_TEXT.match(found["text"]))
    return bool(
        _SILENT_FUNCTIONS.match(found["function"].strip()) or _SILENT_TEXTS.match(found["text"])
    )
