"""The bytes of weights on each device."""

from __future__ import annotations

import pytest

from slotgate.capacity.header import Header, Tensor
from slotgate.capacity.placement import HOST, Gpu, Override, Placement, experts_on_host
from slotgate.capacity.weights import padded_bytes, weights_by_device
from tests.capacity.gguf_writer import TensorSpec
from tests.capacity.tiny_models import META, NAMES, TENSORS

ONE = (Gpu("a", 1),)
TWO = (Gpu("a", 1), Gpu("b", 1))


def tensor_of(spec: TensorSpec) -> Tensor:
    return Tensor(*spec, offset=0, n_bytes=spec.n_bytes, part=1)


def header_of(*specs: TensorSpec, architecture: str = "llama") -> Header:
    """A header as it is read, of tensors that need no padding if they are of 32 elements."""
    return Header(
        path="m.gguf",
        version=3,
        alignment=32,
        meta={"general.architecture": architecture},
        tensors=tuple(map(tensor_of, specs)),
        n_bytes=0,
    )


def model(name: str) -> tuple[Header, int]:
    architecture = str(META[name]["general.architecture"])
    header = header_of(*TENSORS[name], architecture=architecture)
    return header, int(META[name][f"{architecture}.block_count"])


def matrix(name: str, bytes_: int = 128) -> TensorSpec:
    return TensorSpec(name, (bytes_ // 4,))


def test_each_part_of_a_model_goes_where_it_is_used() -> None:
    header = header_of(
        matrix("token_embd.weight", 128),
        matrix("blk.0.attn_q.weight", 256),
        matrix("blk.1.attn_q.weight", 512),
        matrix("blk.2.attn_q.weight", 1024),
        matrix("output_norm.weight", 2048),
        matrix("output.weight", 4096),
    )
    weights = weights_by_device(header, Placement(layers=3, gpus=TWO))
    assert weights.by_device == {"a": 256 + 512, "b": 1024 + 2048 + 4096, HOST: 128}
    assert weights.host_bytes == 128
    assert weights.by_layer == (256, 512, 1024)
    assert (weights.input_bytes, weights.output_bytes) == (128, 6144)
    assert weights.total == 8064


def test_layers_that_are_not_offloaded_stay_on_the_host() -> None:
    header = header_of(*(matrix(f"blk.{layer}.attn_q.weight") for layer in range(3)))
    weights = weights_by_device(header, Placement(layers=3, gpus=ONE, n_gpu_layers=2))
    assert weights.by_device == {"a": 128, HOST: 256}


@pytest.mark.parametrize(
    "name",
    [
        "token_embd.weight",
        "position_embd.weight",
        "token_types.weight",
        "per_layer_token_embd.weight",
    ],
)
def test_what_is_read_row_by_row_is_never_offloaded(name: str) -> None:
    header = header_of(matrix(name), matrix("output.weight"))
    weights = weights_by_device(header, Placement(layers=1, gpus=ONE))
    assert weights.by_device == {"a": 128, HOST: 128}
    assert weights.input_bytes == 128


def test_a_tied_output_is_copied_to_the_gpu_that_has_the_output() -> None:
    header = header_of(matrix("token_embd.weight", 1024), matrix("output_norm.weight"))
    offloaded = weights_by_device(header, Placement(layers=4, gpus=TWO))
    assert offloaded.by_device == {"a": 0, "b": 1024 + 128, HOST: 1024}
    assert (offloaded.input_bytes, offloaded.output_bytes) == (1024, 1024 + 128)
    on_host = weights_by_device(header, Placement(layers=4, gpus=TWO, n_gpu_layers=0))
    assert on_host.by_device == {"a": 0, "b": 0, HOST: 1024 + 128}


def test_an_encoder_has_no_output_to_copy_its_embedding_for() -> None:
    header = header_of(matrix("token_embd.weight", 1024), architecture="nomic-bert")
    weights = weights_by_device(header, Placement(layers=4, gpus=ONE))
    assert weights.by_device == {"a": 0, HOST: 1024}


def test_rotary_frequencies_are_copied_to_each_device_with_a_layer() -> None:
    header = header_of(matrix("rope_freqs.weight"), matrix("output.weight", 256))
    placement = Placement(layers=4, gpus=TWO, n_gpu_layers=4)
    assert [placement.device_of_layer(layer) for layer in range(4)] == [HOST, "a", "a", "b"]
    weights = weights_by_device(header, placement)
    assert weights.by_device == {"a": 128, "b": 128 + 256, HOST: 128}
    assert weights.by_layer == (128, 128, 0, 128)


@pytest.mark.parametrize(
    ("name", "architecture", "device"),
    [
        ("token_embd_norm.weight", "bloom", "a"),
        ("token_embd_norm.weight", "lfm2", "b"),
        ("per_layer_model_proj.weight", "gemma4", "a"),
        ("cls.weight", "bert", "b"),
        ("hrm.z_l_init", "hrm_text", "a"),
        ("output_norm", "llama", "b"),
        ("dec.blk.0.attn_q.weight", "t5", "a"),
        ("enc.blk.1.attn_q.weight", "t5", "b"),
        ("blk.7.attn_q.weight", "clef", "b"),
    ],
)
def test_tensors_outside_the_layers_have_their_places(
    name: str, architecture: str, device: str
) -> None:
    header = header_of(matrix(name), architecture=architecture)
    weights = weights_by_device(header, Placement(layers=2, gpus=(Gpu("a", 1), Gpu("b", 2))))
    assert {one for one, n_bytes in weights.by_device.items() if n_bytes} == {device}


@pytest.mark.parametrize("name", ["dec.blk.0.cross_attn_rel_b.weight", "masked_embd_ordering"])
def test_tensors_that_are_never_used_are_not_loaded(name: str) -> None:
    assert weights_by_device(header_of(matrix(name)), Placement(layers=2)).total == 0


def test_layers_that_are_not_loaded_take_no_memory() -> None:
    header = header_of(
        *(matrix(f"blk.{layer}.attn_q.weight") for layer in range(4)), matrix("rope_freqs.weight")
    )
    weights = weights_by_device(header, Placement(layers=4, loaded_layers=3, gpus=ONE))
    assert weights.by_layer == (256, 128, 128, 0)
    # They count for the split all the same.
    split = weights_by_device(header, Placement(layers=4, loaded_layers=3, gpus=TWO))
    assert split.by_device == {"a": 512, "b": 0, HOST: 0}


def test_experts_kept_on_the_host_leave_the_rest_of_their_layer_on_the_gpu() -> None:
    header, layers = model("qwen3moe")
    whole = weights_by_device(header, Placement(layers=layers, gpus=ONE))
    cut = Placement(layers=layers, gpus=ONE, overrides=experts_on_host(2))
    weights = weights_by_device(header, cut)
    experts = [one for one in header.tensors if "_exps." in one.name]
    moved = sum(one.n_bytes for one in experts if one.name.startswith(("blk.0.", "blk.1.")))
    assert moved == 6 * 4 * 64 * 32 * 2
    assert weights.host_bytes - whole.host_bytes == moved
    assert whole.by_device["a"] - weights.by_device["a"] == moved
    assert cut.device_of_layer(0) == "a"


def test_a_tensor_and_its_copy_are_one_where_an_override_puts_both() -> None:
    header = header_of(matrix("token_embd.weight", 1024))
    placement = Placement(layers=4, gpus=ONE, overrides=(Override("token_embd", HOST),))
    assert weights_by_device(header, placement).by_device == {"a": 0, HOST: 1024}


@pytest.mark.parametrize(
    ("spec", "on_host", "on_gpu"),
    [
        (TensorSpec("t", (1,)), 32, 128),
        (TensorSpec("t", (32, 3)), 384, 384),
        (TensorSpec("t", (512, 2), "q8_0"), 1088, 1152),
        (TensorSpec("t", (576, 2), "q8_0"), 1224 + 24, 1792),  # 1224 + 448 elements in 476 bytes
        (TensorSpec("t", (576, 2), "f16"), 2304, 2304),
        (TensorSpec("t", (256, 1), "q4_K"), 160, 384),
    ],
)
def test_tensors_are_padded_by_the_rule_of_their_device(
    spec: TensorSpec, on_host: int, on_gpu: int
) -> None:
    assert padded_bytes(tensor_of(spec), HOST) == on_host
    assert padded_bytes(tensor_of(spec), "a") == on_gpu


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_add_up_to_the_devices(name: str) -> None:
    header, layers = model(name)
    for n_gpu_layers in (0, 1, 2, layers, None):
        placement = Placement(layers=layers, gpus=TWO, n_gpu_layers=n_gpu_layers)
        weights = weights_by_device(header, placement)
        parts = sum(weights.by_layer) + weights.input_bytes + weights.output_bytes
        assert parts == weights.total
        assert weights.total >= sum(one.n_bytes for one in header.tensors if not unused(one.name))


def unused(name: str) -> bool:
    return "cross_attn_rel_b" in name
