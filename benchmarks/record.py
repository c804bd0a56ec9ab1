"""Results files: what was measured, by which command, on which machine, at which commit."""

from __future__ import annotations

import json
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.foundation.machine import cpu_count, memory_limits

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
# Of a path on a machine. What begins otherwise may be the path of an address.
_FOLDERS = re.compile(
    r"""(?<![\w./~])/(?:farm|home|mnt|private|root|tmp|Users|var|work)/(?:[^\s"'\\/,]+/)*"""
)


def provenance() -> dict[str, Any]:
    """Where and how this process runs."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _COMMIT,
        "command": "python -m " + shlex.join([_module_name(), *sys.argv[1:]]),
        "cpu": f"{cpu_count()} cores, {_cpu_name()}, {memory_limits().total / 2**30:.0f} GiB",
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def write_results(path: Path, document: Mapping[str, Any]) -> None:
    """Write one file, provenance first; without folders of this machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = without_folders(json.dumps(provenance() | dict(document), indent=1))
    path.write_text(text + "\n", encoding="utf-8")
    print(f"written to {path}")


def without_folders(text: str) -> str:
    """A text whose paths in folders of one machine are names of files, or paths from `ROOT`."""
    return _FOLDERS.sub("", text.replace(f"{ROOT}/", ""))


def commit() -> str:
    """The commit of the source folder, marked when files differ from it."""
    found = _git("rev-parse", "--short", "HEAD")
    if not found:
        return "unknown"
    return found + ("+changes" if _git("status", "--porcelain", "--", "src", "csrc") else "")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest of repeated measurements."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1e6) * len(ordered) // 10**6) - 1))]


def _git(*arguments: str) -> str:
    try:
        run = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def _module_name() -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).name


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    facts = dict(line.split("\t:", 1) for line in reversed(lines) if "\t:" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    name = facts.get("model name", platform.machine())
    return f"{name} family {facts.get('cpu family', '?')} model {facts.get('model', '?')}"


_COMMIT = commit()  # when this process began: that code runs, whatever is committed meanwhile
