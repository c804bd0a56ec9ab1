"""Tensors that a file keeps fused, transposed or in another rotary order -> one world.

Owns the taking apart: after `arranged` every architecture has q_proj, k_proj, v_proj, gate_proj and
up_proj on their own, as [out_features, in_features], with rotary halves. Nothing is copied here: a
part is a view of some rows, put in order when it is read. Does not know names in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from octavo.config.model_facts import ModelFacts
from octavo.errors import CorruptFileError
from octavo.weights.checkpoint import TensorView
from octavo.weights.expert_stacks import StackLayout, experts_apart, is_stack
from octavo.weights.latent_heads import is_latent, latent_parts
from octavo.weights.state_layers import gated_queries, is_state_part, state_parts
from octavo.weights.views import check_columns, check_rows, matrix_of, rows_of, transposed

QKV, GATE_UP = "self_attn.qkv_proj", "mlp.gate_up_proj"
SHARED_GATE_UP = "mlp.shared_expert.gate_up_proj"
Q, K, V = "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"
Q_NORM, K_NORM = "self_attn.q_norm", "self_attn.k_norm"
# Matrices of which many read one input together, as it is.
_SHARED_INPUT = re.compile(r"\.(mlp\.experts\.\d+|self_attn\.(k_up|v_up))\.")


class Arrangement(msgspec.Struct, frozen=True):
    """How a file lays out the tensors of one architecture, by our names."""

    grouped_qkv: bool = False  # q heads of a KV head, its key, its value; then the next KV head
    rotary_pairs: bool = False  # columns 2i and 2i + 1 of a head are rotated together
    transposed: tuple[str, ...] = ()  # parts whose matrix is [in_features, out_features]
    skipped_positions: int = 0  # rows of the table of positions that belong to no position
    experts: StackLayout = msgspec.field(default_factory=StackLayout)


def arranged(
    tensors: Mapping[str, TensorView], facts: ModelFacts, arrangement: Arrangement
) -> dict[str, TensorView]:
    """All tensors, those that are fused as their parts, without those of draft layers.

    Raises CorruptFileError for a fused tensor of the wrong size, UnsupportedModelError for a
    an expert with its columns out of order.
    """
    result: dict[str, TensorView] = {}
    drafts = tuple(f"model.layers.{facts.num_layers + i}." for i in range(facts.num_draft_layers))
    for name, view in tensors.items():
        if name.startswith(drafts):
            continue
        for part in _parts(name, view, facts, arrangement):
            if _SHARED_INPUT.search(part.name):
                check_columns(part)
            result[part.name] = part
    return result


def _parts(
    name: str, view: TensorView, facts: ModelFacts, arrangement: Arrangement
) -> Iterator[TensorView]:
    stem, _, ending = name.rpartition(".")
    is_float = view.type.block_elements == 1  # tools that quantise turn such a matrix
    if ending == "weight" and is_float and stem.endswith(arrangement.transposed):
        view = transposed(view)
    if facts.latent is not None and is_latent(name):
        yield from latent_parts(name, view, facts, facts.latent)
    elif facts.moe is not None and is_stack(name):
        yield from experts_apart(name, view, facts.moe, arrangement.experts)
    elif stem.endswith(QKV):
        yield from _qkv(name, view, facts, arrangement)
    elif facts.state is not None and is_state_part(name):
        yield from state_parts(name, view, facts.state)
    elif stem.endswith((GATE_UP, SHARED_GATE_UP)):
        inner = facts.intermediate_size
        if facts.moe is not None and stem.endswith(SHARED_GATE_UP):
            inner = facts.moe.shared_size
        check_rows(view, 2 * inner)
        yield rows_of(view, name.replace("gate_up_proj", "gate_proj"), range(inner))
        yield rows_of(view, name.replace("gate_up_proj", "up_proj"), range(inner, 2 * inner))
    elif stem.endswith((Q_NORM, K_NORM)) and facts.qk_norm_by_head:
        yield from _norm_by_head(stem, view, facts, arrangement)
    elif stem.endswith(Q) and facts.attention_gate:
        yield from gated_queries(name, view, facts)
    elif stem.endswith((Q, K)) and arrangement.rotary_pairs:
        num_heads = facts.num_heads if stem.endswith(Q) else facts.num_kv_heads
        check_rows(view, num_heads * facts.head_dim)
        yield rows_of(view, name, _halves_order(num_heads, facts))
    elif stem.endswith("embed_positions") and arrangement.skipped_positions:
        yield rows_of(view, name, range(arrangement.skipped_positions, view.shape[0]))
    else:
        yield view


def _qkv(
    name: str, view: TensorView, facts: ModelFacts, arrangement: Arrangement
) -> Iterator[TensorView]:
    """Queries, keys and values of a fused projection, each head after head."""
    num_q, num_kv, size = facts.num_heads, facts.num_kv_heads, facts.head_dim
    check_rows(view, (num_q + 2 * num_kv) * size)
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
        yield rows_of(view, name.replace(QKV, part), rows)


def _norm_by_head(
    stem: str, view: TensorView, facts: ModelFacts, arrangement: Arrangement
) -> Iterator[TensorView]:
    """The weights of each head, in the order of its elements."""
    if view.shape[1:] != (facts.head_dim,):
        raise CorruptFileError(
            f"tensor {view.name} has shape {list(view.shape)}, the model needs {facts.head_dim} "
            "columns"
        )
    for head in range(view.shape[0]):
        own = matrix_of(view, f"{stem}.{head}.weight", head)
        if arrangement.rotary_pairs:
            own = rows_of(own, own.name, _halves_order(1, facts))
        yield own


def _halves_order(num_heads: int, facts: ModelFacts) -> list[int]:
    """Wanted row -> stored row of heads whose rotated part is stored pair after pair."""
    size, rotary = facts.head_dim, facts.rope.rotary_dim
    in_head = [*range(0, rotary, 2), *range(1, rotary, 2), *range(rotary, size)]
    return [head * size + row for head in range(num_heads) for row in in_head]
