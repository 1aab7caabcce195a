"""Small models, one or more per family of architectures, that llama.cpp itself can load.

Every value is chosen so that a formula that forgets something gets a different number: head sizes
differ from the embedding divided by the heads, key and value lengths differ where they may, head
counts differ between layers, windows are smaller than the context.

`deepseek4` is a header without tensors.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.capacity.gguf_writer import TensorSpec, write_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LAYERS = re.compile(r"^(.*blk\.)([\d,-]+)(\..*)$")
_VOCABULARY = 320


def write_model(name: str, directory: Path) -> Path:
    """Write `NAME.gguf`, with a vocabulary that can express any text; return its path."""
    path = directory / f"{name}.gguf"
    return write_gguf(path, {**META[name], **vocabulary()}, TENSORS[name])


def vocabulary() -> dict[str, Any]:
    """Make a complete vocabulary of bytes and some letters."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    tokens += "etaoinshrdlucmfwypvbgkjqxz"
    letters = len(tokens) - 259
    extra = _VOCABULARY - len(tokens)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*tokens, *(f"<extra_{i}>" for i in range(extra))],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(_VOCABULARY - 259)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * letters + [4] * extra,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": (
            "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
        ),
    }


def _as_read(value: Any) -> Any:
    """The value as a file gives it back: arrays are tuples, floats have 32 bits."""
    if isinstance(value, list):
        return tuple(map(_as_read, value))
    if isinstance(value, float):
        return struct.unpack("<f", struct.pack("<f", value))[0]
    return value


def _spread(rows: Mapping[str, str]) -> Iterator[TensorSpec]:
    """Expand rows such as `blk.0-2,5.attn_q.weight: f16 64 128`."""
    for pattern, what in rows.items():
        type_name, *shape = what.split()
        for name in _names(pattern):
            yield TensorSpec(name, tuple(map(int, shape)), type_name)


def _names(pattern: str) -> Iterator[str]:
    found = _LAYERS.match(pattern)
    if not found:
        yield pattern
        return
    for run in found[2].split(","):
        first, _, last = run.partition("-")
        for layer in range(int(first), int(last or first) + 1):
            yield f"{found[1]}{layer}{found[3]}"


_DATA = json.loads(
    (Path(__file__).parent / "data" / "tiny_models.json").read_text(encoding="utf-8")
)

NAMES: tuple[str, ...] = tuple(_DATA)
# Name -> the metadata without the vocabulary, as a reader of the file sees it.
META: Mapping[str, Mapping[str, Any]] = {
    name: {key: _as_read(value) for key, value in one["meta"].items()}
    for name, one in _DATA.items()
}
TENSORS: Mapping[str, tuple[TensorSpec, ...]] = {
    name: tuple(_spread(one["tensors"])) for name, one in _DATA.items()
}
