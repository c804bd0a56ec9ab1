"""A GGUF file of floats -> the same file with quantised matrices.

Owns which tensor gets which type, and the layout of the new file. Keys are copied as they lie.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.gguf_parts import part_paths
from octavo.weights.gguf_reader import DEFAULT_ALIGNMENT, MAGIC, GgufFile, read_gguf
from octavo.weights.mapped_file import let_go
from octavo.weights.stored_tensor import FLOATS

PIECE_BYTES = 8 << 20
_UINT32 = 4  # GGUF's number of that value type


@dataclass(frozen=True, slots=True)
class GgufKind:
    """A kind of file: what matrices become, best first, and how the file calls itself."""

    types: tuple[WeightType, ...]
    file_type: int  # general.file_type


KINDS = {
    "q8_0": GgufKind((WeightType.Q8_0,), 7),
    "q4_0": GgufKind((WeightType.Q4_0,), 2),
    # Rows that 256 does not divide are kept in the next larger type of four bits.
    "q4_k": GgufKind((WeightType.Q4_K, WeightType.Q4_1), 14),
}
# Looked up rather than multiplied, or the output: rounding them costs most.
_SENSITIVE = ("token_embd.weight", "output.weight")
# Small, and read row by row or by a router.
_KEPT = ("position_embd", "token_types", "ffn_gate_inp", "norm")
_OWN_KEYS = ("general.file_type", "general.quantization_version", "general.alignment")


def quantise_gguf(source: Path, target: Path, kind: str, report: Callable[[float], None]) -> None:
    """Write `target`, which must not exist; of a split model any part will do as `source`.

    `report` is told the share done. Raises UnsupportedModelError for a file that is quantised
    already, CorruptFileError for numbers that are not finite.
    """
    files = [read_gguf(part) for part in part_paths(source)]
    tensors = {name: view for file in files for name, view in file.tensors.items()}
    types = {name: _type(view, KINDS[kind]) for name, view in tensors.items()}
    with target.open("xb") as out:
        out.write(_head(files[0], tensors, types, KINDS[kind]))
        _pad(out)
        total = sum(view.num_bytes for view in tensors.values())
        done = 0
        for name, view in tensors.items():
            for piece in _quantised(view, types[name]):
                out.write(piece)
            _pad(out)
            let_go(view.data)
            done += view.num_bytes
            report(done / total)


def _type(view: TensorView, kind: GgufKind) -> WeightType:
    if view.type not in FLOATS.values():
        raise UnsupportedModelError(
            f"tensor {view.name} is quantised already ({view.type.name}); give a file of "
            f"{', '.join(FLOATS)}"
        )
    is_kept = len(view.shape) < 2 or any(word in view.name for word in _KEPT)
    types = (WeightType.Q8_0,) if view.name in _SENSITIVE else kind.types
    fitting = [type for type in types if view.shape[-1] % type.block_elements == 0]
    return view.type if is_kept or not fitting else fitting[0]


def _head(
    first: GgufFile,
    tensors: Mapping[str, TensorView],
    types: Mapping[str, WeightType],
    kind: GgufKind,
) -> bytes:
    """Everything before the data."""
    keys = [
        bytes(stored)
        for key, stored in first.stored_keys.items()
        if key not in _OWN_KEYS and not key.startswith("split.")
    ]
    keys.append(_number("general.file_type", kind.file_type))
    keys.append(_number("general.quantization_version", 2))
    table, offset = [], 0
    for name, view in tensors.items():
        dimensions = view.shape[::-1]
        entry = _string(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        table.append(entry + struct.pack("<IQ", types[name], offset))
        offset += types[name].num_bytes(math.prod(view.shape))
        offset = -(-offset // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
    counts = struct.pack("<IQQ", 3, len(tensors), len(keys))
    return MAGIC + counts + b"".join(keys) + b"".join(table)


def _quantised(view: TensorView, to: WeightType) -> Iterator[bytes | memoryview]:
    """The data of a tensor in its new type, piece by piece."""
    if to is view.type:
        yield view.data
        return
    row_bytes = view.type.num_bytes(view.shape[-1])
    step = max(PIECE_BYTES // row_bytes, 1) * row_bytes
    for start in range(0, len(view.data), step):
        try:
            rows = view.data[start : start + step]
            yield _native.quantise_rows(view.type, rows, view.shape[-1], to)
        except ValueError as error:
            raise CorruptFileError(f"tensor {view.name} cannot be used: {error}") from error


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _number(key: str, value: int) -> bytes:
    return _string(key) + struct.pack("<II", _UINT32, value)


def _pad(out: BinaryIO) -> None:
    out.write(bytes(-out.tell() % DEFAULT_ALIGNMENT))
