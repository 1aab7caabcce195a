"""The bytes of a model's weights on each device, exact, from the table of its tensors.

Rules of llama.cpp build 11434:
- the token embedding and its like are read row by row and always stay on the host;
- `blk.N.` (and `enc.blk.N.`, `dec.blk.N.`) goes with layer N, the rest with the output;
- a model without an output matrix of its own uses the token embedding: on the host it is the same
  bytes, on a GPU a copy of them.  An encoder has no output matrix at all;
- the frequencies of the rotary embedding serve all layers: each device with a layer has a copy;
- blocks of multi-token prediction stay in the file unless they are used.

On a GPU a tensor is padded as CUDA does, which pads no less than other backends: to 128 bytes, and
behind a quantised matrix there is room for its rows to be 512 elements long.  On the host it is
padded to 32 bytes.  Backends that cannot compute with a type leave its tensors on the host; that
cannot be seen from here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slotgate.capacity.ggml_types import BY_NAME, row_bytes
from slotgate.capacity.placement import HOST, Placement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slotgate.capacity.header import Header, Tensor

_HOST_ALIGNMENT: Final = 32
_GPU_ALIGNMENT: Final = 128
_GPU_ROW_ELEMENTS: Final = 512

_LAYER = re.compile(r"^(?:(?:enc\.|dec\.)?blk|convnext|posnet)\.(\d+)\.")
# Names without the number of a layer, by where they belong; all others go with the output.
_INPUT: Final = frozenset({"token_embd", "position_embd", "token_types", "per_layer_token_embd"})
_FIRST_LAYER: Final = frozenset(
    {
        "token_embd_norm",
        "per_layer_model_proj",
        "per_layer_proj_norm",
        "hrm.z_l_init",
        "nextn.pre_projection",
        "conv1d",
    }
)
_EVERY_LAYER: Final = frozenset({"rope_freqs", "rope_factors_long", "rope_factors_short"})
# In the files of some models, but never loaded.
_UNUSED = re.compile(r"^dec\.blk\.\d+\.cross_attn_rel_b\.|^masked_embd_(?:centroids|ordering)")
# What these architectures call so is the norm before the output.
_OUTPUT_NORM_MISNAMED: Final = frozenset({"lfm2", "lfm2moe"})
# Without an output matrix these do not use the token embedding, or use it where it is.
_NOT_TIED: Final = frozenset(
    {
        "bert",
        "bitnet",
        "clef",
        "eagle3",
        "eurobert",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "wavtokenizer-dec",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Bytes of weights, padding included.

    `by_device` has every device of the placement, the host too.  `by_layer` has the layers;
    `input_bytes` and `output_bytes` are what is not in a layer.
    """

    by_device: Mapping[str, int]
    by_layer: tuple[int, ...]
    input_bytes: int
    output_bytes: int

    @property
    def host_bytes(self) -> int:
        return self.by_device[HOST]

    @property
    def total(self) -> int:
        """The bytes on all devices; more than in the file if tensors are copied."""
        return sum(self.by_device.values())


def weights_by_device(header: Header, placement: Placement) -> Weights:
    """Sum the tensors of a model where this placement puts them."""
    by_device = dict.fromkeys(placement.devices, 0)
    # Place of a layer, -1 for the input, `layers` for the output -> bytes.
    by_place: defaultdict[int, int] = defaultdict(int)
    uses = _Uses(header, placement)
    for tensor in header.tensors:
        for device, place in uses.copies(tensor):
            n_bytes = padded_bytes(tensor, device)
            by_device[device] += n_bytes
            by_place[place] += n_bytes
    return Weights(
        by_device=MappingProxyType(by_device),
        by_layer=tuple(by_place[layer] for layer in range(placement.layers)),
        input_bytes=by_place[-1],
        output_bytes=by_place[placement.layers],
    )


def padded_bytes(tensor: Tensor, device: str) -> int:
    """The bytes that a tensor takes on a device."""
    if device == HOST:
        return _aligned(tensor.n_bytes, _HOST_ALIGNMENT)
    n_bytes = tensor.n_bytes
    beyond = tensor.shape[0] % _GPU_ROW_ELEMENTS
    if beyond and BY_NAME[tensor.type].block_elements > 1:
        n_bytes += row_bytes(tensor.type, _GPU_ROW_ELEMENTS - beyond)
    return _aligned(n_bytes, _GPU_ALIGNMENT)


class _Uses:
    """Knows in which places of a model each of its tensors is used."""

    def __init__(self, header: Header, placement: Placement) -> None:
        self._placement = placement
        self._layers = placement.layers
        loaded = placement.loaded_layers
        self._loaded = self._layers if loaded is None else loaded
        architecture = header.meta.get("general.architecture")
        self._output_norm_misnamed = architecture in _OUTPUT_NORM_MISNAMED
        has_output = any(tensor.name == "output.weight" for tensor in header.tensors)
        self._is_tied = not has_output and architecture not in _NOT_TIED

    def copies(self, tensor: Tensor) -> Iterator[tuple[str, int]]:
        """Yield each device that has the tensor, with the first place that uses it there."""
        overridden = self._placement.override_of(tensor.name)
        devices = set()
        for place in self._places(tensor.name):
            device = overridden or self._device(place)
            if device not in devices:
                devices.add(device)
                yield device, place

    def _places(self, name: str) -> tuple[int, ...] | range:
        if found := _LAYER.match(name):
            layer = int(found[1])
            is_left_out = self._loaded <= layer < self._layers or _UNUSED.match(name)
            return () if is_left_out else (min(layer, self._layers),)
        return self._places_outside_layers(name, name.removesuffix(".weight").removesuffix(".bias"))

    def _places_outside_layers(self, name: str, stem: str) -> tuple[int, ...] | range:
        if name == "token_embd.weight" and self._is_tied:
            return (-1, self._layers)
        if stem in _INPUT:
            return (-1,)
        if stem in _EVERY_LAYER:
            return range(self._loaded)
        if stem in _FIRST_LAYER and not (stem == "token_embd_norm" and self._output_norm_misnamed):
            return (0,)
        return () if _UNUSED.match(name) else (self._layers,)

    def _device(self, place: int) -> str:
        return HOST if place < 0 else self._placement.device_of_layer(place)


def _aligned(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment
