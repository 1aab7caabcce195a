"""What llama-server keeps of a slot, against what it wrote itself."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.capacity.saved import checkpoint_bytes, saved_prompt_bytes, slot_file_bytes
from slotgate.capacity.settings import Settings
from tests.capacity.truth import CATALOG, SAVED_ROWS, meta_of, settings_of

# What the server that wrote them was started with; each row says the rest.
_STARTED = {"n_ctx": 16384, "n_seq": 2, "unified": 0}


@pytest.mark.parametrize("row", [row for row in SAVED_ROWS if row["what"] == "slot file"], ids=str)
def test_a_saved_prompt_is_as_large_as_llama_server_wrote_it(row: dict[str, Any]) -> None:
    settings = settings_of({**_STARTED, **row["params"]})
    saved = saved_prompt_bytes(meta_of(row["name"]), settings, row["n_tokens"])
    assert saved == row["actual"]


@pytest.mark.parametrize("row", [row for row in SAVED_ROWS if row["what"] == "checkpoint"], ids=str)
def test_a_checkpoint_is_as_large_as_llama_server_says(row: dict[str, Any]) -> None:
    settings = settings_of({**_STARTED, **row["params"]})
    checkpoint = checkpoint_bytes(meta_of(row["name"]), settings, row["n_tokens"])
    # The server says it in MiB, to three places.
    assert f"{checkpoint / 2**20:.3f}" == f"{row['actual_mib']:.3f}"


@pytest.mark.parametrize("model", CATALOG, ids=lambda model: model["name"])
def test_a_popular_model_saves_what_the_catalog_says(model: dict[str, Any]) -> None:
    settings = Settings(n_ctx=32768, n_seq=1, unified=False)
    assert checkpoint_bytes(model["meta"], settings, 8192) == model["checkpoint_bytes"]
    assert saved_prompt_bytes(model["meta"], settings, 8192) == model["saved_prompt_bytes_8192"]


def test_a_plain_model_needs_no_checkpoints() -> None:
    assert checkpoint_bytes(meta_of("llama"), Settings(n_ctx=4096), 1000) == 0


def test_windows_of_full_size_need_no_checkpoints() -> None:
    settings = Settings(n_ctx=4096, swa_full=True)
    assert checkpoint_bytes(meta_of("gemma3"), settings, 1000) == 0


def test_a_slot_file_has_a_head_and_its_tokens_besides() -> None:
    # 41,752 bytes is what llama.cpp wrote for 40 tokens of this model in one of two slots.
    settings = Settings(n_ctx=4096, n_seq=2, unified=False)
    assert slot_file_bytes(meta_of("llama"), settings, 40) == 41752
