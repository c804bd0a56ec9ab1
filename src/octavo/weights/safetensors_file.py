"""Reads one safetensors file by mapping it into memory.

Owns the format and the distrust of its header: every claim is checked against the real size of the
file before it is used. Does not know what a tensor means. The layout:

    length of the header u64, little endian
    header: JSON, name -> {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__"
    data: the tensors without gaps or overlaps, begin and end counted from here
"""

from __future__ import annotations

import math
from pathlib import Path

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.fields import Fields
from octavo.weights.json_file import parse_object
from octavo.weights.mapped_file import map_file

MAX_HEADER_BYTES = 100 * 10**6  # the limit of the reference implementation
MAX_DIMENSIONS = 8
DTYPES = {"F32": WeightType.F32, "F16": WeightType.F16, "BF16": WeightType.BF16}


def read_safetensors(path: Path) -> dict[str, TensorView]:
    """Map and check one file; a view may start at any byte.

    Raises CorruptFileError for a malformed file, UnsupportedModelError for other types than F32,
    F16 and BF16, ModelFileError when the file cannot be read.
    """
    data = map_file(path)
    if len(data) < 8:
        raise CorruptFileError(f"{path} has {len(data)} bytes: too short for a safetensors file")
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > min(len(data) - 8, MAX_HEADER_BYTES):
        raise CorruptFileError(
            f"{path} claims a header of {header_bytes} bytes in a file of {len(data)}; "
            f"at most {MAX_HEADER_BYTES} are allowed"
        )
    header = parse_object(bytes(data[8 : 8 + header_bytes]), f"the header of {path}")
    header.pop("__metadata__", None)
    headers = Fields(header, str(path))
    tensors = [_tensor(headers, name, data[8 + header_bytes :]) for name in header]
    _check_coverage(tensors, len(data) - 8 - header_bytes, path)
    return {view.name: view for _, view in tensors}


def _tensor(headers: Fields, name: str, data: memoryview) -> tuple[int, TensorView]:
    """Where a tensor begins in the data, and its view."""
    entry = headers.section(name)
    if entry is None:
        headers.refuse(name, "must be an object")
    dtype = entry.text("dtype")
    if dtype not in DTYPES:
        message = f"{headers.where}: {name} has the type {dtype}, which is not supported"
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(DTYPES)}")
    shape = _lengths(entry, "shape", MAX_DIMENSIONS)
    offsets = _lengths(entry, "data_offsets", 2)
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= len(data):
        entry.refuse(
            "data_offsets", f"{list(offsets)} are not within the {len(data)} bytes of data"
        )
    num_bytes = DTYPES[dtype].num_bytes(math.prod(shape))
    if offsets[1] - offsets[0] != num_bytes:
        entry.refuse(
            "data_offsets", f"span {offsets[1] - offsets[0]} bytes, the shape needs {num_bytes}"
        )
    view = TensorView(name, DTYPES[dtype], shape, data[offsets[0] : offsets[1]])
    return offsets[0], view


def _lengths(entry: Fields, key: str, at_most: int) -> tuple[int, ...]:
    """A short list of whole numbers from 0 up."""
    values = entry.items(key)
    if len(values) > at_most:
        entry.refuse(key, f"has {len(values)} items, at most {at_most}")
    lengths = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            entry.refuse(key, "must be a list of whole numbers from 0 up")
        lengths.append(value)
    return tuple(lengths)


def _check_coverage(tensors: list[tuple[int, TensorView]], num_bytes: int, path: Path) -> None:
    """Tensors must fill the data from the first to the last byte, each byte once."""
    end = 0
    for begin, view in sorted(tensors, key=lambda tensor: (tensor[0], len(tensor[1].data))):
        if begin != end:
            what = (
                "overlaps another tensor" if begin < end else f"leaves a gap of {begin - end} bytes"
            )
            raise CorruptFileError(f"{path}: {view.name} {what}")
        end = begin + len(view.data)
    if end != num_bytes:
        raise CorruptFileError(
            f"{path}: {num_bytes - end} bytes after the last tensor; is it truncated?"
        )
