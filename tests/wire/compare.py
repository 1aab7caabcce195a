"""What may differ between two runs of one request, put aside: ids, times, speeds, cache hits.

`settled` keeps the order of keys, so that two settled bodies are equal as bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

_TIMES = {
    "created",
    "created_at",
    "completed_at",
    "prompt_ms",
    "prompt_per_token_ms",
    "prompt_per_second",
    "predicted_ms",
    "predicted_per_token_ms",
    "predicted_per_second",
    "time_ms",
}
_IDS = {"id", "item_id", "call_id"}
_RANDOM_ID = re.compile(r"^(chatcmpl-|resp_|rs_|msg_|fc_|call_)*[A-Za-z0-9]{32}$")


def settle(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        if "cache_read_input_tokens" in value:
            value = _whole_input(value)
        return {name: settle(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [settle(inner, key) for inner in value]
    if key in _TIMES:
        return 0
    if key in _IDS and isinstance(value, str):
        return _RANDOM_ID.sub(r"\1<id>", value)
    # Which slot it was is chance.
    return 0 if key == "id_slot" else value


def _whole_input(usage: dict[str, Any]) -> dict[str, Any]:
    """Count the cached part with the rest: `/v1/messages` cannot be told not to use the cache."""
    cached = usage["cache_read_input_tokens"]
    return usage | {
        "cache_read_input_tokens": 0,
        "input_tokens": usage["input_tokens"] + cached,
    }


def settled(body: str | bytes) -> str:
    """Return the JSON without what chance decides; in the same order, compact."""
    return json.dumps(settle(json.loads(body)), ensure_ascii=False, separators=(",", ":"))


def settled_stream(stream: str | bytes) -> list[str]:
    """Return the lines of a stream, each settled."""
    text = stream if isinstance(stream, str) else stream.decode()
    return [
        "data: " + settled(line[6:]) if line.startswith("data: {") else line
        for line in text.split("\n")
    ]
