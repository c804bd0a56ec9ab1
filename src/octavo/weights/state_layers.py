"""Tensors of layers that carry a state, and of gated attention, taken apart for our models.

Owns which rows are what. Nothing is copied here: a part is a view of some rows. Does not know names
in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from octavo.config.model_facts import ModelFacts, StateFacts
from octavo.weights.checkpoint import TensorView
from octavo.weights.views import check_rows, rows_of

_MIXER = ".mixer."
_FUSED = ("qkvz_proj", "qkv_proj", "ba_proj")


def is_state_part(name: str) -> bool:
    """Whether a tensor, by our name, may have to be taken apart here."""
    return _MIXER in name


def state_parts(name: str, view: TensorView, state: StateFacts) -> Iterator[TensorView]:
    """The tensors that a model asks for.

    Raises CorruptFileError for a fused tensor of the wrong size.
    """
    stem, _, part = name.rpartition(_MIXER)
    part, _, ending = part.partition(".")
    if part == "conv" and ending == "weight":  # [channels, 1, width]
        yield replace(view, name=name, shape=(view.shape[0], view.shape[-1]))
    elif part == "log_decay" and len(view.shape) == 2:
        yield replace(view, name=name, shape=(view.shape[0] * view.shape[1],))
    elif part in _FUSED:
        rows = _fused_rows(part, state)
        check_rows(view, sum(map(len, rows.values())))
        for own, wanted in rows.items():
            yield rows_of(view, f"{stem}{_MIXER}{own}.{ending}", wanted)
    else:
        yield view


def _fused_rows(part: str, state: StateFacts) -> dict[str, Sequence[int]]:
    """Which rows are what. Where it lies group by group, each has a key and some heads."""
    heads = state.num_heads // state.num_groups
    if part == "qkv_proj":
        shared = state.num_groups * state.state_size
        ends = (shared, 2 * shared, 2 * shared + state.inner_size)
        return {
            "q_proj": range(ends[0]),
            "k_proj": range(ends[0], ends[1]),
            "v_proj": range(ends[1], ends[2]),
        }
    sizes = {"b_proj": heads, "a_proj": heads}
    if part == "qkvz_proj":
        key, value = state.state_size, heads * state.head_dim
        sizes = {"q_proj": key, "k_proj": key, "v_proj": value, "z_proj": value}
    return _interleaved(sizes, state.num_groups)


def gated_queries(name: str, view: TensorView, facts: ModelFacts) -> Iterator[TensorView]:
    """Queries and the gates of what they find, which lie head by head."""
    check_rows(view, 2 * facts.num_heads * facts.head_dim)
    sizes = {"q_proj": facts.head_dim, "gate_proj": facts.head_dim}
    for own, rows in _interleaved(sizes, facts.num_heads).items():
        yield rows_of(view, name.replace("q_proj", own), rows)


def _interleaved(sizes: dict[str, int], num_groups: int) -> dict[str, Sequence[int]]:
    """Rows of parts of which each of so many groups has its own, one behind the other."""
    stride, offset = sum(sizes.values()), 0
    result: dict[str, Sequence[int]] = {}
    for own, size in sizes.items():
        result[own] = [
            group * stride + offset + row for group in range(num_groups) for row in range(size)
        ]
        offset += size
    return result
