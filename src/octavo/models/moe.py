"""What a layer does with each token on its own: an MLP, or a mixture of experts.

A router scores the experts of a layer and sends each token through a few of them (Shazeer et al.
2017). Some models have an expert besides that all tokens share. Which layers have experts, and how
their router chooses, is in `MoeFacts`.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts, MoeFacts
from octavo.models.layers import (
    GatedMlp,
    PlainMlp,
    down_projection,
    gate_up_projection,
    up_projection,
)
from octavo.ops.ops import Ops, RouterSpec
from octavo.ops.weights import Experts, Weights

T = TypeVar("T")


class Router:
    """Scores of the experts, and the choice."""

    def __init__(self, facts: ModelFacts, moe: MoeFacts, weights: Weights, name: str) -> None:
        self._matrix = weights.linear(
            [name], [moe.num_experts], facts.hidden_size, bias=moe.router_bias
        )
        self._correction = None
        if moe.has_correction:
            self._correction = weights.vector(f"{name}.correction", moe.num_experts, ending="bias")
        self._spec = RouterSpec(
            num_experts=moe.num_experts,
            num_chosen=moe.num_chosen,
            scoring=moe.scoring,
            normalises=moe.normalises,
            scale=moe.scale,
            num_groups=moe.num_groups,
            num_chosen_groups=moe.num_chosen_groups,
            group_best=moe.group_best,
            tolerance=moe.tolerance,
        )

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size] -> [rows, 2 * num_chosen], see `Ops.route`."""
        return ops.route(ops.linear(x, self._matrix), self._spec, self._correction)


class MixtureOfExperts:
    """Experts of which each token uses a few; their weighted sum."""

    def __init__(self, facts: ModelFacts, moe: MoeFacts, weights: Weights, name: str) -> None:
        self._router = Router(facts, moe, weights, f"{name}.gate")
        names = [f"{name}.experts.{expert}" for expert in range(moe.num_experts)]
        size, bias = moe.intermediate_size, moe.expert_bias
        first = gate_up_projection if facts.gated_mlp else up_projection
        self._experts = Experts(
            tuple(first(facts, weights, n, size, bias=bias) for n in names),
            tuple(down_projection(facts, weights, n, size, bias=bias) for n in names),
            is_weighted=not moe.weighs_input,
            is_gated=facts.gated_mlp,
        )
        self._num_chosen = moe.num_chosen
        self._weighs_input = moe.weighs_input
        self._activation = moe.activation or facts.hidden_act

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        routing = self._router(ops, x)
        if self._weighs_input:
            _, weight = ops.split(routing, (1, 1))
            x = ops.multiply_rows(x, ops.activation(weight, "sigmoid"))
        return ops.experts(x, routing, self._experts, self._activation)


class SharedExpert:
    """An MLP that all tokens use; some models decide for each token how much it counts."""

    def __init__(self, facts: ModelFacts, moe: MoeFacts, weights: Weights, name: str) -> None:
        make = GatedMlp if facts.gated_mlp else PlainMlp
        self._mlp = make(facts, weights, f"{name}.shared_expert", moe.shared_size)
        self._gate = None
        if moe.has_shared_gate:
            self._gate = weights.linear([f"{name}.shared_expert_gate"], [1], facts.hidden_size)

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        shared = self._mlp(ops, x)
        if self._gate is None:
            return shared
        return ops.multiply_rows(shared, ops.activation(ops.linear(x, self._gate), "sigmoid"))


class SharedMixture:
    """Both, added up."""

    def __init__(self, facts: ModelFacts, moe: MoeFacts, weights: Weights, name: str) -> None:
        self._mixture = MixtureOfExperts(facts, moe, weights, name)
        self._shared = SharedExpert(facts, moe, weights, name)

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        return ops.add(self._mixture(ops, x), self._shared(ops, x))


FeedForward = GatedMlp | PlainMlp | MixtureOfExperts | SharedMixture


def feed_forward(facts: ModelFacts, weights: Weights, layer: int) -> FeedForward:
    """What the facts say of a layer."""
    name, moe = f"model.layers.{layer}.mlp", facts.moe
    if moe is not None and layer in moe.layers:
        return (SharedMixture if moe.shared_size else MixtureOfExperts)(facts, moe, weights, name)
    if facts.gated_mlp:
        return GatedMlp(facts, weights, name, facts.intermediate_size)
    return PlainMlp(facts, weights, name, facts.intermediate_size)
