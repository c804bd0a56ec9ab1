"""octavo doctor: what Octavo sees of this machine; the first thing to put into a bug report."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from octavo.config.cli_args import Parser
from octavo.foundation import env
from octavo.foundation.machine import cpu_count, memory_limits
from octavo.foundation.quantities import format_bytes
from octavo.version import version
from octavo.weights.download import list_models

PACKAGES = ("tokenizers", "jinja2", "msgspec", "starlette", "uvicorn", "uvloop", "torch")


def run(arguments: Sequence[str]) -> int:
    """Print the report; 1 when something would keep Octavo from working."""
    parser = Parser(prog="octavo doctor", description="Report what Octavo sees of this machine.")
    parser.add_argument("--json", action="store_true", help="As one JSON object.")
    parser.add_argument("--port", type=int, default=8000, help="Port to look at [8000].")
    parsed = parser.parse_args(arguments)
    report = collect(parsed.port)
    if parsed.json:
        print(json.dumps(report, indent=2))
    else:
        width = max(map(len, report))
        for name, value in report.items():
            print(f"{name:<{width}}  {_shown(value)}")
    return 1 if report["problems"] else 0


def collect(port: int) -> dict[str, Any]:
    """The report as plain data."""
    memory = memory_limits()
    problems: list[str] = []
    return {
        "octavo": version(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": f"{cpu_count()} usable of {os.cpu_count()}",
        "memory": f"{format_bytes(memory.available)} available of {format_bytes(memory.total)}",
        "native": _native(problems),
        "packages": {name: _package_version(name) for name in PACKAGES},
        "cache": str(env.cache_folder()),
        "models": [model.name for model in list_models() if model.path is not None],
        "port": f"{port} is {'in use' if _is_listening(port) else 'free'}",
        "environment": {
            name: "(set)" if "KEY" in name or "TOKEN" in name else value
            for name, value in sorted(os.environ.items())
            if name.startswith(("OCTAVO_", "HF_"))
        },
        "problems": problems,
    }


def _native(problems: list[str]) -> str:
    try:
        from octavo import _native  # noqa: PLC0415 - its absence is part of the report
    except ImportError as error:
        problems.append(f"the native extension cannot be loaded: {error}")
        return "missing: install Octavo with a C++17 compiler at hand (g++ or clang++)"
    best = _native.find_kernels("").name
    return f"{best} (available: {', '.join(_native.available_isas())})"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _is_listening(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {text}" for name, text in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
