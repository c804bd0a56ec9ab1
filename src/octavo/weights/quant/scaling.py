"""Columns are scaled before they are rounded, by what flows through them (AWQ, Lin et al. 2023).

A column that sees large activations is made larger, so that rounding costs it less, and what makes
these is made smaller by as much: a norm in front of the matrices, the rows of `up_proj` in front of
`down_proj`, or those of `v_proj` in front of `o_proj`: what attention gives are means of values, so
the heads that share one share its factors. The model stays the same function. Factors are
magnitudes to the power that gives the least squared error of products; columns are taken as
independent for that.

Owns which matrices share an input and the search. Does not know where activations come from.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from octavo import _native
from octavo.config.model_facts import ModelFacts
from octavo.errors import UnsupportedModelError
from octavo.weights.stored_tensor import FLOATS, StoredTensor

# Architectures that are wired so -> the norm in front of the MLP.
_AFTER_ATTENTION, _BEFORE_MLP = "post_attention_layernorm", "pre_feedforward_layernorm"
WIRED = dict.fromkeys(
    (
        *("GemmaForCausalLM", "GraniteForCausalLM", "LlamaForCausalLM", "MinistralForCausalLM"),
        *("MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "SeedOssForCausalLM"),
        "SmolLM3ForCausalLM",
    ),
    _AFTER_ATTENTION,
) | dict.fromkeys(("Gemma2ForCausalLM", "Gemma3ForCausalLM"), _BEFORE_MLP)
NUM_POWERS = 20
SAMPLED_ROWS = 512  # of a matrix, in the search
_LEAST = 1e-6  # magnitude of a column that nothing flows through


@dataclass(slots=True)
class Seen:
    """Activations that a matrix was given: sums over `num_rows` of them, for each column."""

    num_rows: int = 0
    magnitudes: list[float] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)

    def add(self, rows: memoryview[float], num_columns: int) -> None:
        """Rows of float32, one behind the other."""
        magnitudes, squares = _native.column_sums(rows, num_columns)
        if self.num_rows == 0:
            self.magnitudes, self.squares = magnitudes, squares
        else:
            pairs = zip(self.magnitudes, magnitudes, strict=True)
            self.magnitudes = [old + new for old, new in pairs]
            self.squares = [old + new for old, new in zip(self.squares, squares, strict=True)]
        self.num_rows += rows.nbytes // (4 * num_columns)


@dataclass(slots=True)
class Folding:
    """By names of tensors: float32 factors of rows and columns, and new numbers of norms."""

    rows: dict[str, bytes] = field(default_factory=dict)
    columns: dict[str, bytes] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Integers of so many bits with a scale for so many columns."""

    bits: int
    group: int


def check_wiring(facts: ModelFacts, where: str) -> None:
    """Raises UnsupportedModelError for an architecture whose parts are not known to be wired so."""
    if facts.architecture not in WIRED or facts.moe is not None:
        raise UnsupportedModelError(
            f"{where}: --calibration is for {', '.join(sorted(WIRED))} without experts, this is "
            f"{facts.architecture}; leave --calibration out"
        )


def fold(
    tensors: Mapping[str, StoredTensor],
    facts: ModelFacts,
    seen: Mapping[str, Seen],
    rounding: Rounding,
) -> Folding:
    """Factors for all layers. `tensors` are of a folder, `seen` by the name of the matrix."""
    folding = Folding()
    for layer in range(facts.num_layers):
        name = f"model.layers.{layer}"
        parts = {
            "input_layernorm": [f"self_attn.{part}_proj" for part in "qkv"],
            WIRED[facts.architecture]: ["mlp.gate_proj", "mlp.up_proj"],
        }
        for norm, readers in parts.items():
            names = [f"{name}.{reader}.weight" for reader in readers]
            matrices = [tensors[one] for one in names]
            factors = _best_factors(matrices, seen[f"{name}.{readers[0]}"], rounding)
            vector = tensors[f"{name}.{norm}.weight"]
            data, exact = _divided(vector, factors, facts.norm_weight_offset)
            folding.vectors[vector.name] = data
            folding.columns |= dict.fromkeys(names, exact)
        _fold_values(folding, tensors, f"{name}.self_attn", facts, seen, rounding)
        up, down = f"{name}.mlp.up_proj", f"{name}.mlp.down_proj"
        if f"{up}.bias" in tensors:
            continue
        factors = _best_factors([tensors[f"{down}.weight"]], seen[down], rounding)
        folding.columns[f"{down}.weight"] = array("f", factors).tobytes()
        folding.rows[f"{up}.weight"] = array("f", [1 / factor for factor in factors]).tobytes()
    return folding


def _fold_values(
    folding: Folding,
    tensors: Mapping[str, StoredTensor],
    name: str,
    facts: ModelFacts,
    seen: Mapping[str, Seen],
    rounding: Rounding,
) -> None:
    """Between the values and the output of one attention."""
    out, values, bias = f"{name}.o_proj.weight", f"{name}.v_proj.weight", f"{name}.v_proj.bias"
    factors = _best_factors([tensors[out]], _shared(seen[f"{name}.o_proj"], facts), rounding)
    of_values: Sequence[float] = _of_kv_heads(factors, facts)
    if bias in tensors:
        folding.vectors[bias], exact = _divided(tensors[bias], of_values, 0.0)
        of_values = array("f", exact)
    folding.rows[values] = array("f", [1 / factor for factor in of_values]).tobytes()
    folding.columns[out] = array("f", _of_heads(of_values, facts)).tobytes()


def _shared(seen: Seen, facts: ModelFacts) -> Seen:
    """Magnitudes as their mean over the heads that share a KV head."""
    width, group = facts.head_dim, facts.num_heads // facts.num_kv_heads
    means = [0.0] * (facts.num_kv_heads * width)
    for column, magnitude in enumerate(seen.magnitudes):
        head, place = divmod(column, width)
        means[head // group * width + place] += magnitude / group
    return Seen(seen.num_rows, _of_heads(means, facts), seen.squares)


def _of_heads(factors: Sequence[float], facts: ModelFacts) -> list[float]:
    """Those of KV heads for each head that reads one."""
    width, group = facts.head_dim, facts.num_heads // facts.num_kv_heads
    return [
        factor
        for head in range(facts.num_heads)
        for factor in factors[head // group * width :][:width]
    ]


def _of_kv_heads(factors: Sequence[float], facts: ModelFacts) -> list[float]:
    """Those of the first head that reads each KV head."""
    width, group = facts.head_dim, facts.num_heads // facts.num_kv_heads
    return [
        factor
        for head in range(0, facts.num_heads, group)
        for factor in factors[head * width :][:width]
    ]


def _best_factors(
    matrices: Sequence[StoredTensor], seen: Seen, rounding: Rounding
) -> Sequence[float]:
    """Of the columns that `matrices` share; 1 where scaling does not help."""
    magnitudes = [max(sum_ / seen.num_rows, _LEAST) for sum_ in seen.magnitudes]
    weights = array("f", [sum_ / seen.num_rows for sum_ in seen.squares])
    best: Sequence[float] = [1.0] * len(magnitudes)
    least = float("inf")
    for step in range(NUM_POWERS):
        factors = [magnitude ** (step / NUM_POWERS) for magnitude in magnitudes]
        middle = (max(factors) * min(factors)) ** 0.5
        scaled = array("f", [factor / middle for factor in factors])
        error = sum(_error(matrix, scaled, weights, rounding) for matrix in matrices)
        if error < least:
            best, least = scaled, error
    return best


def _error(
    matrix: StoredTensor, factors: array[float], weights: array[float], rounding: Rounding
) -> float:
    rows, cols = matrix.matrix_shape()
    return _native.rounding_error(
        FLOATS[matrix.dtype],
        matrix.data,
        cols,
        rounding.bits,
        rounding.group,
        factors,
        weights,
        max(rows // SAMPLED_ROWS, 1),
    )


def _divided(norm: StoredTensor, factors: Sequence[float], offset: float) -> tuple[bytes, bytes]:
    """The norm's numbers divided, in its type; and by what they were divided once they are rounded.

    So the rounding of a norm in bfloat16 costs nothing: the columns make up for it.
    """
    floats = array("f", _native.float_rows(FLOATS[norm.dtype], norm.data, len(factors)))
    wanted = [(one + offset) / factor - offset for one, factor in zip(floats, factors, strict=True)]
    data = _encoded(wanted, norm.dtype)
    found = array("f", _native.float_rows(FLOATS[norm.dtype], data, len(factors)))
    pairs = zip(floats, found, strict=True)
    exact = [(old + offset) / (new + offset) if new + offset else 1.0 for old, new in pairs]
    return data, array("f", exact).tobytes()


def _encoded(values: Sequence[float], dtype: str) -> bytes:
    """Floats as a file has them, rounded to the nearest."""
    if dtype == "F32":
        return array("f", values).tobytes()
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    words = array("I", array("f", values).tobytes())  # BF16: the upper half of a float32
    return array("H", [(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words]).tobytes()
