"""Plans for tests: of models of the catalog, and of small ones by their keys."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from slotgate.capacity import catalog
from slotgate.capacity.devices import DeviceSet, by_hand
from slotgate.capacity.model import Model, model_of_keys
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.wish import Wish
from tests.capacity.truth import meta_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MiB, GiB = 1 << 20, 1 << 30
CARD_24 = by_hand((24 * GiB,))
HOST_64 = by_hand((), host_bytes=64 * GiB)

# Weights of usual Q4 files, in GiB.
WEIGHTS_GIB = {
    "Llama-3.1-8B": 4.31,
    "Llama-3.3-70B": 40.0,
    "Gemma-3-27b": 15.4,
    "Qwen3-30B-A3B": 17.1,
    "Qwen3.5-27B": 15.5,
    "Granite-4.0-H-Small": 18.0,
    "Mistral-Nemo-12B": 7.0,
    "DeepSeek-V2-Lite": 9.0,
    "LFM2-1.2B": 0.7,
}


def catalog_model(name: str, weights_gib: float | None = None) -> Model:
    entry = catalog.find(name)
    gib = WEIGHTS_GIB.get(entry.name, 4.0) if weights_gib is None else weights_gib
    return model_of_keys(entry.meta, name=entry.name, weights_bytes=int(gib * GiB))


@cache
def plan_of(name: str, devices: DeviceSet = CARD_24, **wish: Any) -> Plan:
    """A plan of a model of the catalog, on one empty card of 24 GiB if nothing else is said."""
    return make_plan(catalog_model(name), devices, Wish(**wish))


def model_of_meta(meta: Mapping[str, Any], name: str = "a model") -> Model:
    return model_of_keys(meta, name=name, weights_bytes=MiB)


@cache
def tiny_plan(name: str, devices: DeviceSet = CARD_24, **wish: Any) -> Plan:
    """A plan of one of the tiny models by its keys."""
    return make_plan(model_of_meta(meta_of(name), name), devices, Wish(**wish))


def renamed(meta: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """The same keys for another architecture."""
    own = f"{meta['general.architecture']}."
    keys = {
        key.replace(own, f"{architecture}.", 1) if key.startswith(own) else key: value
        for key, value in meta.items()
    }
    return {**keys, "general.architecture": architecture}
