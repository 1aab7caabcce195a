"""Which file of a Hugging Face repository is meant."""

from __future__ import annotations

import pytest

from slotgate.backends.hub import parse_reference
from slotgate.backends.hub_files import choose_files, quantisations
from slotgate.errors import ModelError

QWEN = [
    ".gitattributes",
    "README.md",
    "Qwen3-8B-BF16.gguf",
    "Qwen3-8B-IQ4_XS.gguf",
    "Qwen3-8B-Q4_K_M.gguf",
    "Qwen3-8B-Q5_K_M.gguf",
    "Qwen3-8B-Q8_0.gguf",
    "Qwen3-8B-UD-Q4_K_M.gguf",
    "Qwen3-8B-UD-Q4_K_XL.gguf",
    "mmproj-F16.gguf",
    "imatrix_unsloth.gguf",
]
SPLIT = [f"Q8_0/Big-Q8_0-{n:05d}-of-00003.gguf" for n in (1, 2, 3)]


def choose(names: list[str], wanted: str | None) -> tuple[str, ...]:
    return choose_files(names, wanted, repository="org/repo")


@pytest.mark.parametrize(
    ("wanted", "file"),
    [
        (None, "Qwen3-8B-Q4_K_M.gguf"),
        ("Q5_K_M", "Qwen3-8B-Q5_K_M.gguf"),
        ("q5_k_m", "Qwen3-8B-Q5_K_M.gguf"),
        ("bf16", "Qwen3-8B-BF16.gguf"),
        ("UD-Q4_K_M", "Qwen3-8B-UD-Q4_K_M.gguf"),
        ("Q4_K_XL", "Qwen3-8B-UD-Q4_K_XL.gguf"),
        ("Qwen3-8B-IQ4_XS.gguf", "Qwen3-8B-IQ4_XS.gguf"),
        ("qwen3-8b-q8_0.GGUF", "Qwen3-8B-Q8_0.gguf"),
    ],
)
def test_a_quantisation_or_file_is_found_in_any_case_of_letters(
    wanted: str | None, file: str
) -> None:
    assert choose(QWEN, wanted) == (file,)


@pytest.mark.parametrize("wanted", ["Q4_K", "Q4", "F16", "K_M", "8B", "Q6_K", "x.gguf"])
def test_a_part_of_a_name_is_no_match_and_the_error_offers_what_is_there(wanted: str) -> None:
    with pytest.raises(ModelError, match=rf"it has no {wanted}; it has .*IQ4_XS.*Q8_0"):
        choose(QWEN, wanted)


@pytest.mark.parametrize(
    ("names", "file"),
    [
        (["m-Q8_0.gguf", "m-Q6_K.gguf"], "m-Q6_K.gguf"),
        (["m-f16.gguf", "m-q4_0.gguf"], "m-q4_0.gguf"),
        (["m-Q2_K.gguf", "m-F32.gguf"], "m-Q2_K.gguf"),
        (["strange.gguf"], "strange.gguf"),
        (["m-IQ1_S.gguf"], "m-IQ1_S.gguf"),
    ],
)
def test_with_nothing_asked_the_best_known_quantisation_is_taken(
    names: list[str], file: str
) -> None:
    assert choose(names, None) == (file,)


@pytest.mark.parametrize("wanted", ["Q8_0", None, SPLIT[0], "Big-Q8_0-00003-of-00003.gguf"])
def test_all_parts_of_a_split_model_are_taken_in_order(wanted: str | None) -> None:
    assert choose([*reversed(SPLIT), "README.md"], wanted) == tuple(SPLIT)


def test_a_missing_part_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"part Q8_0/Big-Q8_0-00002-of-00003\.gguf is missing"):
        choose([SPLIT[0], SPLIT[2]], "Q8_0")


def test_two_models_in_one_repository_must_be_told_apart_by_the_user() -> None:
    with pytest.raises(ModelError, match=r"several files fit: a-Q4_K_M\.gguf, b-Q4_K_M\.gguf"):
        choose(["b-Q4_K_M.gguf", "a-Q4_K_M.gguf"], None)
    with pytest.raises(ModelError, match="several files fit"):
        choose(["one.gguf", "two.gguf"], None)


def test_a_repository_without_gguf_files_says_where_to_look() -> None:
    with pytest.raises(ModelError, match="whose name ends in -GGUF"):
        choose(["model.safetensors", "mmproj-F16.gguf"], None)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("mixtral-8x7b-v0.1.Q3_K_L.gguf", {"q3_k_l"}),
        ("x_q8_0.gguf", {"q8_0"}),
        ("DeepSeek-R1-UD-IQ1_S-00001-of-00003.gguf", {"ud-iq1_s", "iq1_s"}),
        ("gpt-oss-20b-MXFP4.gguf", {"mxfp4"}),
        ("Qwen2.5-7B.gguf", set()),
    ],
)
def test_quantisations_are_read_from_the_ways_in_which_packers_write_them(
    name: str, tokens: set[str]
) -> None:
    assert quantisations(name) == tokens


def test_a_reference_is_a_repository_and_what_is_wanted_of_it() -> None:
    assert parse_reference("org/repo") == ("org/repo", None)
    assert parse_reference("org/repo-GGUF:Q4_K_M") == ("org/repo-GGUF", "Q4_K_M")


@pytest.mark.parametrize(
    "reference", ["", "repo", "a/b/c", "../x", "-x/y", "org/repo:--help", "https://h/o/r", "o/r e"]
)
def test_what_is_no_reference_is_refused_with_the_right_form(reference: str) -> None:
    with pytest.raises(ModelError, match="write hf:ORG/REPO"):
        parse_reference(reference)
