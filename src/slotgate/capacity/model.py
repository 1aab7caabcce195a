"""A model as the planner sees it: its shape, its name for the command line, and its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.placement import Placement
from slotgate.capacity.shapes import Shape, shape_of
from slotgate.capacity.weights import Weights, weights_by_device
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from slotgate.capacity.header import Header
    from slotgate.capacity.metadata import Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is planned.

    `source` is what llama-server's `--model` is to be given.  Without a `header` only the keys of
    a catalog are known, and `weights_bytes` is what the user says that the file takes.
    """

    name: str
    source: str
    meta: Meta
    shape: Shape
    header: Header | None = None
    weights_bytes: int = 0

    @property
    def is_verified(self) -> bool:
        """Whether the formulas of its architecture were checked against llama.cpp."""
        return self.shape.row.verified

    def weights(self, placement: Placement) -> Weights:
        """Bytes of weights on each device: exact with a header, else spread evenly."""
        if self.header is not None:
            return weights_by_device(self.header, placement)
        layers = placement.layers
        each, rest = divmod(self.weights_bytes, layers)
        by_device = dict.fromkeys(placement.devices, 0)
        for layer in range(layers):
            by_device[placement.device_of_layer(layer)] += each
        by_device[placement.output_device] += rest
        return Weights(
            by_device=by_device, by_layer=(each,) * layers, input_bytes=0, output_bytes=rest
        )


def model_of_file(header: Header, *, name: str, source: str) -> Model:
    """A model whose header was read; PlanRefused if llama.cpp would not load it."""
    return Model(
        name=name,
        source=source,
        meta=header.meta,
        shape=shape_of(header.meta),
        header=header,
        weights_bytes=header.n_bytes,
    )


def model_of_keys(meta: Meta, *, name: str, weights_bytes: int | None) -> Model:
    """A model of which only the keys are known, as in the catalog."""
    if not weights_bytes:
        raise ConfigError(
            f"{name}: only its shape is known; say how large the file is: --weights 4.7GB"
        )
    return Model(
        name=name,
        source=f"{name}.gguf",
        meta=meta,
        shape=shape_of(meta),
        weights_bytes=weights_bytes,
    )
