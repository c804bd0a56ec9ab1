"""Gated delta net (Yang et al. 2024), as Qwen3-Next has it: linear attention that corrects its
memory, with a decay and a rate for each head and token.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts, StateFacts
from octavo.models.layers import gated_by
from octavo.models.state_space import conv_kernel, state_spec
from octavo.ops.ops import Ops
from octavo.ops.weights import StateSpaceWeights, Weights

T = TypeVar("T")


class DeltaNet:
    """A short convolution of queries, keys and values, the delta rule, a norm of each head before
    its gate.
    """

    def __init__(self, facts: ModelFacts, state: StateFacts, weights: Weights, layer: int) -> None:
        name, inner = f"model.layers.{layer}.mixer", state.inner_size
        shared, heads = state.num_groups * state.state_size, state.num_heads
        parts = {
            "q_proj": shared,
            "k_proj": shared,
            "v_proj": inner,
            "z_proj": inner,
            "b_proj": heads,
            "a_proj": heads,
        }
        self._in = weights.linear(
            [f"{name}.{part}" for part in parts], list(parts.values()), facts.hidden_size
        )
        self._widths = (2 * shared + inner, inner, heads, heads)
        self._qkv_widths = (shared, shared, inner)
        self._kernel = conv_kernel(state, weights, name)
        self._weights = StateSpaceWeights(
            log_decay=weights.vector(f"{name}.log_decay", heads),
            step_bias=weights.vector(f"{name}.step", heads, ending="bias"),
        )
        self._norm = weights.vector(f"{name}.norm", state.head_dim)
        self._out = weights.linear([f"{name}.out_proj"], [facts.hidden_size], inner)
        self._spec, self._eps = state_spec(state, layer), facts.norm_eps

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        qkv, gate, rates, steps = ops.split(ops.linear(x, self._in), self._widths)
        qkv = ops.activation(ops.short_conv(qkv, self._kernel, self._spec.layer), "silu")
        q, k, v = ops.split(qkv, self._qkv_widths)
        y = ops.delta_rule(q, k, v, (rates, steps), self._weights, self._spec)
        y = ops.head_norm(y, self._norm, self._eps)
        return ops.linear(gated_by(ops, gate, y, self._widths[1], "silu"), self._out)
