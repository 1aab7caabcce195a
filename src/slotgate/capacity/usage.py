"""What a model with certain settings takes of each device, and whether it fits there.

    on a GPU    = weights + context of its layers + scratch x 1.2 <= free - driver
    on the host = the same for the layers that stay there, and the token embedding

A layer's context is where the layer is.  Scratch is computed as if each device held the whole
model, which is what llama.cpp's widest step needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from slotgate.capacity.compute import ComputeEstimate, compute_of
from slotgate.capacity.compute_work import work_of
from slotgate.capacity.context import ContextMemory, memory_of
from slotgate.capacity.devices import Device, DeviceKind, DeviceSet
from slotgate.capacity.metadata import Keys
from slotgate.capacity.placement import HOST, Gpu, Placement
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from slotgate.capacity.model import Model
    from slotgate.capacity.settings import Settings
    from slotgate.capacity.weights import Weights
    from slotgate.capacity.wish import Wish


# With several GPUs llama.cpp works on so many batches at once.
_PIPELINE_COPIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What one device holds, in bytes; `compute` is planned, the estimate and its margin."""

    name: str
    device: Device | None
    weights: int
    context: int
    compute: int

    @property
    def used(self) -> int:
        """What llama.cpp allocates there."""
        return self.weights + self.context + self.compute

    @property
    def left(self) -> int | None:
        """What stays free, below zero if it does not fit; None if nobody knows the device."""
        return None if self.device is None else self.device.budget_bytes - self.used


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a model with these settings takes, by device; the host is the last."""

    settings: Settings
    memory: ContextMemory
    weights: Weights
    compute: ComputeEstimate
    placement: Placement
    devices: tuple[DeviceUse, ...]

    @property
    def fits(self) -> bool:
        """Whether every device that is known has room."""
        return all(use.left is None or use.left >= 0 for use in self.devices)

    @property
    def context_bytes(self) -> int:
        return self.memory.total

    @property
    def on_gpus(self) -> bool:
        return len(self.devices) > 1


class _Placed(NamedTuple):
    """Where everything goes: `devices` are those of the layers, and last that of the output."""

    placement: Placement
    weights: Weights
    devices: list[str]


def _scratch(name: str, placed: _Placed, compute: ComputeEstimate) -> int:
    outputs = compute.host_outputs if name == HOST else 0
    if name in placed.devices:
        return compute.planned + outputs
    # The host feeds the GPUs: the tokens' embeddings, and the masks.
    fed = compute.inputs if name == HOST else 0
    return fed + outputs


class Uses:
    """Computes usages of one model on the same devices; keeps what does not change."""

    def __init__(self, model: Model, devices: DeviceSet, wish: Wish) -> None:
        if not devices.gpus and devices.host is None:
            raise ConfigError("no memory is known to plan for: say how much, --memory 24GiB")
        if wish.tensor_split and len(wish.tensor_split) != len(devices.gpus):
            raise ConfigError(
                f"--tensor-split has {len(wish.tensor_split)} shares for {len(devices.gpus)} GPUs"
            )
        self._model = model
        self._keys = Keys(model.meta)
        self._devices = devices
        self._has_cards = any(gpu.kind is DeviceKind.GPU for gpu in devices.gpus)
        self._wish = wish
        # Layers on the GPUs -> where everything goes.
        self._placed: dict[int | None, _Placed] = {}

    def of(self, settings: Settings, n_gpu_layers: int | None) -> Usage:
        """Compute one usage; PlanRefused where llama.cpp would refuse."""
        placed = self._place(n_gpu_layers)
        memory = memory_of(self._model.shape, settings)
        compute = compute_of(
            work_of(self._keys, self._model.shape, settings, memory),
            # Metal needs no copy of a quantised cache.
            backend="cuda" if self._has_cards else "cpu",
            copies=self._copies(n_gpu_layers),
        )
        return Usage(
            settings=settings,
            memory=memory,
            weights=placed.weights,
            compute=compute,
            placement=placed.placement,
            devices=self._uses(placed, memory, compute),
        )

    def _copies(self, n_gpu_layers: int | None) -> int:
        """How often the inputs are held: several GPUs with all layers work in a pipeline."""
        all_layers = n_gpu_layers is None or n_gpu_layers > self._model.shape.layers.all
        piped = len(self._devices.gpus) > 1 and all_layers and not self._wish.overrides
        return _PIPELINE_COPIES if piped else 1

    def _place(self, n_gpu_layers: int | None) -> _Placed:
        if n_gpu_layers not in self._placed:
            layers = self._model.shape.layers
            placement = Placement(
                layers=layers.all,
                loaded_layers=layers.trunk or None,
                n_gpu_layers=n_gpu_layers,
                gpus=self._gpus(),
                overrides=self._wish.overrides,
            )
            self._placed[n_gpu_layers] = _Placed(
                placement,
                self._model.weights(placement),
                [placement.device_of_layer(n) for n in range(layers.all + 1)],
            )
        return self._placed[n_gpu_layers]

    def _gpus(self) -> tuple[Gpu, ...]:
        shares = self._wish.tensor_split or [gpu.free_bytes for gpu in self._devices.gpus]
        return tuple(
            Gpu(gpu.name, float(share))
            for gpu, share in zip(self._devices.gpus, shares, strict=True)
        )

    def _uses(
        self, placed: _Placed, memory: ContextMemory, compute: ComputeEstimate
    ) -> tuple[DeviceUse, ...]:
        names = placed.placement.devices
        context = dict.fromkeys(names, 0)
        for device, n_bytes in zip(placed.devices, memory.by_layer, strict=False):
            context[device] += n_bytes
        known = {device.name: device for device in self._devices.gpus}
        uses = [
            DeviceUse(
                name=name,
                device=known.get(name, self._devices.host),
                weights=placed.weights.by_device[name],
                context=context[name],
                compute=_scratch(name, placed, compute),
            )
            for name in names
        ]
        return tuple(self._shared(uses))

    def _shared(self, uses: list[DeviceUse]) -> list[DeviceUse]:
        """Where GPU and host are one memory, what the host holds is taken from the GPU's too."""
        if not (uses[0].device and uses[0].device.kind is DeviceKind.UNIFIED):
            return uses
        first, *between, host = uses
        together = DeviceUse(
            name=first.name,
            device=first.device,
            weights=first.weights + host.weights,
            context=first.context + host.context,
            compute=first.compute + host.compute,
        )
        return [
            together,
            *between,
            DeviceUse(name=HOST, device=None, weights=0, context=0, compute=0),
        ]
