"""Every native op computes what the reference says, on every instruction set of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo import _native
from octavo.ops.ops import Activation
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Linear, Vector, Weights
from octavo.weights.checkpoint import TensorView, WeightType
from tests.support.op_twins import OpTwins, plain_batch
from tests.support.random_weights import random_view

ISAS = _native.available_isas()
ACTIVATIONS: list[Activation] = ["silu", "gelu_tanh", "gelu", "relu", "relu2", "tanh", "hardtanh"]
NUM_TOKENS = [1, 2, 3, 5, 8, 19]
INT8_TYPES = [type for type in WeightType if type.takes_int8]

pytestmark = pytest.mark.parametrize("isa", ISAS)


def random_rows(num_rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))


def float_vector(name: str, size: int, seed: int) -> TensorView:
    values = random_rows(1, size, seed).flatten() + 1.0
    return TensorView(name, WeightType.F32, (size,), memoryview(values.numpy().tobytes()))


def column_counts(type: WeightType) -> list[int]:
    """Rows of one and of several blocks; for floats also widths that no register divides."""
    if type.block_elements == 1:
        return [1, 7, 64, 101]
    return [type.block_elements, 3 * type.block_elements]


@pytest.mark.parametrize("type", WeightType)
@pytest.mark.parametrize("out_features", [1, 8, 13, 40])
def test_linear_over_every_weight_type(isa: str, type: WeightType, out_features: int) -> None:
    """Out features around the panel of eight, in features around the block of the type."""
    for in_features in column_counts(type):

        def ask(weights: Weights, in_features: int = in_features) -> Linear:
            return weights.linear(["w"], [out_features], in_features)

        tensors = {"w.weight": random_view("w", type, out_features, in_features, seed=7)}
        twins = OpTwins(isa=isa, tensors=tensors, ask=ask)
        for num_tokens in NUM_TOKENS:
            x = random_rows(num_tokens, in_features, seed=in_features)
            twins.assert_close(lambda ops, w, x: ops.linear(x, w), plain_batch(num_tokens), x)


@pytest.mark.parametrize("type", INT8_TYPES)
@pytest.mark.parametrize("out_features", [1, 8, 13, 40])
def test_linear_of_int8_activations(isa: str, type: WeightType, out_features: int) -> None:
    """Rows of very different size, with columns that stand out, as real activations have them."""
    for in_features in column_counts(type):

        def ask(weights: Weights, in_features: int = in_features) -> Linear:
            return weights.linear(["w"], [out_features], in_features)

        tensors = {"w.weight": random_view("w", type, out_features, in_features, seed=7)}
        twins = OpTwins(isa=isa, tensors=tensors, ask=ask, activation_dtype="int8")
        for num_tokens in NUM_TOKENS:
            x = random_rows(num_tokens, in_features, seed=in_features)
            x[:, 5] *= 30.0
            x[num_tokens // 2] *= 0.01
            twins.assert_close(
                lambda ops, w, x: ops.linear(x, w), plain_batch(num_tokens), x, atol=2e-4
            )


@pytest.mark.parametrize("out_features", [1, 8, 13, 40])
def test_linear_of_bfloat16_activations(isa: str, out_features: int) -> None:
    """Of odd and even numbers of columns; both back ends round the same numbers."""
    for in_features in column_counts(WeightType.BF16):

        def ask(weights: Weights, in_features: int = in_features) -> Linear:
            return weights.linear(["w"], [out_features], in_features)

        tensors = {"w.weight": random_view("w", WeightType.BF16, out_features, in_features, seed=7)}
        twins = OpTwins(isa=isa, tensors=tensors, ask=ask, activation_dtype="bfloat16")
        exact = OpTwins(isa=isa, tensors=tensors, ask=ask)
        for num_tokens in NUM_TOKENS:
            x, batch = (
                random_rows(num_tokens, in_features, seed=in_features),
                plain_batch(num_tokens),
            )
            twins.assert_close(lambda ops, w, x: ops.linear(x, w), batch, x)
            product = twins.native(lambda ops, w, x: ops.linear(x, w), batch, x)
            rounded = exact.native(lambda ops, w, x: ops.linear(x, w), batch, x.bfloat16().float())
            torch.testing.assert_close(product, rounded, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("activation_dtype", ["float32", "bfloat16", "int8"])
def test_linear_of_several_tensors_with_biases(isa: str, activation_dtype: str) -> None:
    """Parts of several types and of any number of rows, one of them in rotary pairs."""
    tensors = {
        "q.weight": random_view("q", WeightType.Q4_K, 24, 256, seed=1, interleaved_heads=2),
        "k.weight": random_view("k", WeightType.Q4_K, 12, 256, seed=2, interleaved_heads=1),
        "v.weight": random_view("v", WeightType.Q6_K, 12, 256, seed=3),
        "g.weight": random_view("g", WeightType.BF16, 5, 256, seed=4),
        "q.bias": float_vector("q.bias", 24, seed=5),
        "k.bias": float_vector("k.bias", 12, seed=6),
        "v.bias": float_vector("v.bias", 12, seed=7),
        "g.bias": float_vector("g.bias", 5, seed=8),
    }

    def ask(weights: Weights) -> Linear:
        return weights.linear(["q", "k", "v", "g"], [24, 12, 12, 5], 256, bias=True)

    twins = OpTwins(isa=isa, tensors=tensors, ask=ask, activation_dtype=activation_dtype)
    for num_tokens in NUM_TOKENS:
        x = random_rows(num_tokens, 256, seed=num_tokens)
        twins.assert_close(lambda ops, w, x: ops.linear(x, w), plain_batch(num_tokens), x)


@pytest.mark.parametrize("type", WeightType)
def test_embed_over_every_weight_type(isa: str, type: WeightType) -> None:
    """Rows of a packed table, times a factor; the same table is the tied output matrix."""
    for hidden_size in column_counts(type):
        tensors = {"e.weight": random_view("e", type, 11, hidden_size, seed=9)}

        def ask(weights: Weights, size: int = hidden_size) -> tuple[Embedding, Linear]:
            table = weights.embedding("e", 11, size)
            return table, weights.tied_linear(table)

        twins = OpTwins(isa=isa, tensors=tensors, ask=ask)
        for scale in (1.0, 25.3):
            twins.assert_close(
                lambda ops, w, scale=scale: ops.embed(w[0], scale=scale), plain_batch(9)
            )
        x = random_rows(4, hidden_size)
        twins.assert_close(lambda ops, w, x: ops.linear(x, w[1]), plain_batch(4), x)


@pytest.mark.parametrize("size", [1, 7, 8, 64, 100, 577])
def test_rms_norm_with_an_offset_of_the_weight(isa: str, size: int) -> None:
    """Widths around the register, one row and several."""

    def ask(weights: Weights) -> Vector:
        return weights.vector("n", size, offset=1.0)

    twins = OpTwins(isa=isa, tensors={"n.weight": float_vector("n", size, seed=3)}, ask=ask)
    for num_tokens in (1, 5):
        x = 3.0 * random_rows(num_tokens, size)
        twins.assert_close(lambda ops, w, x: ops.rms_norm(x, w, 1e-6), plain_batch(num_tokens), x)


@pytest.mark.parametrize("parts", ["weight and bias", "weight", "bias", "neither"])
@pytest.mark.parametrize("size", [1, 7, 8, 64, 100, 577])
def test_layer_norm_with_and_without_weight_and_bias(isa: str, size: int, parts: str) -> None:
    """Rows far from zero, whose variance a single pass would lose."""

    def ask(weights: Weights) -> tuple[Vector | None, Vector | None]:
        weight = weights.vector("n", size, offset=0.5) if "weight" in parts else None
        return weight, weights.vector("n", size, ending="bias") if "bias" in parts else None

    tensors = {
        "n.weight": float_vector("n", size, seed=3),
        "n.bias": float_vector("n.bias", size, seed=4),
    }
    twins = OpTwins(isa=isa, tensors=tensors, ask=ask)
    for num_tokens in (1, 5):
        x = 100.0 + random_rows(num_tokens, size)
        twins.assert_close(
            lambda ops, w, x: ops.layer_norm(x, *w, 1e-5), plain_batch(num_tokens), x, atol=3e-4
        )


@pytest.mark.parametrize("type", [WeightType.F32, WeightType.BF16, WeightType.Q8_0])
def test_embed_positions_takes_the_rows_of_the_positions(isa: str, type: WeightType) -> None:
    """Whatever the token ids are."""
    tensors = {"p.weight": random_view("p", type, 40, 64, seed=2)}

    def ask(weights: Weights) -> Embedding:
        return weights.embedding("p", 40, 64)

    twins = OpTwins(isa=isa, tensors=tensors, ask=ask)
    twins.assert_close(lambda ops, w: ops.embed_positions(w), plain_batch(5, first_position=3))


def test_a_table_of_positions_shorter_than_a_sequence_is_refused(isa: str) -> None:
    """Before anything is read."""
    tensors = {"p.weight": random_view("p", WeightType.F32, 4, 8, seed=2)}

    def ask(weights: Weights) -> Embedding:
        return weights.embedding("p", 4, 8)

    twins = OpTwins(isa=isa, tensors=tensors, ask=ask)
    with pytest.raises(ValueError, match="table of positions is shorter"):
        twins.native(lambda ops, w: ops.embed_positions(w), plain_batch(5))


def test_embed_segments_takes_the_rows_of_the_segments(isa: str) -> None:
    """Without any all tokens are of the first text."""
    tensors = {"s.weight": random_view("s", WeightType.F32, 2, 24, seed=2)}

    def ask(weights: Weights) -> Embedding:
        return weights.embedding("s", 2, 24)

    twins = OpTwins(isa=isa, tensors=tensors, ask=ask)
    for segments in ((), (0, 0, 1, 1, 1)):
        batch = replace(plain_batch(5), segments=segments)
        twins.assert_close(lambda ops, w: ops.embed_segments(w), batch)
    batch = replace(plain_batch(1), segments=(2,))
    with pytest.raises(ValueError, match="no such segment"):
        twins.native(lambda ops, w: ops.embed_segments(w), batch)


@pytest.mark.parametrize("width", [1, 7, 64, 100])
def test_mean_rows_of_one_and_many_tokens(isa: str, width: int) -> None:
    """Spans that touch, overlap, hold everything or a single token."""
    batch = replace(plain_batch(19), wanted=(3, 18, 18, 7), wanted_first=(0, 0, 18, 2))
    x = random_rows(19, width)
    twins = OpTwins(isa=isa)

    twins.assert_close(lambda ops, _, x: ops.mean_rows(x), batch, x)
    twins.assert_close(lambda ops, _, x: ops.mean_rows(x), plain_batch(19), x)
    means = twins.native(lambda ops, _, x: ops.mean_rows(x), batch, x)
    assert torch.equal(means[2], x[18])


@pytest.mark.parametrize("size", [2, 12, 32, 64, 256])
def test_head_norm_of_one_and_several_heads(isa: str, size: int) -> None:
    """Each group of columns on its own."""

    def ask(weights: Weights) -> Vector:
        return weights.vector("n", size)

    twins = OpTwins(isa=isa, tensors={"n.weight": float_vector("n", size, seed=3)}, ask=ask)
    for num_heads in (1, 3):
        x = random_rows(4, num_heads * size)
        twins.assert_close(lambda ops, w, x: ops.head_norm(x, w, 1e-5), plain_batch(4), x)


@pytest.mark.parametrize("first_position", [0, 1000, 131_000])
@pytest.mark.parametrize(
    ("head_dim", "rotary_dim"), [(2, 2), (6, 4), (24, 24), (64, 32), (256, 256)]
)
def test_rotary_at_near_and_far_positions(
    isa: str, head_dim: int, rotary_dim: int, first_position: int
) -> None:
    """Angles are rounded to float32 as products; cosines of large angles stay exact."""
    inv_freq = tuple(1e6 ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2))
    table = RopeTable(rotary_dim, inv_freq, 1.3)
    x = random_rows(5, 3 * head_dim)
    OpTwins(isa=isa).assert_close(
        lambda ops, _, x: ops.rotary(x, table, head_dim),
        plain_batch(5, first_position=first_position),
        x,
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [1, 7, 8, 96, 1000])
def test_activations_alone_and_as_a_gate(isa: str, size: int, activation: Activation) -> None:
    """From deep in the flat parts to the bend at zero."""
    twins = OpTwins(isa=isa)
    x = 4.0 * random_rows(3, 2 * size)
    x[0, 0], x[0, -1] = -90.0, 90.0
    twins.assert_close(lambda ops, _, x: ops.activation(x, activation), plain_batch(3), x)
    twins.assert_close(lambda ops, _, x: ops.gated(x, activation), plain_batch(3), x)


@pytest.mark.parametrize("size", [1, 7, 64, 577])
def test_elementwise_ops_are_exact(isa: str, size: int) -> None:
    """A sum or a product of two float32 numbers has one right result."""
    twins = OpTwins(isa=isa)
    a, b = random_rows(5, size, seed=1), random_rows(5, size, seed=2)
    exact = {"rtol": 0.0, "atol": 0.0}
    twins.assert_close(lambda ops, _, a, b: ops.add(a, b), plain_batch(5), a, b, **exact)
    twins.assert_close(lambda ops, _, a: ops.scale(a, 0.3), plain_batch(5), a, **exact)
    twins.assert_close(lambda ops, _, a: ops.wanted_rows(a), plain_batch(5), a, **exact)


def test_split_parts_are_the_columns(isa: str) -> None:
    """Parts of any width, none of them moved."""
    twins = OpTwins(isa=isa)
    x = random_rows(5, 31)
    for part in range(3):

        def run(ops: Any, _: None, x: Any, part: int = part) -> Any:
            return ops.split(x, (7, 8, 16))[part]

        twins.assert_close(run, plain_batch(5), x, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("soft_cap", [None, 2.5])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_logits_are_scaled_then_capped(isa: str, scale: float, soft_cap: float | None) -> None:
    """Of wanted rows only, over a vocabulary that no panel divides."""
    tensors = {"h.weight": random_view("h", WeightType.Q8_0, 299, 64, seed=2)}

    def ask(weights: Weights) -> Linear:
        return weights.linear(["h"], [299], 64)

    def run(ops: Any, head: Linear, x: Any) -> Any:
        return ops.logits(ops.wanted_rows(x), head, scale=scale, soft_cap=soft_cap)

    x = 5.0 * random_rows(9, 64)
    OpTwins(isa=isa, tensors=tensors, ask=ask).assert_close(run, plain_batch(9), x)
