"""Reads from Linux itself what AMD's cards have free: ROCm's topology, then the driver's files.

- ROCm numbers the cards in the order of its nodes, and so do we; without ROCm's part of the driver
  (a card that it does not support, say) they come in the order of their device nodes.
- A node's memory bank is what ROCm gives a program.  On an APU it is the larger of the two pools
  (see `rocm`), so a bank that is clearly larger than the VRAM is the host's memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.devices.cards import Card, Found
from slotgate.backends.devices.rocm import larger_pool, with_sizes
from slotgate.backends.devices.visible import CUDA, HIP, ROCR, hidden, seen_by_rocm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_AMD = "0x1002"
_NOT_HERE = (
    "an AMD card is there, but its device node is not: give the container /dev/kfd and /dev/dri"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A card in ROCm's topology; `bank_bytes` 0: it is not told."""

    minor: int
    name: str
    uuid: str = ""
    bank_bytes: int = 0


def _may_use(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def read_kernel(
    environ: Mapping[str, str],
    *,
    sys: Path = Path("/sys"),
    dev: Path = Path("/dev"),
    may_use: Callable[[Path], bool] = _may_use,
) -> Found:
    """Return the cards that ROCm would show a program with this environment."""
    nodes = list(_topology(sys / "class/kfd/kfd/topology/nodes"))
    notes = _closed(dev, nodes, may_use)
    nodes = nodes or list(_driver_only(sys / "class/drm"))
    if not nodes:
        return Found(hints=("no AMD driver is loaded",))
    cards = [_card(sys / f"class/drm/renderD{node.minor}/device", node) for node in nodes]
    here = [
        card if (dev / f"dri/renderD{node.minor}").exists() else None
        for card, node in zip(cards, nodes, strict=True)
    ]
    if not any(here):
        return Found(hints=(_NOT_HERE,) if any(cards) else ())
    seen = seen_by_rocm(here, [node.uuid for node in nodes], environ)
    notes += hidden(seen, here, environ, ROCR, HIP, CUDA)
    return Found(cards=tuple(card for card in seen if card), notes=notes)


def _topology(nodes: Path) -> Iterator[_Node]:
    for path in _numbered(nodes, ""):
        known = _properties(path / "properties")
        # A processor is a node too; so is a card that this container may not use, without a word.
        if known.get("simd_count", 0) > 0 and known.get("drm_render_minor", 0) > 0:
            unique = known.get("unique_id", 0)
            yield _Node(
                minor=known["drm_render_minor"],
                name=f"AMD {_target(known.get('gfx_target_version', 0))}",
                uuid=f"GPU-{unique:016x}" if unique else "",
                bank_bytes=sum(map(_bank_bytes, _numbered(path / "mem_banks", ""))),
            )


def _driver_only(drm: Path) -> Iterator[_Node]:
    for path in _numbered(drm, "renderD"):
        if _text(path / "device/vendor") == _AMD:
            yield _Node(minor=int(path.name.removeprefix("renderD")), name="AMD card")


def _card(device: Path, node: _Node) -> Card | None:
    vram = _pool(device, "vram")
    if vram is None:
        return None
    card = Card(
        name=_text(device / "product_name") or node.name,
        uuid=node.uuid,
        has_display=any(
            _text(path) == "enabled" for path in device.glob("drm/card*/card*/enabled")
        ),
    )
    gtt = _pool(device, "gtt")
    # A card's own bank may differ from its VRAM by what the firmware keeps.
    if node.bank_bytes <= vram[0] * 9 // 8 or gtt is None:
        return with_sizes(card, vram)
    return larger_pool(card, vram=vram, gtt=(min(gtt[0], node.bank_bytes), gtt[1]))


def _pool(device: Path, kind: str) -> tuple[int, int] | None:
    try:
        total, used = (int(_text(device / f"mem_info_{kind}_{what}")) for what in ("total", "used"))
    except ValueError:
        return None
    return total, used


def _closed(dev: Path, nodes: list[_Node], may_use: Callable[[Path], bool]) -> tuple[str, ...]:
    wanted = [dev / "kfd", *(dev / f"dri/renderD{node.minor}" for node in nodes)]
    closed = [str(path) for path in wanted if path.exists() and not may_use(path)]
    if not nodes or not closed:
        return ()
    return (
        f"there is no permission to use {', '.join(closed)}, so ROCm will not find the card; "
        "add the user to the groups `render` and `video`",
    )


def _bank_bytes(bank: Path) -> int:
    known = _properties(bank / "properties")
    # 0 is the host's own memory.
    return known.get("size_in_bytes", 0) if known.get("heap_type", 0) in {1, 2} else 0


def _properties(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _target(version: int) -> str:
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _numbered(directory: Path, prefix: str) -> list[Path]:
    """Return the entries that are the prefix and a number, by number."""
    try:
        entries = list(directory.iterdir())
    except OSError:
        return []
    found = [p for p in entries if p.name.removeprefix(prefix).isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(prefix)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
