"""The options of `slotgate plan`: llama-server's own names mean what they mean there."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.capacity.placement import HOST, Override, experts_on_host
from slotgate.capacity.wish import Wish
from slotgate.cli.plan_devices import Devices
from slotgate.cli.plan_options import ALL_LAYERS, wish_of
from slotgate.errors import ConfigError
from tests.cli.plans import asked

GiB = 1 << 30
TRAINED = 32768


def wish(*arguments: str) -> Wish:
    return wish_of(asked("model.gguf", *arguments), TRAINED)


@pytest.mark.parametrize(
    ("names", "word", "field", "value"),
    [
        (("--context",), "2048", "ctx_per_slot", 2048),
        (("--ctx-size", "-c"), "8192", "ctx_size", 8192),
        (("--parallel", "-np"), "3", "slots", 3),
        (("--parallel", "-np"), "-1", "slots", None),
        (("--kv-unified-per-slot",), "3000", "ctx_per_slot", 3000),
        (("--cache-type-k", "-ctk"), "q8_0", "type_k", "q8_0"),
        (("--cache-type-v", "-ctv"), "q4_0", "type_v", "q4_0"),
        (("--batch-size", "-b"), "1024", "n_batch", 1024),
        (("--ubatch-size", "-ub"), "256", "n_ubatch", 256),
        (("--flash-attn", "-fa"), "off", "flash_attn", "off"),
        (("--n-gpu-layers", "--gpu-layers", "-ngl"), "20", "n_gpu_layers", 20),
        (("--n-gpu-layers", "--gpu-layers", "-ngl"), "auto", "n_gpu_layers", None),
        (("--n-gpu-layers", "--gpu-layers", "-ngl"), "-1", "n_gpu_layers", None),
        (("--n-gpu-layers", "--gpu-layers", "-ngl"), "all", "n_gpu_layers", ALL_LAYERS),
        (("--tensor-split", "-ts"), "3,1", "tensor_split", (3.0, 1.0)),
        (("--tensor-split", "-ts"), "3/1.5", "tensor_split", (3.0, 1.5)),
        (("--n-cpu-moe", "-ncmoe"), "2", "overrides", experts_on_host(2)),
        (("--override-tensor", "-ot"), "exps=CPU", "overrides", (Override("exps", HOST),)),
        (("--cache-ram", "-cram"), "512", "cache_ram_mib", 512),
        (("--ctx-checkpoints", "-ctxcp"), "4", "ctx_checkpoints", 4),
    ],
)
def test_an_option_with_a_value_is_read_by_each_of_its_names(
    names: tuple[str, ...], word: str, field: str, value: Any
) -> None:
    for name in names:
        assert getattr(wish(name, word), field) == value
    assert getattr(wish(f"{names[0]}={word}"), field) == value


@pytest.mark.parametrize(
    ("names", "field", "value"),
    [
        (("--kv-unified", "-kvu"), "unified", True),
        (("--no-kv-unified", "-no-kvu"), "unified", False),
        (("--swa-full",), "swa_full", True),
        (("--cpu-moe", "-cmoe"), "overrides", experts_on_host()),
    ],
)
def test_a_switch_is_read_by_each_of_its_names(
    names: tuple[str, ...], field: str, value: Any
) -> None:
    for name in names:
        assert getattr(wish(name), field) == value


def test_short_names_stand_side_by_side_as_in_a_command_of_llama_server() -> None:
    words = "-ngl 99 -c 32768 -np 4 -kvu -fa on -ctk q8_0 -ctv q8_0 -ub 512"
    assert wish(*words.split()) == Wish(
        n_gpu_layers=99,
        ctx_size=32768,
        slots=4,
        unified=True,
        flash_attn="on",
        type_k="q8_0",
        type_v="q8_0",
    )


def test_what_is_not_asked_is_left_to_the_plan() -> None:
    assert wish() == Wish()


def test_one_type_serves_keys_and_values_unless_they_have_their_own() -> None:
    both = wish("--cache-type", "q8_0")
    assert (both.type_k, both.type_v) == ("q8_0", "q8_0")
    own = wish("--cache-type", "q8_0", "-ctv", "f16")
    assert (own.type_k, own.type_v) == ("q8_0", "f16")


@pytest.mark.parametrize(
    ("arguments", "slots", "per_slot", "ctx_size", "unified"),
    [
        # llama-server's own -c 0: what the model was trained for, for each slot or for the pool.
        (("-c", "0"), None, TRAINED, None, False),
        (("-c", "0", "-kvu"), None, None, TRAINED, True),
        # Its own rule for --kv-unified-per-slot: one pool unless -np is given without -kvu.
        (("--kv-unified-per-slot", "3000"), None, 3000, None, True),
        (("--kv-unified-per-slot", "3000", "-np", "4"), 4, 3000, None, False),
        (("--kv-unified-per-slot", "3000", "-np", "4", "-kvu"), 4, 3000, None, True),
        # A pool that is just what its slots may take is that limit.
        (("--kv-unified-per-slot", "3000", "-np", "4", "-c", "12032"), 4, 3000, None, False),
        (("--context", "3000", "-kvu"), None, 3000, None, True),
    ],
)
def test_slots_pool_and_limits_mean_what_they_mean_to_llama_server(
    arguments: tuple[str, ...],
    slots: int | None,
    per_slot: int | None,
    ctx_size: int | None,
    unified: bool,
) -> None:
    found = wish(*arguments)
    assert (found.slots, found.ctx_per_slot, found.ctx_size) == (slots, per_slot, ctx_size)
    assert found.unified is unified


def test_single_tensors_are_placed_before_the_experts() -> None:
    found = wish("--cpu-moe", "-ot", "a=CPU,b=CUDA0", "-ot", "c=CPU", "--n-cpu-moe", "1")
    assert found.overrides == (
        *(Override("a", HOST), Override("b", "CUDA0"), Override("c", HOST)),
        *experts_on_host(1),
        *experts_on_host(),
    )


@pytest.mark.parametrize(
    ("arguments", "states", "words"),
    [
        ((), 0, ()),
        (("--spec-type", "draft-mtp"), 3, ("--spec-type", "draft-mtp")),
        (
            ("--spec-type", "ngram-mod,draft-mtp", "--spec-draft-n-max", "2"),
            2,
            ("--spec-type", "ngram-mod,draft-mtp", "--spec-draft-n-max", "2"),
        ),
        (("--spec-type", "ngram-mod"), 0, ("--spec-type", "ngram-mod")),
    ],
)
def test_states_are_kept_for_what_is_drafted(
    arguments: tuple[str, ...], states: int, words: tuple[str, ...]
) -> None:
    assert wish(*arguments).n_rs_seq == states
    assert asked("m", *arguments).speculation == words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say which model"),
        (("m", "-np", "0"), "--parallel 0"),
        (("m", "-np", "257"), "--parallel 257: a whole number from -1 to 256"),
        (("m", "-np", "four"), "--parallel four: a whole number"),
        (("m", "--context", "0"), "--context 0"),
        (("m", "--context", "8k"), "--context 8k"),
        (("m", "-c", "-1"), "--ctx-size -1"),
        (("m", "-ngl", "most"), "--n-gpu-layers most: a number, auto or all"),
        (("m", "-ngl", "-3"), "--n-gpu-layers -3"),
        (("m", "-ctk", "q9"), "--cache-type-k q9: it is one of f32, f16"),
        (("m", "--cache-type", "Q8_0"), "--cache-type Q8_0"),
        (("m", "-fa", "1"), "--flash-attn 1: it is one of on, off, auto"),
        (("m", "-ts", "a,b"), "--tensor-split a,b"),
        (("m", "-ot", "exps"), "--override-tensor exps: PATTERN=DEVICE"),
        (("m", "--spec-type", "magic"), "--spec-type magic"),
        (("m", "--spec-draft-n-max", "2"), "say what drafts"),
        (("m", "--context", "512", "-c", "1024"), "give one"),
        (("m", "--kv-unified-per-slot", "512", "-np", "4", "-c", "1024"), "give one"),
        (("m", "--weights", "4.7"), "--weights: '4.7' could mean"),
        (("m", "--weights", "0B"), "--weights 0B"),
        (("m", "--cache-ram", "-1"), "--cache-ram -1"),
    ],
)
def test_a_bad_option_is_named_with_what_it_may_be(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        asked(*arguments)
    assert words in str(caught.value)


# Devices.


def test_sizes_are_cards_and_with_no_layers_on_them_the_host() -> None:
    cards = Devices("24GiB,8GiB").of(Wish())
    assert [gpu.total_bytes // GiB for gpu in cards.gpus] == [24, 8]
    assert cards.host is None
    host = Devices("24GiB").of(Wish(n_gpu_layers=0))
    assert host.gpus == ()
    assert host.host is not None
    assert host.host.total_bytes == 24 * GiB


def test_cards_are_called_as_the_user_calls_them() -> None:
    moved = Wish(overrides=(Override("a", HOST), Override("b", "Vulkan1")))
    assert [gpu.name for gpu in Devices("8GiB,8GiB").of(moved).gpus] == ["Vulkan0", "Vulkan1"]
    at_home = Wish(overrides=(Override("a", HOST),))
    assert [gpu.name for gpu in Devices("8GiB").of(at_home).gpus] == ["GPU 0"]


@pytest.mark.process
def test_without_sizes_this_machine_is_measured() -> None:
    devices = Devices("auto")
    assert devices.of(Wish()).host is not None
    on_cpu = devices.of(Wish(n_gpu_layers=0))
    assert on_cpu.gpus == ()
    assert on_cpu.host is not None
    # Room is kept for prompts.
    assert on_cpu.host.reserved_bytes > 0


def test_a_memory_without_a_unit_is_refused() -> None:
    with pytest.raises(ConfigError, match="--memory: '24' could mean"):
        Devices("24")
