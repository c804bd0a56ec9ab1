"""Memory of GPUs by the names that people call them.

Owns the table. Numbers are MiB as the driver reports them for the whole card.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from octavo.errors import ConfigError

_MIB: Mapping[str, int] = MappingProxyType(
    {
        "A10": 23028,
        "A100-40GB": 40960,
        "A100-80GB": 81920,
        "A30": 24576,
        "A6000": 49140,
        "B200": 183359,
        "H100": 81559,
        "H100-NVL": 95830,
        "H20": 97871,
        "H200": 143771,
        "L4": 23034,
        "L40S": 46068,
        "MI300X": 196592,
        "MI325X": 262128,
        "RTX-3090": 24576,
        "RTX-4090": 24564,
        "RTX-5090": 32607,
        "RTX-6000-Ada": 49140,
        "T4": 15360,
        "V100-16GB": 16384,
        "V100-32GB": 32768,
    }
)
GPUS = tuple(_MIB)


def gpu_bytes(name: str) -> int:
    """Memory of one card; case, spaces and dashes do not matter.

    Raises ConfigError with the nearest and all known names.
    """
    by_plain_name = {_plain(known): mib for known, mib in _MIB.items()}
    wanted = _plain(name)
    if wanted in by_plain_name:
        return by_plain_name[wanted] * 2**20
    near = difflib.get_close_matches(name.upper(), GPUS, n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise ConfigError(
        f"unknown --gpu {name!r}.{hint} Known: {', '.join(GPUS)}; for another one give --memory"
    )


def _plain(name: str) -> str:
    return name.upper().replace("-", "").replace(" ", "").replace("_", "")
