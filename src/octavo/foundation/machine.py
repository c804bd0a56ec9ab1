"""What this machine, or the container around us, lets this process use.

Reads the CPU affinity mask, cgroup v2 and v1 limits and /proc/meminfo; elsewhere falls back to what
the standard library knows. Every number may be smaller than the hardware has, never larger.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
_UNLIMITED = 1 << 60  # cgroup v1 writes a huge number where there is no limit


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Memory in bytes, swap not counted."""

    total: int  # what we may ever have: physical memory or the container's limit
    available: int  # what can be taken now without pushing anything out


def cpu_count(root: Path = ROOT) -> int:
    """Cores this process may keep busy: its affinity mask, cut by the cgroup's CPU quota.

    `root` is where the files of the system lie; tests bring their own.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _cpu_quota(_own_cgroups(root))
    if quota is not None:
        cores = min(cores, max(1, math.floor(quota)))
    return max(1, cores)


def memory_limits(root: Path = ROOT) -> MemoryLimits:
    """Memory of the machine, cut by every cgroup around this process."""
    total, available = _machine_memory(root)
    for folder in _own_cgroups(root):
        limit = _read_int(folder / "memory.max") or _read_int(folder / "memory.limit_in_bytes")
        if limit is None or limit >= _UNLIMITED:
            continue
        total = min(total, limit)
        used = _read_int(folder / "memory.current") or _read_int(folder / "memory.usage_in_bytes")
        reclaimable = _memory_stat(folder, "inactive_file")
        available = min(available, max(0, limit - max(0, (used or 0) - reclaimable)))
    return MemoryLimits(total=total, available=min(total, available))


def _machine_memory(root: Path) -> tuple[int, int]:
    """(total, available) of the whole machine."""
    fields: dict[str, int] = {}
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            fields[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total
    total = fields["MemTotal"]
    return total, fields.get("MemAvailable", total)


def _own_cgroups(root: Path) -> list[Path]:
    """Folders of the cgroups that hold this process, from its own up to the root."""
    folders: list[Path] = []
    top = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            bases = [top]
        elif set(controllers.split(",")) & {"memory", "cpu"}:
            bases = [top / name for name in (controllers, *controllers.split(","))]
        else:
            continue
        for base in bases:
            folder = base / path.lstrip("/")
            while folder != base and base in folder.parents:
                folders.append(folder)
                folder = folder.parent
            folders.append(base)
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _cpu_quota(folders: list[Path]) -> float | None:
    """Smallest number of cores that a quota allows; None without a quota."""
    quotas: list[float] = []
    for folder in folders:
        parts = _read_text(folder / "cpu.max").split()
        if len(parts) == 2 and parts[0] != "max":
            quotas.append(int(parts[0]) / int(parts[1]))
        quota = _read_int(folder / "cpu.cfs_quota_us")
        period = _read_int(folder / "cpu.cfs_period_us")
        if quota is not None and quota > 0 and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _memory_stat(folder: Path, name: str) -> int:
    for line in _read_text(folder / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _read_int(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None
