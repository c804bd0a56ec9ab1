"""safetensors files byte by byte, so that a test can also write what no honest writer would."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SIZES = {"F32": 4, "F16": 2, "BF16": 2}
Header = dict[str, dict[str, Any]]


def safetensors_bytes(header: Mapping[str, Any] | bytes, data: bytes = b"") -> bytes:
    """A file with this header, true or not."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def honest_header(shapes: Mapping[str, tuple[int, ...]], dtype: str = "F32") -> tuple[Header, int]:
    """A header for tensors one after the other, and how many bytes of data belong to it."""
    header: Header = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return header, end


def write_safetensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str = "F32"
) -> Path:
    """An honest file of zeros."""
    header, num_bytes = honest_header(shapes, dtype)
    path.write_bytes(safetensors_bytes(header, bytes(num_bytes)))
    return path
