"""The catalog: every model by each of its names, and nothing by a name that is not its."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.capacity import catalog
from slotgate.capacity.context import context_memory
from slotgate.errors import ConfigError
from tests.capacity.truth import CATALOG, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = [model["name"] for model in CATALOG]


def test_the_catalog_has_the_72_models_and_each_shape_once() -> None:
    assert len(catalog.names()) == len(set(catalog.names())) == len(CATALOG) == 72


@pytest.mark.parametrize("model", CATALOG, ids=_NAMES)
def test_each_model_is_planned_to_the_byte_from_the_catalog(model: Mapping[str, Any]) -> None:
    entry = catalog.find(model["name"])
    assert entry.tied_embeddings == model["tied_embeddings"]
    for row in model["checked"]:
        assert context_memory(entry.meta, settings_of(row)).total == row["actual"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("llama 3.1 8b", "Llama-3.1-8B"),
        ("LLAMA_3_1_8B", "Llama-3.1-8B"),
        ("llama3.1:8b", "Llama-3.1-8B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Llama-3.1-8B"),
        ("Llama-3.1-8B-UD-IQ2_XXS", "Llama-3.1-8B"),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "Gemma-3-27b"),
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b"),
        ("Qwen2.5-7B", "Qwen2.5-7B-Instruct"),
        ("qwen2.5 0.5b bf16", "Qwen2.5-0.5B-Instruct"),
        ("Qwen3.5-27B (also 3.6-27B, 3.8-27B)", "Qwen3.5-27B"),
        ("qwen3.6-27b", "Qwen3.5-27B"),
        ("Qwen3.8-27B-UD-Q4_K_XL", "Qwen3.5-27B"),
        ("Qwen3.6-35B-A3B", "Qwen3.5-35B-A3B"),
        ("DeepSeek-R1", "DeepSeek-V3"),
        ("DeepSeek-V3/R1", "DeepSeek-V3"),
        ("zai-org/GLM-4.6", "GLM-4.5"),
        ("Mistral-Small-3.2-24B-Instruct", "Mistral-Small-3.1-24B"),
    ],
)
def test_a_name_is_found_however_it_is_written(name: str, found: str) -> None:
    assert catalog.find(name).name == found


@given(
    name=st.sampled_from(_NAMES),
    separator=st.sampled_from(["-", " ", "_", ".", ":"]),
    upper=st.booleans(),
    suffix=st.sampled_from(["", "-Q4_K_M", ".Q8_0.gguf", "-IQ4_XS", "-f16", "-UD-Q4_K_XL.gguf"]),
)
def test_case_separators_and_quantisation_do_not_matter(
    name: str, separator: str, upper: bool, suffix: str
) -> None:
    plain = catalog.find(name).name
    written = plain.replace("-", separator) + suffix
    assert catalog.find(written.upper() if upper else written.lower()).name == plain


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Llama-3.1-7B", "Llama-3.1-8B"),
        ("gemma 31b", "Gemma-3-1b"),
        ("qwen3-30b-a3b-instruct-2507", "Qwen3-30B-A3B"),
        ("mixtral", "Mixtral-8x7B"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match="did you mean") as caught:
        catalog.find(name)
    assert meant in str(caught.value)


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"no model 'zzzzz' in the catalog$"):
        catalog.find("zzzzz")
    assert catalog.lookup("") is None


def test_an_entry_says_where_its_shape_comes_from_and_what_nobody_checked() -> None:
    entry = catalog.find("Granite-4.0-H-Small")
    assert entry.unchecked
    assert "memory, compared with nothing" in catalog.sources_in_words(entry)
    assert not catalog.find("Llama-3.1-8B").unchecked
    assert catalog.find("GLM-4.5-Air").note.startswith("46 layers keep KV")
