"""Routers and experts: what the definition says, and the native back end alike on every machine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from octavo import _native
from octavo.backends.torch.router import route
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.ops import GateActivation, HeadPart, RouterSpec
from octavo.ops.weights import Experts, Linear, Vector, Weights
from octavo.weights.checkpoint import TensorView, WeightType
from tests.ops.test_parity import float_vector, random_rows
from tests.support.op_twins import OpTwins, plain_batch
from tests.support.random_weights import random_view

ISAS = _native.available_isas()
HIDDEN, INNER, NUM_EXPERTS = 64, 32, 8
SPECS = {
    "softmax": RouterSpec(NUM_EXPERTS, 3),
    "softmax of the chosen": RouterSpec(NUM_EXPERTS, 3, "softmax_chosen"),
    "normalised and scaled": RouterSpec(NUM_EXPERTS, 3, normalises=True, scale=2.5),
    "sigmoid in groups": RouterSpec(
        NUM_EXPERTS, 3, "sigmoid", True, num_groups=4, num_chosen_groups=2, group_best=2
    ),
    "softmax in groups": RouterSpec(NUM_EXPERTS, 2, num_groups=2, num_chosen_groups=1),
    "score": RouterSpec(NUM_EXPERTS, 1, "score"),
    "sparse mixer": RouterSpec(NUM_EXPERTS, 2, "sparse_mixer", tolerance=0.4),
    "all experts": RouterSpec(NUM_EXPERTS, NUM_EXPERTS),
}


def expert_tensors(
    gate_up: WeightType, down: WeightType, hidden: int, inner: int, *, bias: bool = False
) -> dict[str, TensorView]:
    tensors: dict[str, TensorView] = {}
    for e in range(NUM_EXPERTS):
        for part, (type, rows, cols) in {
            "gate": (gate_up, inner, hidden),
            "up": (WeightType.Q8_0 if e == 1 else gate_up, inner, hidden),
            "down": (down, hidden, inner),
        }.items():
            name = f"{e}.{part}"
            tensors[f"{name}.weight"] = random_view(name, type, rows, cols, seed=len(tensors))
            if bias:
                tensors[f"{name}.bias"] = float_vector(name, rows, seed=len(tensors))
    return tensors


def ask_experts(
    weights: Weights, hidden: int, inner: int, *, bias: bool = False, is_weighted: bool = True
) -> Experts:
    return Experts(
        tuple(
            weights.linear([f"{e}.gate", f"{e}.up"], [inner, inner], hidden, bias=bias)
            for e in range(NUM_EXPERTS)
        ),
        tuple(
            weights.linear([f"{e}.down"], [hidden], inner, bias=bias) for e in range(NUM_EXPERTS)
        ),
        is_weighted,
    )


def one_sequence(num_tokens: int) -> StepBatch:
    row = BatchRow(0, num_tokens, 0, tuple(range(-(-num_tokens // 16))))
    return StepBatch((0,) * num_tokens, tuple(range(num_tokens)), (row,), (0,), 16)


def routing_of(num_rows: int, num_chosen: int = 3) -> Tensor:
    return route(random_rows(num_rows, NUM_EXPERTS, 5), RouterSpec(NUM_EXPERTS, num_chosen), None)


def run_experts(ops: Any, experts: Experts, x: Any, routing: Any) -> Any:
    return ops.experts(x, routing, experts, "silu")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("has_correction", [False, True])
def test_native_routers_choose_and_weigh_as_the_definition_says(
    isa: str, kind: str, has_correction: bool
) -> None:
    """The same experts in the same order, ties and all, with the same weights."""

    def ask(weights: Weights) -> Vector | None:
        return weights.vector("c", NUM_EXPERTS) if has_correction else None

    twins = OpTwins(isa=isa, tensors={"c.weight": float_vector("c", NUM_EXPERTS, 3)}, ask=ask)
    scores = 2.0 * random_rows(9, NUM_EXPERTS)
    scores[4] = 1.0  # all alike
    spec = SPECS[kind]
    twins.assert_close(
        lambda ops, correction, s: ops.route(s, spec, correction), plain_batch(9), scores, atol=1e-6
    )


def test_of_equal_experts_the_first_ones_are_chosen() -> None:
    """By their numbers, whatever else could decide."""
    routing = route(torch.zeros(1, 8), RouterSpec(8, 3), None)
    assert routing[0].tolist() == [0.0, 1.0, 2.0, 0.125, 0.125, 0.125]


def test_experts_outside_the_best_groups_are_never_chosen() -> None:
    """Though one of them has the best score of all: two of its group count, not one."""
    scores = torch.tensor([[9.0, -9.0, 5.0, 5.0, 1.0, 1.0]])
    spec = RouterSpec(6, 2, "score", num_groups=3, num_chosen_groups=1, group_best=2)
    assert route(scores, spec, None)[0, :2].tolist() == [2.0, 3.0]


def test_a_correction_changes_who_is_chosen_and_not_what_they_weigh() -> None:
    """Expert 0 wins by its correction and still counts with its own score."""
    spec = RouterSpec(3, 1, "sigmoid")
    routing = route(torch.tensor([[0.0, 1.0, 2.0]]), spec, torch.tensor([9.0, 0.0, 0.0]))
    assert routing[0].tolist() == [0.0, 0.5]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type", [WeightType.F32, WeightType.BF16, WeightType.Q4_0])
@pytest.mark.parametrize("activation_dtype", ["float32", "bfloat16", "int8"])
def test_experts_of_any_weight_type(isa: str, type: WeightType, activation_dtype: str) -> None:
    """Of one token and of many; one expert mixes types in its first product."""
    size = 64

    def ask(weights: Weights) -> Experts:
        return ask_experts(weights, size, size)

    tensors = expert_tensors(type, type, size, size)
    twins = OpTwins(isa=isa, tensors=tensors, ask=ask, activation_dtype=activation_dtype)
    for num_tokens in (1, 2, 19):
        x, routing = random_rows(num_tokens, size), routing_of(num_tokens)
        # A rounded activation may fall to the other side of a half.
        tolerance = 2e-5 if activation_dtype == "float32" else 4e-3
        twins.assert_close(run_experts, plain_batch(num_tokens), x, routing, atol=tolerance)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("down", [WeightType.F32, WeightType.Q4_0])
@pytest.mark.parametrize("activation", ["gelu", "clamped_swiglu"])
def test_experts_with_biases_and_without_weights(
    isa: str, down: WeightType, activation: GateActivation
) -> None:
    """Widths that no panel divides; far out values are clamped."""
    inner = 40 if down is WeightType.F32 else 32

    def ask(weights: Weights) -> Experts:
        return ask_experts(weights, 96, inner, bias=True, is_weighted=False)

    tensors = expert_tensors(WeightType.BF16, down, 96, inner, bias=True)
    twins = OpTwins(isa=isa, tensors=tensors, ask=ask)
    x, routing = 30.0 * random_rows(7, 96), routing_of(7)
    twins.assert_close(
        lambda ops, w, x, r: ops.experts(x, r, w, activation), plain_batch(7), x, routing, atol=5e-4
    )


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_row_of_experts_keeps_its_bits_among_any_others(num_threads: int) -> None:
    """Alone, in a batch, and in one so large that it is computed in slices."""

    def ask(weights: Weights) -> Experts:
        return ask_experts(weights, 32, 32)

    tensors = expert_tensors(WeightType.Q4_0, WeightType.Q8_0, 32, 32)
    twins = OpTwins(
        num_threads=num_threads, tensors=tensors, ask=ask, block_size=16, activation_dtype="int8"
    )
    num_rows = 600  # times 8 experts: more than are gathered at a time
    x, routing = random_rows(num_rows, 32), routing_of(num_rows, NUM_EXPERTS)
    together = twins.native(run_experts, one_sequence(num_rows), x, routing)
    for rows in (slice(0, 1), slice(511, 513), slice(580, 600)):
        batch = one_sequence(rows.stop - rows.start)
        assert torch.equal(together[rows], twins.native(run_experts, batch, x[rows], routing[rows]))


def test_an_expert_that_does_not_exist_reads_no_foreign_memory() -> None:
    """A router never names one; numbers from elsewhere are taken for the first expert."""

    def ask(weights: Weights) -> Experts:
        return ask_experts(weights, 32, 32)

    twins = OpTwins(tensors=expert_tensors(WeightType.F32, WeightType.F32, 32, 32), ask=ask)
    x = random_rows(3, 32)
    weights = torch.ones(3, 1)
    wild = torch.cat([torch.tensor([[-3.0], [float("nan")], [1e9]]), weights], dim=1)
    first = torch.cat([torch.zeros(3, 1), weights], dim=1)
    results = [twins.native(run_experts, plain_batch(3), x, routing) for routing in (wild, first)]
    assert torch.equal(*results)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_multiply_rows_is_exact(isa: str, size: int) -> None:
    """A factor for each row."""
    twins = OpTwins(isa=isa)
    x, factors = random_rows(5, size), random_rows(5, 1, seed=1)
    exact = {"rtol": 0.0, "atol": 0.0}
    twins.assert_close(
        lambda ops, _, x, f: ops.multiply_rows(x, f), plain_batch(5), x, factors, **exact
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type", [WeightType.F32, WeightType.BF16, WeightType.Q8_0])
def test_heads_are_multiplied_each_with_its_own_matrix(isa: str, type: WeightType) -> None:
    """The first columns of wider heads count; one token and many."""
    num_heads, width, cols, rows = 5, 40, 32, 12

    def ask(weights: Weights) -> tuple[Linear, ...]:
        return tuple(weights.linear([str(head)], [rows], cols) for head in range(num_heads))

    tensors = {
        f"{head}.weight": random_view(str(head), type, rows, cols, seed=head)
        for head in range(num_heads)
    }
    twins = OpTwins(isa=isa, num_threads=3, tensors=tensors, ask=ask)
    for num_tokens in (1, 2, 19):
        x = random_rows(num_tokens, num_heads * width)
        twins.assert_close(
            lambda ops, heads, x: ops.linear_heads(x, heads), plain_batch(num_tokens), x
        )


@pytest.mark.parametrize("isa", ISAS)
def test_heads_are_joined_of_parts_cut_filled_up_and_shared(isa: str) -> None:
    """A part of 5 columns cut to 3, one of 4 filled up to 6, and one that all heads share."""
    twins = OpTwins(isa=isa)
    inputs = [random_rows(7, width, seed=width) for width in (3 * 5, 3 * 4, 2)]

    def run(ops: Any, _: None, a: Any, b: Any, c: Any) -> Any:
        parts = (HeadPart(a, 3), HeadPart(b, 6), HeadPart(c, 2, is_shared=True))
        return ops.join_heads(parts, 3)

    twins.assert_close(run, plain_batch(7), *inputs, rtol=0.0, atol=0.0)
    joined = twins.native(run, plain_batch(7), *inputs)
    first = torch.cat([inputs[0][:, :3], inputs[1][:, :4], torch.zeros(7, 2), inputs[2]], dim=1)
    assert torch.equal(joined[:, :11], first)


@pytest.mark.parametrize("isa", ISAS)
def test_position_factors_grow_with_the_logarithm_of_the_position(isa: str) -> None:
    """In steps of the period; near the beginning they are one."""
    twins = OpTwins(isa=isa)
    batch = plain_batch(40)
    twins.assert_close(lambda ops, _: ops.position_factors(8.0, 0.1), batch, rtol=1e-6)
    assert twins.native(lambda ops, _: ops.position_factors(8192.0, 0.1), batch).eq(1.0).all()
