"""Popular models at their real size, in files that are all holes: real headers, weights of zeros.

llama.cpp computes with such a file, and it takes no place on the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.capacity.gguf_writer import TensorSpec, encode_header
from tests.capacity.tiny_models import vocabulary
from tests.capacity.truth import CATALOG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# A small machine can hold them and plans of them.
POPULAR = (
    *("SmolLM2-360M", "Llama-3.2-1B", "Qwen3-0.6B", "Gemma-3-1b"),
    *("LFM2-1.2B", "Qwen3.5-0.8B", "Falcon-H1-1.5B"),
)

Shape = tuple[int, ...]
Shapes = dict[str, Shape]


def write_popular(name: str, directory: Path) -> Path:
    """Write `NAME.gguf`, a model of the catalog in Q4_0; return its path."""
    meta = next(model["meta"] for model in CATALOG if model["name"] == name)
    sizes = _Sizes(meta)
    tensors = [
        TensorSpec(tensor, shape, "q4_0" if _is_matrix(tensor, shape) else "f32")
        for tensor, shape in _tensors(sizes)
    ]
    keys = {**meta, f"{sizes.arch}.attention.layer_norm_rms_epsilon": 1e-5, **_words(sizes.vocab)}
    header = encode_header(keys, tensors)
    path = directory / f"{name}.gguf"
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(tensor.n_bytes + 32 for tensor in tensors))
    return path


def _words(count: int) -> dict[str, Any]:
    """The small models' vocabulary, with words that nothing uses up to the real number."""
    keys = vocabulary()
    more = count - len(keys["tokenizer.ggml.tokens"])
    tokens = [f"<more_{number}>" for number in range(more)]
    unused: dict[str, list[Any]] = {"tokens": tokens}
    unused |= {"scores": [-1e3] * more, "token_type": [4] * more}
    for name, values in unused.items():
        keys[f"tokenizer.ggml.{name}"] = [*keys[f"tokenizer.ggml.{name}"], *values]
    return keys


def _is_matrix(name: str, shape: Shape) -> bool:
    """Whether llama.cpp multiplies by it, so that it may be quantised."""
    return len(shape) > 1 and shape[0] % 32 == 0 and "norm" not in name


class _Sizes:
    """The sizes that tensors are made of."""

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self._meta = meta
        self.arch = meta["general.architecture"]
        self.embd, self.ff = self.of("embedding_length"), self.of("feed_forward_length")
        self.layers, self.vocab = self.of("block_count"), self.of("vocab_size")
        self.head = self.of("attention.key_length")
        self.q = self.of("attention.head_count") * self.head
        self.inner, self.state = self.of("ssm.inner_size"), self.of("ssm.state_size")
        self.groups, self.rank = self.of("ssm.group_count"), self.of("ssm.time_step_rank")
        self.mixed = self.inner + 2 * self.groups * self.state

    def of(self, key: str) -> Any:
        return self._meta.get(f"{self.arch}.{key}", 0)

    def kv(self, layer: int) -> int:
        """The elements of a row of keys, and of values."""
        heads = self.of("attention.head_count_kv")
        return int(self.head * (heads[layer] if isinstance(heads, (list, tuple)) else heads))


def _tensors(sizes: _Sizes) -> Iterator[tuple[str, Shape]]:
    """The embedding is the output, too, as in most small models."""
    yield "token_embd.weight", (sizes.embd, sizes.vocab)
    norm = "token_embd_norm" if sizes.arch == "lfm2" else "output_norm"
    yield f"{norm}.weight", (sizes.embd,)
    for layer in range(sizes.layers):
        for name, shape in _BLOCKS[sizes.arch](sizes, layer).items():
            yield f"blk.{layer}.{name}", shape


def _llama(sizes: _Sizes, layer: int) -> Shapes:
    kv, wide = sizes.kv(layer), (sizes.embd, sizes.ff)
    return {
        "attn_norm.weight": (sizes.embd,),
        "attn_q.weight": (sizes.embd, sizes.q),
        "attn_k.weight": (sizes.embd, kv),
        "attn_v.weight": (sizes.embd, kv),
        "attn_output.weight": (sizes.q, sizes.embd),
        "ffn_norm.weight": (sizes.embd,),
        "ffn_gate.weight": wide,
        "ffn_up.weight": wide,
        "ffn_down.weight": (sizes.ff, sizes.embd),
    }


def _qwen3(sizes: _Sizes, layer: int) -> Shapes:
    norms = {f"attn_{what}_norm.weight": (sizes.head,) for what in "qk"}
    return {**_llama(sizes, layer), **norms}


def _gemma3(sizes: _Sizes, layer: int) -> Shapes:
    norms = {f"post_{what}_norm.weight": (sizes.embd,) for what in ("attention", "ffw")}
    return {**_qwen3(sizes, layer), **norms}


def _lfm2(sizes: _Sizes, layer: int) -> Shapes:
    if sizes.kv(layer):
        return _qwen3(sizes, layer)
    return {
        **_without_attention(_llama(sizes, layer)),
        "shortconv.conv.weight": (sizes.of("shortconv.l_cache"), sizes.embd),
        "shortconv.in_proj.weight": (sizes.embd, 3 * sizes.embd),
        "shortconv.out_proj.weight": (sizes.embd, sizes.embd),
    }


def _without_attention(shapes: Shapes) -> Shapes:
    attention = ("attn_q", "attn_k", "attn_v", "attn_o")
    return {name: shape for name, shape in shapes.items() if not name.startswith(attention)}


def _qwen35(sizes: _Sizes, layer: int) -> Shapes:
    shapes = {**_qwen3(sizes, layer), "post_attention_norm.weight": (sizes.embd,)}
    del shapes["ffn_norm.weight"]
    if (layer + 1) % sizes.of("full_attention_interval") == 0:
        # Queries, and a gate as wide.
        return {**shapes, "attn_q.weight": (sizes.embd, 2 * sizes.q)}
    return {
        **_without_attention(shapes),
        "attn_qkv.weight": (sizes.embd, sizes.mixed),
        "attn_gate.weight": (sizes.embd, sizes.inner),
        "ssm_conv1d.weight": (sizes.of("ssm.conv_kernel"), sizes.mixed),
        "ssm_dt.bias": (sizes.rank,),
        "ssm_a": (sizes.rank,),
        "ssm_beta.weight": (sizes.embd, sizes.rank),
        "ssm_alpha.weight": (sizes.embd, sizes.rank),
        "ssm_norm.weight": (sizes.state,),
        "ssm_out.weight": (sizes.inner, sizes.embd),
    }


def _falcon_h1(sizes: _Sizes, layer: int) -> Shapes:
    shapes = _llama(sizes, layer)
    # llama.cpp looks for this one without an ending.
    shapes["ffn_norm"] = shapes.pop("ffn_norm.weight")
    return {
        **shapes,
        "ssm_in.weight": (sizes.embd, sizes.inner + sizes.mixed + sizes.rank),
        "ssm_conv1d.weight": (sizes.of("ssm.conv_kernel"), sizes.mixed),
        "ssm_conv1d.bias": (sizes.mixed,),
        "ssm_dt.bias": (sizes.rank,),
        "ssm_a": (1, sizes.rank),
        "ssm_d": (1, sizes.rank),
        "ssm_norm.weight": (sizes.inner // sizes.groups, sizes.groups),
        "ssm_out.weight": (sizes.inner, sizes.embd),
    }


_BLOCKS: Mapping[str, Callable[[_Sizes, int], Shapes]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
    "lfm2": _lfm2,
    "qwen35": _qwen35,
    "falcon-h1": _falcon_h1,
}
