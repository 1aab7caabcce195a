"""Which device a layer is put on."""

from __future__ import annotations

from ctypes import c_float

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.capacity.placement import HOST, Gpu, Override, Placement, experts_on_host
from slotgate.errors import PlanRefused

ONE = (Gpu("a", 8e9),)
TWO = (Gpu("a", 8e9), Gpu("b", 8e9))


def devices(placement: Placement) -> list[str]:
    """The devices of all layers, and of the output."""
    return [placement.device_of_layer(layer) for layer in range(placement.layers + 1)]


def test_without_a_gpu_everything_is_on_the_host() -> None:
    placement = Placement(layers=3)
    assert devices(placement) == [HOST] * 4
    assert placement.devices == (HOST,)


def test_one_gpu_gets_all_layers_and_the_output() -> None:
    placement = Placement(layers=3, gpus=ONE)
    assert devices(placement) == ["a"] * 4
    assert placement.devices == ("a", HOST)


@pytest.mark.parametrize(
    ("n_gpu_layers", "on_host"), [(0, 4), (1, 3), (2, 2), (3, 1), (4, 0), (99, 0), (None, 0)]
)
def test_the_output_is_offloaded_first_and_then_the_last_layers(
    n_gpu_layers: int | None, on_host: int
) -> None:
    placement = Placement(layers=3, gpus=ONE, n_gpu_layers=n_gpu_layers)
    assert devices(placement) == [HOST] * on_host + ["a"] * (4 - on_host)


def test_gpus_share_the_layers_in_proportion() -> None:
    assert devices(Placement(layers=4, gpus=TWO)) == ["a", "a", "a", "b", "b"]
    third = (Gpu("a", 1), Gpu("b", 2))
    assert devices(Placement(layers=5, gpus=third)) == ["a", "a", "b", "b", "b", "b"]


def test_gpus_share_only_the_layers_that_are_offloaded() -> None:
    assert devices(Placement(layers=4, gpus=TWO, n_gpu_layers=2)) == [HOST, HOST, HOST, "a", "b"]


def test_a_gpu_with_a_share_too_small_for_a_layer_gets_none_and_not_even_the_output() -> None:
    gpus = (Gpu("a", 95), Gpu("b", 5))
    placement = Placement(layers=9, gpus=gpus)
    assert devices(placement) == ["a"] * 10
    assert placement.output_device == "a"


def test_a_gpu_without_a_share_gets_nothing() -> None:
    gpus = (Gpu("a", 0), Gpu("b", 1), Gpu("c", 0))
    assert set(devices(Placement(layers=9, gpus=gpus))) == {"b"}


def test_what_lies_beyond_the_layers_goes_with_the_output() -> None:
    placement = Placement(layers=4, gpus=TWO)
    assert placement.device_of_layer(400) == placement.output_device == "b"


def test_boundaries_are_those_of_single_precision() -> None:
    # In double precision 0.1 / 0.6 is more than 6 / 36: the first GPU would get a layer more.
    placement = Placement(layers=35, gpus=(Gpu("a", 0.1), Gpu("b", 0.5)))
    assert devices(placement) == ["a"] * 6 + ["b"] * 30


@given(
    layers=st.integers(1, 130),
    asked=st.integers(0, 140),
    shares=st.lists(
        st.integers(0, 200_000_000_000) | st.floats(0, 64, width=32), min_size=1
    ).filter(lambda shares: sum(shares) > 1e-20),
)
def test_layers_are_split_as_llama_cpp_splits_them(
    layers: int, asked: int, shares: list[float]
) -> None:
    names = [f"gpu {index}" for index in range(len(shares))]
    gpus = tuple(map(Gpu, names, shares))
    placement = Placement(layers=layers, gpus=gpus, n_gpu_layers=asked)
    assert devices(placement) == expected(layers, asked, shares, names)


def expected(layers: int, asked: int, shares: list[float], names: str | list[str]) -> list[str]:
    """The rule again, step by step, in the floats of C."""
    sums, total = [], c_float(0)
    for share in shares:
        total = c_float(total.value + c_float(share).value)
        sums.append(total)
    ends = [c_float(one.value / total.value).value for one in sums]
    offloaded = min(asked, layers + 1)
    found = [HOST] * (layers + 1 - offloaded)
    for index in range(offloaded):
        at = c_float(index / offloaded).value
        found.append(next(name for name, end in zip(names, ends, strict=True) if end > at))
    return found


@pytest.mark.parametrize(
    "shares", [(0.0, 0.0), (-1.0, 2.0), (float("nan"), 1.0), (1.0, float("inf")), (1e-300,)]
)
def test_shares_that_split_nothing_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(PlanRefused, match="no layers can be split"):
        Placement(layers=2, gpus=tuple(Gpu(f"{i}", share) for i, share in enumerate(shares)))


@pytest.mark.parametrize("names", ["aa", ("a", HOST)])
def test_two_devices_of_one_name_are_refused(names: str | tuple[str, ...]) -> None:
    with pytest.raises(PlanRefused, match="two devices have one name"):
        Placement(layers=2, gpus=tuple(Gpu(name, 1) for name in names))


def test_the_first_override_that_fits_holds() -> None:
    overrides = (Override(r"ffn_up", HOST), Override(r"blk\.1\.", "a"), Override(r"ffn", "b"))
    placement = Placement(layers=2, gpus=TWO, overrides=overrides)
    assert placement.override_of("blk.1.ffn_up.weight") == HOST
    assert placement.override_of("blk.1.ffn_down.weight") == "a"
    assert placement.override_of("blk.0.ffn_down.weight") == "b"
    assert placement.override_of("blk.0.attn_q.weight") is None


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (Override("ffn", "c"), r"--override-tensor ffn=c: only a, b, host"),
        (Override("ffn(", HOST), r"--override-tensor ffn\(: missing \)"),
    ],
)
def test_an_override_that_cannot_be_followed_is_refused(override: Override, said: str) -> None:
    with pytest.raises(PlanRefused, match=said):
        Placement(layers=2, gpus=TWO, overrides=(override,))


def test_experts_stay_on_the_host_in_all_layers_or_in_the_first() -> None:
    everywhere = Placement(layers=12, gpus=ONE, overrides=experts_on_host())
    first = Placement(layers=12, gpus=ONE, overrides=experts_on_host(2))
    name = "blk.{}.ffn_{}_exps.weight"
    for layer in (0, 1, 2, 10, 11):
        for kind in ("up", "down", "gate", "gate_up"):
            assert everywhere.override_of(name.format(layer, kind)) == HOST
            assert (first.override_of(name.format(layer, kind)) == HOST) == (layer < 2)
    assert everywhere.override_of("blk.0.ffn_up_chexps.weight") == HOST
    assert everywhere.override_of("blk.0.ffn_up_shexp.weight") is None
    assert experts_on_host(0) == ()
