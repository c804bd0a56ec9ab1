"""AWQ (AutoAWQ's "gemm" layout): 4 bits, eight output rows in a word, scale and zero per group.

qweight  I32 [in_features, out_features / 8]     output rows in the order 0 2 4 6 1 3 5 7
qzeros   I32 [groups, out_features / 8]          the same
scales       [groups, out_features]              weight = scale * (code - zero)
"""

from __future__ import annotations

from octavo import _native
from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import TensorView
from octavo.weights.fields import Fields
from octavo.weights.quant.tables import (
    AWQ_ORDER,
    FLOAT_SCALES,
    Groups,
    Stems,
    TableRows,
    Zeros,
    matrix_view,
    scale_table,
    type_for,
)
from octavo.weights.stored_tensor import StoredTensor

_IN_WORD = 8


def awq_views(stems: Stems, config: Fields) -> dict[str, TensorView]:
    """All quantised matrices. Raises UnsupportedModelError for other bits or another layout."""
    bits = config.integer("bits" if "bits" in config else "w_bit", 4)
    if bits != 4:
        raise UnsupportedModelError(f"{config.where}: AWQ of {bits} bits; supported: 4")
    version = config.text("version", "gemm").lower()
    if version != "gemm":
        raise UnsupportedModelError(f"{config.where}: AWQ version {version!r}; supported: gemm")
    key = "group_size" if "group_size" in config else "q_group_size"
    group_size = config.integer(key, 128, at_least=-1)
    views = {}
    for stem in stems.with_ending("qweight"):
        name = f"{stem}.weight"
        views[name] = _matrix(name, stem, stems, group_size, config)
    return views


def _matrix(name: str, stem: str, stems: Stems, group_size: int, config: Fields) -> TensorView:
    codes = stems.take(stem, "qweight").expect(("I32",))
    cols, words = codes.matrix_shape()
    rows = _IN_WORD * words
    group = cols if group_size < 1 else group_size
    to = type_for("INT4", name, cols, group)
    num_groups = cols // group
    scales = stems.take(stem, "scales").expect(FLOAT_SCALES, (num_groups, rows))
    zeros = stems.take_optional(stem, "qzeros")
    if zeros is None and config.flag("zero_point", True):
        zeros = stems.take(stem, "qzeros")  # says that it is missing
    groups = Groups(group)
    table = Zeros(8)
    if zeros is not None:
        zeros.expect(("I32",), (num_groups, words))
        table = Zeros(0, _words(zeros, rows))
    source = TableRows(
        to,
        _words(codes, rows),
        scale_table(scales, (rows, num_groups), (1, rows), groups),
        table,
        groups,
    )
    return matrix_view(name, (rows, cols), source)


def _words(tensor: StoredTensor, rows: int) -> _native.PackedInts:
    """[columns, rows / 8] words as a table of rows and columns."""
    cols, words = tensor.matrix_shape()
    return _native.PackedInts(
        tensor.data, 4, 32, (rows, cols), (1, words), packs_rows=True, order=AWQ_ORDER
    )
