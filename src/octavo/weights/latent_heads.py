"""Projections of multi-head latent attention -> one world: parts and heads on their own.

Owns the taking apart. After it queries are `q_nope_proj` and `q_rope_proj`, the latent
`kv_latent_proj` and `k_rope_proj`, rotated parts in halves order, and each head has `k_up.H`, which
takes its query to the latent, and `v_up.H`, which takes the latent to its value. Nothing is copied,
but of a quantised kv_b_proj the parts of keys become floats: blocks cannot be turned.
"""

from __future__ import annotations

from collections.abc import Iterator

from octavo.config.model_facts import LatentFacts, ModelFacts
from octavo.weights.checkpoint import TensorView
from octavo.weights.views import (
    check_rows,
    is_float,
    matrix_of,
    rows_of,
    transposed,
    turned_floats,
)

_PARTS = ("q_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "k_b_proj", "v_b_proj")


def is_latent(name: str) -> bool:
    """Whether a tensor, by our name, is one of those projections."""
    stem, _, part = name.rpartition(".")[0].rpartition(".")
    return stem.endswith("self_attn") and part in _PARTS


def latent_parts(
    name: str, view: TensorView, facts: ModelFacts, latent: LatentFacts
) -> Iterator[TensorView]:
    """The parts of one projection. Raises CorruptFileError for the wrong number of rows."""
    stem, ending = name.rpartition(".")[0], name.rpartition(".")[2]
    stem, _, part = stem.rpartition(".")
    heads, nope, rope = facts.num_heads, latent.nope_dim, latent.rope_dim
    match part:
        case "q_proj" | "q_b_proj":
            size = nope + rope
            check_rows(view, heads * size)
            plain = [head * size + i for head in range(heads) for i in range(nope)]
            turned = [head * size + nope + i for head in range(heads) for i in _halves(rope)]
            yield rows_of(view, f"{stem}.q_nope_proj.{ending}", plain)
            yield rows_of(view, f"{stem}.q_rope_proj.{ending}", turned)
        case "kv_a_proj_with_mqa":
            check_rows(view, latent.kv_rank + rope)
            turned = [latent.kv_rank + i for i in _halves(rope)]
            yield rows_of(view, f"{stem}.kv_latent_proj.{ending}", range(latent.kv_rank))
            yield rows_of(view, f"{stem}.k_rope_proj.{ending}", turned)
        case "kv_b_proj":
            size = nope + latent.value_dim
            check_rows(view, heads * size)
            for head in range(heads):
                first = head * size
                keys = rows_of(view, f"{stem}.k_up.{head}.{ending}", range(first, first + nope))
                yield transposed(keys) if is_float(keys) else turned_floats(keys)
                values = range(first + nope, first + size)
                yield rows_of(view, f"{stem}.v_up.{head}.{ending}", values)
        case _:  # a matrix for each head, as llama.cpp keeps them; those of keys are turned already
            check_rows(view, heads)
            kind = "k_up" if part == "k_b_proj" else "v_up"
            for head in range(heads):
                yield matrix_of(view, f"{stem}.{kind}.{head}.{ending}", head)


def _halves(rope_dim: int) -> list[int]:
    """Stored row of each wanted one: pairs that are rotated together lie side by side."""
    return [*range(0, rope_dim, 2), *range(1, rope_dim, 2)]
