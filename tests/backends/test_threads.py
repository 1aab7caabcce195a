"""How many threads llama.cpp gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slotgate.backends.threads import (
    allowed_cpus,
    count_cores,
    cpu_quota,
    pick_threads,
    threads_for,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("cores", "quota", "threads"),
    [(1, None, 1), (2, None, 1), (4, None, 3), (16, None, 15), (16, 4.0, 4), (16, 0.5, 1)],
)
def test_one_core_is_left_to_others_and_a_quota_is_kept(
    cores: int, quota: float | None, threads: int
) -> None:
    assert threads_for(physical_cores=cores, quota=quota) == threads


def test_two_logical_cpus_of_one_core_count_once(tmp_path: Path) -> None:
    for cpu in allowed_cpus():
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0-1\n")
    assert count_cores(tmp_path) == 1


def test_where_the_system_does_not_tell_every_cpu_counts(tmp_path: Path) -> None:
    assert count_cores(tmp_path) == len(allowed_cpus())


@pytest.mark.parametrize(
    ("text", "quota"), [("max 100000", None), ("150000 100000\n", 1.5), ("", None), ("x y", None)]
)
def test_the_quota_of_the_control_group_is_read(
    tmp_path: Path, text: str, quota: float | None
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_quota(tmp_path / "cpu.max") == quota
    assert cpu_quota(tmp_path / "none") is None


def test_this_machine_gets_at_least_one_thread() -> None:
    assert 1 <= pick_threads() <= max(1, count_cores() - 1)
