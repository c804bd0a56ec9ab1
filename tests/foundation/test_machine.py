"""What a process may use: the machine's numbers, cut by cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.foundation.machine import MemoryLimits, cpu_count, memory_limits

GIB = 2**30


def write_machine(root: Path, *, cgroup: str, files: dict[str, str]) -> None:
    """A system's files under `root`: 16 GiB of memory, 12 GiB of them available."""
    meminfo = f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {12 * GIB // 1024} kB\n"
    everything = {"proc/meminfo": meminfo, "proc/self/cgroup": cgroup, **files}
    for name, text in everything.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_cgroups_the_machine_is_the_limit(tmp_path: Path) -> None:
    """Total and available come from meminfo when nothing else limits them."""
    write_machine(tmp_path, cgroup="", files={})

    assert memory_limits(tmp_path) == MemoryLimits(total=16 * GIB, available=12 * GIB)


def test_a_container_limit_cuts_both_numbers(tmp_path: Path) -> None:
    """In cgroup v2 the limit is the total; reclaimable file pages do not count as used."""
    folder = "sys/fs/cgroup/pod"
    write_machine(
        tmp_path,
        cgroup="0::/pod\n",
        files={
            f"{folder}/memory.max": f"{4 * GIB}\n",
            f"{folder}/memory.current": f"{3 * GIB}\n",
            f"{folder}/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n",
        },
    )

    assert memory_limits(tmp_path) == MemoryLimits(total=4 * GIB, available=3 * GIB)


def test_the_smallest_limit_on_the_way_to_the_root_wins(tmp_path: Path) -> None:
    """A parent's limit binds although the process's own group has none."""
    write_machine(
        tmp_path,
        cgroup="0::/pod/inner\n",
        files={
            "sys/fs/cgroup/pod/inner/memory.max": "max\n",
            "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n",
        },
    )

    assert memory_limits(tmp_path).total == 2 * GIB


def test_the_old_cgroup_layout_is_read_as_well(tmp_path: Path) -> None:
    """cgroup v1 has a folder per controller and writes a huge number for no limit."""
    write_machine(
        tmp_path,
        cgroup="4:memory:/box\n3:cpu,cpuacct:/box\n",
        files={
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
        },
    )

    assert memory_limits(tmp_path).total == GIB
    assert cpu_count(tmp_path) == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity masks here")
@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", None), ("50000 100000", 1), ("150000 100000", 1)],
)
def test_a_cpu_quota_cuts_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    """A quota of one and a half cores keeps one thread busy, and there is always at least one."""
    write_machine(tmp_path, cgroup="0::/pod\n", files={"sys/fs/cgroup/pod/cpu.max": quota})

    assert cpu_count(tmp_path) == (cores or len(os.sched_getaffinity(0)))
