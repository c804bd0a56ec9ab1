"""Reads one safetensors file by mapping it into memory.

Owns the format and the distrust of its header: every claim is checked against the real size of the
file before it is used. Does not know what a tensor means. The layout:

    length of the header u64, little endian
    header: JSON, name -> {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__"
    data: the tensors without gaps or overlaps, begin and end counted from here
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import CorruptFileError
from octavo.foundation.json_object import parse_object
from octavo.weights.checkpoint import DERIVED_ENDINGS, TensorView
from octavo.weights.fields import Fields
from octavo.weights.mapped_file import map_file
from octavo.weights.stored_tensor import NUM_BITS, StoredTensor, float_view

MAX_HEADER_BYTES = 100 * 10**6  # the limit of the reference implementation
MAX_DIMENSIONS = 8


def read_safetensors(path: Path) -> dict[str, TensorView]:
    """Map and check one file of floats; a view may start at any byte. Derived buffers are left out.

    Raises CorruptFileError for a malformed file, UnsupportedModelError for other types than F32,
    F16 and BF16, ModelFileError when the file cannot be read.
    """
    return {name: float_view(tensor) for name, tensor in read_stored(path).items()}


def read_stored(path: Path) -> dict[str, StoredTensor]:
    """The same for tensors of any type that the format has.

    Raises CorruptFileError for a malformed file, ModelFileError when it cannot be read.
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
    content = data[8 + header_bytes :]
    spans: dict[str, tuple[int, int]] = {}
    tensors: dict[str, StoredTensor] = {}
    for name in header:
        entry = headers.section(name)
        if entry is None:
            headers.refuse(name, "must be an object")
        if name.endswith(DERIVED_ENDINGS):
            spans[name] = _span(entry, len(content))
        else:
            spans[name], tensors[name] = _tensor(headers, name, entry, content)
    _check_coverage(spans, len(content), path)
    return tensors


def _tensor(
    headers: Fields, name: str, entry: Fields, data: memoryview
) -> tuple[tuple[int, int], StoredTensor]:
    """Where a tensor begins and ends in the data, and the tensor."""
    dtype = entry.text("dtype")
    if dtype not in NUM_BITS:
        entry.refuse("dtype", f"{dtype!r} is none of {', '.join(NUM_BITS)}")
    shape = _lengths(entry, "shape", MAX_DIMENSIONS)
    begin, end = _span(entry, len(data))
    num_bits = NUM_BITS[dtype] * math.prod(shape)
    if 8 * (end - begin) != num_bits:
        entry.refuse("data_offsets", f"span {end - begin} bytes, the shape needs {num_bits / 8:g}")
    return (begin, end), StoredTensor(name, dtype, shape, data[begin:end], headers.where)


def _span(entry: Fields, num_bytes: int) -> tuple[int, int]:
    """Where a tensor begins and ends in so many bytes of data."""
    offsets = _lengths(entry, "data_offsets", 2)
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= num_bytes:
        entry.refuse(
            "data_offsets", f"{list(offsets)} are not within the {num_bytes} bytes of data"
        )
    return offsets[0], offsets[1]


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


def _check_coverage(spans: Mapping[str, tuple[int, int]], num_bytes: int, path: Path) -> None:
    """Tensors must fill the data from the first to the last byte, each byte once."""
    end = 0
    for name, (begin, own_end) in sorted(spans.items(), key=lambda item: item[1]):
        if begin != end:
            what = (
                "overlaps another tensor" if begin < end else f"leaves a gap of {begin - end} bytes"
            )
            raise CorruptFileError(f"{path}: {name} {what}")
        end = own_end
    if end != num_bytes:
        raise CorruptFileError(
            f"{path}: {num_bytes - end} bytes after the last tensor; is it truncated?"
        )
