"""Which device each layer of a model is put on, as llama.cpp decides it (`--split-mode layer`).

The layers count from 0; the output matrix counts as one more, the last.  `--n-gpu-layers N` puts
the last N of these on the GPUs, the first on the host.  The GPUs take them in turn, in proportion
to their shares: with the cumulative shares c_0 <= c_1 <= ... <= 1, the i-th of N goes to the first
GPU whose c is greater than i / N.  llama.cpp computes that in single precision, and so do we: a
layer on a boundary would else land on another GPU.

A layer's context (KV cache or recurrent state) is where the layer is, wherever single tensors of
it are put by `--override-tensor`, `--cpu-moe` or `--n-cpu-moe`.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from slotgate.errors import PlanRefused

HOST: Final = "host"
# Sums of shares nearer to zero, or larger than its inverse, are lost in single precision.
_LEAST: Final = 1e-30
# The matrices of experts, in `--cpu-moe`, and in `--n-cpu-moe` for some layers.
_EXPERTS: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


class Gpu(NamedTuple):
    """A GPU, and its share of the layers: its free bytes, or its part of `--tensor-split`."""

    name: str
    share: float


class Override(NamedTuple):
    """Tensors whose name holds the pattern go to this device (`--override-tensor`)."""

    pattern: str
    device: str


def experts_on_host(layers: int | None = None) -> tuple[Override, ...]:
    """The overrides of `--cpu-moe`, or with a number of those of `--n-cpu-moe`."""
    if layers is None:
        return (Override(_EXPERTS, HOST),)
    return tuple(Override(rf"blk\.{layer}{_EXPERTS}", HOST) for layer in range(layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the parts of a model go.

    `layers`: the blocks of the model, those of multi-token prediction included.
    `loaded_layers`: the blocks from here on stay in the file; None loads them all.
    `n_gpu_layers`: how many layers the GPUs get, the output counted as one; None is all of them.
    `overrides`: the first one that fits a tensor holds.
    Raises PlanRefused for shares or overrides that llama.cpp could not follow.
    """

    layers: int
    loaded_layers: int | None = None
    n_gpu_layers: int | None = None
    gpus: tuple[Gpu, ...] = ()
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        shares = [gpu.share for gpu in self.gpus]
        if shares and not (min(shares) >= 0 and _LEAST < sum(shares) < 1 / _LEAST):
            raise PlanRefused(f"no layers can be split by the shares {shares}")
        devices = {HOST, *(gpu.name for gpu in self.gpus)}
        if len(devices) <= len(self.gpus):
            raise PlanRefused(f"two devices have one name: {', '.join(g.name for g in self.gpus)}")
        for override in self.overrides:
            _check(override, devices)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of all devices, the host last."""
        return (*(gpu.name for gpu in self.gpus), HOST)

    @property
    def output_device(self) -> str:
        return self.device_of_layer(self.layers)

    def device_of_layer(self, layer: int) -> str:
        """Return where a layer and its context are; what lies beyond the layers is the output's."""
        place = min(layer, self.layers)
        asked = self.layers + 1 if self.n_gpu_layers is None else self.n_gpu_layers
        begin = max(self.layers + 1 - asked, 0)
        if not self.gpus or place < begin:
            return HOST
        fraction = _single((place - begin) / min(asked, self.layers + 1))
        return self.gpus[bisect_right(self._splits(), fraction)].name

    def _splits(self) -> list[float]:
        """The cumulative shares, of 1."""
        shares = (_single(gpu.share) for gpu in self.gpus)
        sums = list(accumulate(shares, lambda a, b: _single(a + b)))
        return [_single(one / sums[-1]) for one in sums]

    def override_of(self, tensor_name: str) -> str | None:
        """Return where an override puts the tensor, if one does."""
        for override in self.overrides:
            if re.search(override.pattern, tensor_name):
                return override.device
        return None


def _single(number: float) -> float:
    """Round to single precision."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def _check(override: Override, devices: set[str]) -> None:
    if override.device not in devices:
        known = ", ".join(sorted(devices))
        raise PlanRefused(f"--override-tensor {override.pattern}={override.device}: only {known}")
    try:
        re.compile(override.pattern)
    except re.error as error:
        raise PlanRefused(f"--override-tensor {override.pattern}: {error}") from error
