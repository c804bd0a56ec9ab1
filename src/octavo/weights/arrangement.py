"""Tensors that a file keeps fused, transposed or in another rotary order -> one world.

Owns the taking apart: after `arranged` every architecture has q_proj, k_proj, v_proj, gate_proj and
up_proj on their own, as [out_features, in_features], with rotary halves. Nothing is copied here: a
part is a view of some rows, put in order when it is read. Does not know names in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from octavo.config.model_facts import ModelFacts
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType

QKV, GATE_UP = "self_attn.qkv_proj", "mlp.gate_up_proj"
Q, K, V = "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"
GATE, UP = "mlp.gate_proj", "mlp.up_proj"
_FLOATS = (WeightType.F32, WeightType.F16, WeightType.BF16)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a file lays out the tensors of one architecture, by our names."""

    grouped_qkv: bool = False  # q heads of a KV head, its key, its value; then the next KV head
    rotary_pairs: bool = False  # columns 2i and 2i + 1 of a head are rotated together
    transposed: tuple[str, ...] = ()  # parts whose matrix is [in_features, out_features]
    skipped_positions: int = 0  # rows of the table of positions that belong to no position


def arranged(
    tensors: Mapping[str, TensorView], facts: ModelFacts, arrangement: Arrangement
) -> dict[str, TensorView]:
    """All tensors, those that are fused as their parts.

    Raises CorruptFileError for a fused tensor of the wrong size, UnsupportedModelError for a
    quantised one that would have to be transposed.
    """
    result: dict[str, TensorView] = {}
    for name, view in tensors.items():
        for part in _parts(name, view, facts, arrangement):
            result[part.name] = part
    return result


def _parts(
    name: str, view: TensorView, facts: ModelFacts, arrangement: Arrangement
) -> Iterator[TensorView]:
    stem, _, ending = name.rpartition(".")
    if ending == "weight" and stem.endswith(arrangement.transposed):
        view = _transposed(view)
    if stem.endswith(QKV):
        yield from _qkv(name, view, facts, arrangement)
    elif stem.endswith(GATE_UP):
        inner = facts.intermediate_size
        _check_rows(view, 2 * inner)
        yield _part(view, name.replace(GATE_UP, GATE), range(inner))
        yield _part(view, name.replace(GATE_UP, UP), range(inner, 2 * inner))
    elif stem.endswith((Q, K)) and arrangement.rotary_pairs:
        num_heads = facts.num_heads if stem.endswith(Q) else facts.num_kv_heads
        _check_rows(view, num_heads * facts.head_dim)
        yield _part(view, name, _halves_order(num_heads, facts))
    elif stem.endswith("embed_positions") and arrangement.skipped_positions:
        yield _part(view, name, range(arrangement.skipped_positions, view.shape[0]))
    else:
        yield view


def _qkv(
    name: str, view: TensorView, facts: ModelFacts, arrangement: Arrangement
) -> Iterator[TensorView]:
    """Queries, keys and values of a fused projection, each head after head."""
    num_q, num_kv, size = facts.num_heads, facts.num_kv_heads, facts.head_dim
    _check_rows(view, (num_q + 2 * num_kv) * size)
    heads = [list(range(num_q)), list(range(num_q, num_q + num_kv))]
    heads.append([head + num_kv for head in heads[1]])
    if arrangement.grouped_qkv:
        group = num_q // num_kv
        first = [kv * (group + 2) for kv in range(num_kv)]
        heads = [
            [head + i for head in first for i in range(group)],
            [head + group for head in first],
            [head + group + 1 for head in first],
        ]
    for part, own in zip((Q, K, V), heads, strict=True):
        rows: Sequence[int] = [head * size + i for head in own for i in range(size)]
        if rows[-1] - rows[0] == len(rows) - 1:
            rows = range(rows[0], rows[-1] + 1)
        yield _part(view, name.replace(QKV, part), rows)


def _halves_order(num_heads: int, facts: ModelFacts) -> list[int]:
    """Wanted row -> stored row of heads whose rotated part is stored pair after pair."""
    size, rotary = facts.head_dim, facts.rope.rotary_dim
    in_head = [*range(0, rotary, 2), *range(1, rotary, 2), *range(rotary, size)]
    return [head * size + row for head in range(num_heads) for row in in_head]


def _transposed(view: TensorView) -> TensorView:
    if view.type not in _FLOATS or len(view.shape) != 2:
        raise UnsupportedModelError(
            f"tensor {view.name} of type {view.type.name} lies transposed; only matrices of "
            f"{', '.join(kind.name for kind in _FLOATS)} can be turned"
        )
    rows = view.shape[1]
    return replace(view, shape=(rows, view.shape[0]), row_order=range(rows), transposed=True)


def _part(view: TensorView, name: str, rows: Sequence[int]) -> TensorView:
    """Some rows of a view. Neighbours are a slice of its bytes."""
    shape = (len(rows), *view.shape[1:])
    if isinstance(rows, range) and view.row_order is None and view.source is None:
        data = view.data[rows.start * view.row_bytes : rows.stop * view.row_bytes]
        return replace(view, name=name, shape=shape, data=data)
    if view.row_order is not None:
        rows = [view.row_order[row] for row in rows]
    return replace(view, name=name, shape=shape, row_order=rows)


def _check_rows(view: TensorView, needed: int) -> None:
    if view.shape[0] != needed:
        raise CorruptFileError(
            f"tensor {view.name} has {view.shape[0]} rows, the model needs {needed}"
        )
