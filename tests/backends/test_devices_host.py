"""The host's memory, and how much of it a container may have."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from slotgate.backends.devices.cards import Memory
from slotgate.backends.devices.cgroups import container_memory
from slotgate.backends.devices.host import (
    Host,
    by_meminfo,
    by_psutil,
    by_sysconf,
    find_host,
)

MiB = 1 << 20
GiB = 1 << 30
NO_LIMIT_V1 = 9223372036854771712


def memory(total: int, free: int) -> Memory:
    return Memory(total_bytes=total, free_bytes=free)


class Groups:
    """Control groups as files: what /proc tells of them, and the trees it names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.proc.mkdir()
        (self.proc / "cgroup").write_text("")
        (self.proc / "mountinfo").write_text("30 1 0:27 / /sys rw - sysfs sysfs rw\n\n")

    def place(self, line: str) -> None:
        with (self.proc / "cgroup").open("a") as file:
            file.write(f"{line}\n")

    def mount(self, name: str, *, kind: str, options: str, root: str = "/") -> None:
        at = str(self.root / name).replace(" ", "\\040")
        with (self.proc / "mountinfo").open("a") as file:
            file.write(f"35 31 0:32 {root} {at} rw,nosuid shared:9 - {kind} {kind} {options}\n")

    def v2(self, path: str, *, mounted: str = "v2", **files: object) -> None:
        self._write(f"{mounted}/{path}", {f"memory.{name}": text for name, text in files.items()})

    def v1(self, path: str, *, limit: int, usage: int, idle: int = 0) -> None:
        files = {
            "memory.limit_in_bytes": limit,
            "memory.usage_in_bytes": usage,
            "memory.stat": f"cache 1\ninactive_file 1\ntotal_inactive_file {idle}\n",
        }
        self._write(f"v1/{path}", files)

    def _write(self, path: str, files: dict[str, object]) -> None:
        directory = self.root / path
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(f"{text}\n")

    def measure(self) -> Memory | None:
        return container_memory(self.proc)


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


@pytest.fixture
def v2(groups: Groups) -> Groups:
    groups.place("0::/system.slice/gate.service")
    groups.mount("v2", kind="cgroup2", options="rw,nsdelegate")
    return groups


def test_a_limit_leaves_what_is_not_in_use_and_idle_file_cache_is_not(v2: Groups) -> None:
    stat = f"anon {1 * GiB}\nfile {3 * GiB}\ninactive_file {2 * GiB}\nactive_file {1 * GiB}"
    v2.v2("system.slice/gate.service", max=8 * GiB, current=5 * GiB, stat=stat)
    assert v2.measure() == memory(8 * GiB, 5 * GiB)


def test_a_group_without_a_limit_is_held_by_those_above_it(v2: Groups) -> None:
    v2.v2("system.slice/gate.service", max="max", high="max", current=1 * GiB)
    v2.v2("system.slice", max=6 * GiB, current=4 * GiB)
    v2.v2("", stat="inactive_file 5")
    assert v2.measure() == memory(6 * GiB, 2 * GiB)


def test_the_tightest_level_counts_for_each_of_size_and_rest(v2: Groups) -> None:
    v2.v2("system.slice/gate.service", max=4 * GiB, current=1 * GiB)
    v2.v2("system.slice", max=16 * GiB, current=15 * GiB)
    assert v2.measure() == memory(4 * GiB, 1 * GiB)


def test_the_bound_past_which_the_kernel_stalls_a_group_is_a_limit(v2: Groups) -> None:
    v2.v2("system.slice/gate.service", max=8 * GiB, high=6 * GiB, current=1 * GiB)
    assert v2.measure() == memory(6 * GiB, 5 * GiB)


def test_a_group_past_its_limit_has_nothing_left(v2: Groups) -> None:
    v2.v2("system.slice/gate.service", max=1 * GiB, current=2 * GiB)
    assert v2.measure() == memory(1 * GiB, 0)


def test_more_idle_cache_than_use_is_no_more_than_the_limit(v2: Groups) -> None:
    v2.v2("system.slice/gate.service", max=1 * GiB, current=5, stat="inactive_file 9")
    assert v2.measure() == memory(1 * GiB, 1 * GiB)


def test_without_a_limit_anywhere_there_is_none(v2: Groups) -> None:
    v2.v2("system.slice/gate.service", max="max", current=1 * GiB)
    assert v2.measure() is None


def test_without_control_groups_there_is_no_limit(groups: Groups) -> None:
    assert groups.measure() is None
    assert container_memory(groups.root / "nothing here") is None


def test_a_container_that_sees_its_group_as_the_root_is_limited(groups: Groups) -> None:
    groups.place("0::/")
    groups.mount("v2", kind="cgroup2", options="rw")
    groups.v2("", max=2 * GiB, current=1 * GiB)
    assert groups.measure() == memory(2 * GiB, 1 * GiB)


@pytest.mark.parametrize("place", ["0::/docker/abc", "0::/../../other", "0::/elsewhere"])
def test_a_tree_mounted_from_within_is_read_from_its_own_root(groups: Groups, place: str) -> None:
    groups.place(place)
    groups.mount("v2", kind="cgroup2", options="rw", root="/docker/abc")
    groups.v2("", max=2 * GiB, current=1 * GiB)
    assert groups.measure() == memory(2 * GiB, 1 * GiB)


def test_version_1_is_read_with_the_idle_cache_of_all_below(groups: Groups) -> None:
    groups.place("5:cpu,cpuacct:/elsewhere")
    groups.place("4:memory:/docker/abc")
    groups.mount("cpu", kind="cgroup", options="rw,cpu,cpuacct")
    groups.mount("v1", kind="cgroup", options="rw,memory")
    groups.v1("docker/abc", limit=4 * GiB, usage=3 * GiB, idle=1 * GiB)
    groups.v1("docker", limit=NO_LIMIT_V1, usage=9 * GiB)
    groups.v1("", limit=NO_LIMIT_V1, usage=9 * GiB)
    assert groups.measure() == memory(4 * GiB, 2 * GiB)


def test_version_1_s_largest_number_is_no_limit(groups: Groups) -> None:
    groups.place("4:memory:/docker/abc")
    groups.mount("v1", kind="cgroup", options="rw,memory")
    groups.v1("docker/abc", limit=NO_LIMIT_V1, usage=3 * GiB)
    assert groups.measure() is None


def test_both_versions_side_by_side_are_read(groups: Groups) -> None:
    groups.place("4:memory:/one")
    groups.place("0::/two")
    groups.mount("v1", kind="cgroup", options="rw,memory")
    groups.mount("v2", kind="cgroup2", options="rw")
    groups.v1("one", limit=4 * GiB, usage=1 * GiB)
    groups.v2("two", max=8 * GiB, current=7 * GiB)
    assert groups.measure() == memory(4 * GiB, 1 * GiB)


def test_a_mount_point_with_a_blank_is_found(groups: Groups) -> None:
    groups.place("0::/")
    groups.mount("a b", kind="cgroup2", options="rw")
    groups.v2("", mounted="a b", max=2 * GiB, current=0)
    assert groups.measure() == memory(2 * GiB, 2 * GiB)


# The machine.


def test_psutil_tells_what_linux_tells() -> None:
    measured, told = by_psutil(), by_meminfo()
    assert measured is not None
    assert measured.total_bytes == psutil.virtual_memory().total
    assert 0 < measured.free_bytes <= measured.total_bytes
    if told is not None:
        assert told.total_bytes == measured.total_bytes


def test_without_psutil_another_source_is_asked() -> None:
    assert by_psutil("slotgate_no_such_module") is None


def test_meminfo_counts_memory_that_can_be_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text(
        "MemTotal:       127600748 kB\nMemFree:         1024 kB\nMemAvailable:   118566368 kB\n"
        "HugePages_Total:       0\n"
    )
    assert by_meminfo(path) == memory(127600748 << 10, 118566368 << 10)


@pytest.mark.parametrize("text", ["", "MemTotal: 5 kB\n", "MemTotal: 5 kB\nMemAvailable: é kB\n"])
def test_a_meminfo_that_tells_too_little_tells_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "meminfo"
    path.write_text(text, encoding="utf-8")
    assert by_meminfo(path) is None
    assert by_meminfo(tmp_path / "nothing here") is None


def test_elsewhere_the_size_is_all_that_is_known() -> None:
    names = {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 2}
    pages = {"SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 16384}
    assert by_sysconf(pages.__getitem__, names) == memory(16 * GiB, 16 * GiB)
    assert by_sysconf(lambda _: -1, names) is not None  # -1 times -1: one byte
    assert by_sysconf(pages.__getitem__, {"SC_PAGE_SIZE": 2}) is None
    assert by_sysconf(lambda name: -(name == "SC_PHYS_PAGES"), names) is None


MACHINE = memory(64 * GiB, 50 * GiB)


def test_the_first_source_that_knows_is_believed() -> None:
    host = find_host(sources=(lambda: None, lambda: MACHINE), container=lambda: None)
    assert host == Host(machine=MACHINE, allowed=MACHINE)


def test_a_container_s_limit_is_honoured_and_told() -> None:
    host = find_host(sources=(lambda: MACHINE,), container=lambda: memory(8 * GiB, 6 * GiB))
    assert host == Host(
        machine=MACHINE,
        allowed=memory(8 * GiB, 6 * GiB),
        notes=("a control group allows 8.0 GiB of the host's memory",),
    )


def test_a_container_may_have_no_more_than_the_machine_has_left() -> None:
    host = find_host(sources=(lambda: MACHINE,), container=lambda: memory(60 * GiB, 59 * GiB))
    assert host is not None
    assert host.allowed == memory(60 * GiB, 50 * GiB)


def test_a_limit_that_limits_nothing_is_not_told_but_its_use_counts() -> None:
    host = find_host(sources=(lambda: MACHINE,), container=lambda: memory(99 * GiB, 10 * GiB))
    assert host == Host(machine=MACHINE, allowed=memory(64 * GiB, 10 * GiB))


def test_a_machine_that_tells_only_its_size_is_guessed_to_be_free_and_that_is_told() -> None:
    host = find_host(
        sources=(lambda: None,), total=lambda: memory(8 * GiB, 8 * GiB), container=lambda: None
    )
    assert host is not None
    assert host.machine == memory(8 * GiB, 8 * GiB)
    assert host.notes[0].endswith("all of it is counted as free: install slotgate[host]")


def test_a_machine_that_tells_nothing_has_no_host() -> None:
    assert find_host(sources=(lambda: None,), total=lambda: None) is None
