"""GPTQ: 2, 4 or 8 bits, the columns of a row in a word, scale and zero point per group.

    qweight  I32 [in_features * bits / 32, out_features]
    qzeros   I32 [groups, out_features * bits / 32]      version 1 stores the zero point minus one
    scales       [groups, out_features]                  weight = scale * (code - zero)
    g_idx    I32 [in_features]                           group of each column

With act-order (`desc_act`) columns of a group do not stand together. They are put together here,
and the input of the product into the same order.
"""

from __future__ import annotations

from collections import Counter

from octavo import _native
from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import TensorView
from octavo.weights.fields import Fields
from octavo.weights.quant.tables import (
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

_BITS = (2, 4, 8)
_FORMATS = {"gptq": 1, "gptq_v2": 0}  # -> what is to be added to a stored zero point


def gptq_views(stems: Stems, config: Fields) -> dict[str, TensorView]:
    """All quantised matrices. Raises UnsupportedModelError for other bits or another layout."""
    bits = config.integer("bits")
    if bits not in _BITS:
        raise UnsupportedModelError(f"{config.where}: GPTQ of {bits} bits; supported: 2, 4 and 8")
    layout = config.text("checkpoint_format", config.text("format", "gptq"))
    if layout not in _FORMATS:
        known = " and ".join(_FORMATS)
        raise UnsupportedModelError(f"{config.where}: GPTQ layout {layout!r}; supported: {known}")
    overrides = [key for key in config.section("dynamic") or () if not key.startswith("-:")]
    if overrides:
        raise UnsupportedModelError(
            f"{config.where}: dynamic has settings of its own for {overrides[0]!r}; supported: one "
            "setting for all modules, and modules that are left out"
        )
    group_size = config.integer("group_size", at_least=-1)
    views = {}
    for stem in stems.with_ending("qweight"):
        name = f"{stem}.weight"
        views[name] = _matrix(stem, stems, bits, group_size, _FORMATS[layout])
    return views


def _matrix(stem: str, stems: Stems, bits: int, group_size: int, added: int) -> TensorView:
    name, in_word = f"{stem}.weight", 32 // bits
    codes = stems.take(stem, "qweight").expect(("I32",))
    words, rows = codes.matrix_shape()
    cols = words * in_word
    group = cols if group_size < 1 else group_size
    to = type_for("INT8" if bits == 8 else "INT4", name, cols, group)
    num_groups = cols // group
    if rows % in_word:
        codes.refuse(f"has {rows} columns, no multiple of the {in_word} zero points of a word")
    scales = stems.take(stem, "scales").expect(FLOAT_SCALES, (num_groups, rows))
    zeros = stems.take(stem, "qzeros").expect(("I32",), (num_groups, rows // in_word))
    groups = column_groups(stems.take_optional(stem, "g_idx"), cols, group)
    zero_table = _native.PackedInts(
        zeros.data, bits, 32, (rows, num_groups), (1, rows // in_word), packs_rows=True
    )
    source = TableRows(
        to,
        _native.PackedInts(codes.data, bits, 32, (rows, cols), (1, rows)),
        scale_table(scales, (rows, num_groups), (1, rows), groups),
        Zeros(added, zero_table),
        groups,
    )
    return matrix_view(name, (rows, cols), source)


def column_groups(index: StoredTensor | None, cols: int, group: int) -> Groups:
    """Which group a column has; columns of one are put side by side."""
    if index is None:
        return Groups(group)
    of_columns = [int(number) for number in index.expect(("I32",), (cols,)).numbers()]
    if of_columns == [column // group for column in range(cols)]:
        return Groups(group)
    sizes = Counter(of_columns)
    if sizes != Counter(dict.fromkeys(range(cols // group), group)):
        index.refuse(f"must name each of {cols // group} groups {group} times")
    order = sorted(range(cols), key=of_columns.__getitem__)
    return Groups(group, of_columns=of_columns, order=order)
