"""What llama.cpp itself allocated, for tests to compare with; read from tests/capacity/data.

KV_ROWS     tiny models x settings: bytes of context memory (`actual`, None where llama.cpp refused
            or aborted) and of compute buffers (`compute`)
SAVED_ROWS  bytes of slot files and of checkpoints that a real llama-server wrote
CATALOG     popular models: their header's keys (`meta`), and rows like those of KV_ROWS (`checked`)

Measured with llama.cpp build 11434 on its CPU backend; all sizes in bytes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotgate.capacity.settings import Settings
from tests.capacity.tiny_models import META, vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA = Path(__file__).parent / "data"
# Name of a parameter in the data -> name of the setting, where the value is taken as it is.
_SETTINGS = {
    "n_ctx": "n_ctx",
    "n_seq": "n_seq",
    "tk": "type_k",
    "tv": "type_v",
    "fa": "flash_attn",
    "n_batch": "n_batch",
    "n_ubatch": "n_ubatch",
    "n_rs_seq": "n_rs_seq",
}


def settings_of(params: Mapping[str, Any]) -> Settings:
    """The settings that a row was measured with; keys that are no setting are passed over."""
    as_they_are = {name: params[key] for key, name in _SETTINGS.items() if key in params}
    return Settings(
        unified=bool(params.get("unified", 0)),
        swa_full=bool(params.get("swa_full", 0)),
        mtp=params.get("ctx_type") == "mtp",
        **as_they_are,
    )


def meta_of(name: str) -> Mapping[str, Any]:
    """The keys of a tiny model's header, its vocabulary included."""
    return {**META[name], **vocabulary()}


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress((_DATA / name).read_bytes()))
    return content


KV_ROWS: tuple[Mapping[str, Any], ...] = (
    *_read("kv_truth.json.gz")["rows"],
    *_read("kv_truth_more.json.gz")["rows"],
)
SAVED_ROWS: tuple[Mapping[str, Any], ...] = tuple(_read("kv_saved_truth.json.gz")["rows"])
CATALOG: tuple[Mapping[str, Any], ...] = tuple(_read("models_catalog.json.gz")["models"])
