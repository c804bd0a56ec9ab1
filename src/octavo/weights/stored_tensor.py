"""A tensor as a safetensors file has it, of any type, before anybody knows what it is for.

Owns the names of the types and the errors that name tensor, file and what was expected.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import NoReturn

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType

FLOATS = {"F32": WeightType.F32, "F16": WeightType.F16, "BF16": WeightType.BF16}
# Type -> bits of an element.
NUM_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "F4": 4,
}
_FORMATS = {"I32": "i", "I64": "q", "F32": "f", "F16": "e"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Bytes with a type and a shape, row-major and little endian."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    where: str  # the file, for messages

    def refuse(self, what: str) -> NoReturn:
        """Raise CorruptFileError about this tensor."""
        raise CorruptFileError(f"{self.where}: tensor {self.name} {what}")

    def expect(self, dtypes: tuple[str, ...], *shapes: tuple[int, ...]) -> StoredTensor:
        """This tensor, if it has one of the types and one of the shapes (none: any shape)."""
        if self.dtype not in dtypes:
            self.refuse(f"has the type {self.dtype}, must be {' or '.join(dtypes)}")
        if shapes and self.shape not in shapes:
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            self.refuse(f"has shape {list(self.shape)}, must be {wanted}")
        return self

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of a tensor of two dimensions that has elements."""
        if len(self.shape) != 2 or 0 in self.shape:
            self.refuse(f"has shape {list(self.shape)}, must be a matrix")
        return self.shape[0], self.shape[1]

    def numbers(self) -> list[float]:
        """The elements, for tensors of a few numbers."""
        count = len(self.data) * 8 // NUM_BITS[self.dtype]
        if self.dtype == "BF16":
            raw = bytearray(4 * count)
            raw[2::4], raw[3::4] = self.data[0::2], self.data[1::2]
            return list(struct.unpack(f"<{count}f", raw))
        if self.dtype not in _FORMATS:
            self.refuse(f"has the type {self.dtype}, must be one of BF16, {', '.join(_FORMATS)}")
        return list(struct.unpack(f"<{count}{_FORMATS[self.dtype]}", self.data))

    def floats(self) -> array[float]:
        """The elements of an F32 tensor."""
        self.expect(("F32",))
        return array("f", struct.unpack(f"<{len(self.data) // 4}f", self.data))


def float_view(tensor: StoredTensor) -> TensorView:
    """A tensor of floats as the rest of Octavo sees it.

    Raises UnsupportedModelError for another type.
    """
    if tensor.dtype not in FLOATS:
        message = (
            f"{tensor.where}: {tensor.name} has the type {tensor.dtype}, which is not supported"
        )
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(FLOATS)}")
    return TensorView(tensor.name, FLOATS[tensor.dtype], tensor.shape, tensor.data)
