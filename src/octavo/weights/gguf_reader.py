"""Reads GGUF files (versions 2 and 3, little endian) by mapping them into memory.

Owns the format and the distrust: whatever the file claims is checked against its real size before
it is used, and the first lie is a CorruptFileError. Tensor names stay the file's own, and nothing
here knows what a key or a tensor means. The layout, by the specification of the ggml project:

    header     magic "GGUF", version u32, number of tensors u64, number of keys u64
    metadata   (key, value type u32, value) ...      a string is its length u64 and its bytes
    table      (name, number of dimensions u32, dimensions u64 ..., type u32, offset u64) ...
    data       tensors, each at a multiple of the alignment from the start of this part
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import NoReturn

import msgspec

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.gguf_metadata import ARRAY, LENGTH, SCALARS, STRING, GgufMetadata, StoredArray
from octavo.weights.gguf_repack import REPACKED, repacked_view
from octavo.weights.mapped_file import map_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 65535
MIN_KEY_BYTES = 8 + 4 + 1  # an empty key with a value of one byte
MIN_ENTRY_BYTES = 8 + 4 + 8 + 4 + 8  # an unnamed tensor of one dimension
# Names of the types that ggml has and we do not, for the refusal.
OTHER_TYPES = {
    9: "Q8_1",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    41: "Q1_0",
}
KNOWN_TYPES = {int(type): type for type in WeightType if type.is_ggml}


class GgufFile(msgspec.Struct, frozen=True):
    """What one file holds. The views keep the mapping alive."""

    path: Path
    metadata: GgufMetadata
    tensors: dict[str, TensorView]
    stored_keys: dict[str, memoryview]  # each key with its value, as the file has them


class _Entry(msgspec.Struct, frozen=True):
    """One row of the tensor table, as the file has it."""

    name: str
    dimensions: tuple[int, ...]  # fastest first
    type_number: int
    offset: int


def read_gguf(path: Path) -> GgufFile:
    """Map and check one file.

    Raises CorruptFileError for a malformed file, UnsupportedModelError for types that we do not
    have and for big-endian files, ModelFileError when the file cannot be read.
    """
    return _Reader(path).read()


def _block_of(type_number: int) -> tuple[str, int, int]:
    """Name of a type, elements and bytes of its blocks."""
    if type_number in REPACKED:
        repacked = REPACKED[type_number]
        return repacked.name, repacked.block_elements, repacked.block_bytes
    weight_type = KNOWN_TYPES[type_number]
    return weight_type.name, weight_type.block_elements, weight_type.block_bytes


class _Reader:
    """A position in the mapped file that only moves forward."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = map_file(path)
        self._size = len(self._data)
        self._position = 0

    def read(self) -> GgufFile:
        num_tensors, num_keys = self._header()
        values: dict[str, object] = {}
        stored: dict[str, memoryview] = {}
        for _ in range(num_keys):
            start = self._position
            key = self._string("a key", MAX_NAME_BYTES)
            if key in values:
                self._refuse(f"the key {key} appears twice")
            values[key] = self._value(key)
            stored[key] = self._data[start : self._position]
        entries = [self._entry() for _ in range(num_tensors)]
        alignment = self._alignment(values)
        data_start = -(-self._position // alignment) * alignment
        self._check_types(entries)
        tensors = self._tensors(entries, data_start, alignment)
        return GgufFile(self._path, GgufMetadata(values, str(self._path)), tensors, stored)

    # Parts of the file, in order.

    def _header(self) -> tuple[int, int]:
        magic = bytes(self._data[:4])
        if magic != MAGIC:
            self._refuse(f"the file begins with {magic!r} and not with {MAGIC!r}")
        self._position = 4
        version = self._integer(4, "the version")
        if version and not version & 0xFFFF:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            message = f"{self._path} is a big-endian GGUF file (version {swapped})"
            raise UnsupportedModelError(f"{message}; supported: little-endian files")
        if version not in VERSIONS:
            self._refuse(f"GGUF version {version}; supported: {' and '.join(map(str, VERSIONS))}")
        num_tensors = self._integer(8, "the number of tensors")
        num_keys = self._integer(8, "the number of keys")
        # A count is a claim: it must fit into the bytes that follow.
        if num_tensors * MIN_ENTRY_BYTES + num_keys * MIN_KEY_BYTES > self._left:
            self._refuse(f"{num_tensors} tensors and {num_keys} keys do not fit into the file")
        return num_tensors, num_keys

    def _value(self, key: str) -> object:
        value_type = self._integer(4, f"the type of {key}")
        if value_type == STRING:
            return self._string(f"the value of {key}", self._size)
        if value_type == ARRAY:
            return self._array(key)
        if value_type not in SCALARS:
            self._refuse(f"{key} has the unknown value type {value_type}")
        scalar = SCALARS[value_type]
        return scalar.unpack(self._take(scalar.size, f"the value of {key}"))[0]

    def _array(self, key: str) -> StoredArray:
        item_type = self._integer(4, f"the item type of {key}")
        count = self._integer(8, f"the length of {key}")
        if item_type == ARRAY:
            self._refuse(f"{key} is an array of arrays")
        if item_type == STRING:
            size = self._size_of_strings(key, count)
        elif item_type in SCALARS:
            size = count * SCALARS[item_type].size
        else:
            self._refuse(f"{key} has the unknown item type {item_type}")
        return StoredArray(item_type, count, self._take(size, f"{count} items of {key}"))

    def _size_of_strings(self, key: str, count: int) -> int:
        """Bytes of `count` strings from here. The only way to learn it is to step over each.

        Whether the last one is there is checked by whoever takes them.
        """
        size = -1
        if count <= self._left // LENGTH.size:  # a count is a claim
            size = _native.stored_size(self._data[self._position :], count)
        if size < 0:
            self._refuse(f"a string of {key} reaches beyond the end of the file")
        return size

    def _entry(self) -> _Entry:
        name = self._string("a tensor name", MAX_NAME_BYTES)
        num_dimensions = self._integer(4, f"the dimensions of {name}")
        if not 0 < num_dimensions <= MAX_DIMENSIONS:
            self._refuse(f"{name} has {num_dimensions} dimensions, must be 1 to {MAX_DIMENSIONS}")
        dimensions = tuple(
            self._integer(8, f"the dimensions of {name}") for _ in range(num_dimensions)
        )
        type_number = self._integer(4, f"the type of {name}")
        return _Entry(name, dimensions, type_number, self._integer(8, f"the offset of {name}"))

    def _alignment(self, values: dict[str, object]) -> int:
        alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
        # A multiple of 8 by the specification: kernels may read numbers in place.
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            self._refuse(f"general.alignment must be a power of two from 8 up, got {alignment!r}")
        return alignment

    def _check_types(self, entries: list[_Entry]) -> None:
        known = KNOWN_TYPES.keys() | REPACKED.keys()
        unknown = Counter(e.type_number for e in entries if e.type_number not in known)
        if not unknown:
            return
        found = ", ".join(
            f"{OTHER_TYPES.get(number, f'type {number}')} ({count} tensors)"
            for number, count in sorted(unknown.items())
        )
        names = [type.name for type in KNOWN_TYPES.values()]
        ours = ", ".join([*names, *(repacked.name for repacked in REPACKED.values())])
        message = f"{self._path.name} has tensors of a type that is not supported: {found}"
        raise UnsupportedModelError(f"{message}. Supported: {ours}")

    def _tensors(
        self, entries: list[_Entry], data_start: int, alignment: int
    ) -> dict[str, TensorView]:
        tensors: dict[str, TensorView] = {}
        end_of_previous = 0
        for entry in sorted(entries, key=lambda entry: entry.offset):
            num_bytes = self._num_bytes(entry)
            if entry.offset % alignment:
                self._refuse(f"{entry.name} lies at {entry.offset}, not a multiple of {alignment}")
            if entry.offset < end_of_previous:
                self._refuse(f"{entry.name} overlaps another tensor")
            end_of_previous = entry.offset + num_bytes
            if data_start + end_of_previous > self._size:
                self._refuse(f"the data of {entry.name} reach beyond the end of the file")
            if entry.name in tensors:
                self._refuse(f"the tensor {entry.name} appears twice")
            data = self._data[data_start + entry.offset : data_start + end_of_previous]
            name, shape = entry.name, entry.dimensions[::-1]
            if entry.type_number in REPACKED:
                tensors[name] = repacked_view(name, entry.type_number, shape, data)
            else:
                tensors[name] = TensorView(name, KNOWN_TYPES[entry.type_number], shape, data)
        return tensors

    def _num_bytes(self, entry: _Entry) -> int:
        name, block, block_bytes = _block_of(entry.type_number)
        if 0 in entry.dimensions:
            self._refuse(f"{entry.name} has a dimension of 0")
        row = entry.dimensions[0]
        if row % block:
            self._refuse(
                f"the rows of {entry.name} have {row} elements, "
                f"not a multiple of the {block} of {name}"
            )
        return math.prod(entry.dimensions) // block * block_bytes

    # Steps forward.

    @property
    def _left(self) -> int:
        return self._size - self._position

    def _take(self, num_bytes: int, what: str) -> memoryview:
        if num_bytes > self._left:
            self._refuse(f"the file ends within {what}")
        start = self._position
        self._position += num_bytes
        return self._data[start : self._position]

    def _integer(self, num_bytes: int, what: str) -> int:
        return int.from_bytes(self._take(num_bytes, what), "little")

    def _string(self, what: str, max_bytes: int) -> str:
        length = self._integer(8, what)
        if length > max_bytes:
            self._refuse(f"{what} claims {length} bytes, at most {max_bytes}")
        try:
            return str(self._take(length, what), "utf-8")
        except UnicodeDecodeError:
            self._refuse(f"{what} is not valid UTF-8")

    def _refuse(self, what: str) -> NoReturn:
        raise CorruptFileError(f"{self._path} is not a sound GGUF file: {what}")
