"""State-space mixers: Mamba (Gu and Dao 2023) and Mamba-2 (Dao and Gu 2024).

A short convolution, then a recurrence whose decay, inputs and outputs depend on the token.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts, StateFacts
from octavo.models.layers import gated_by
from octavo.ops.ops import HeadPart, Ops, StateSpec
from octavo.ops.weights import Linear, StateSpaceWeights, Weights

T = TypeVar("T")


class Mamba:
    """Every column has a decay for each number of its state. Norms as Jamba has them (Lieber et al.
    2024).
    """

    def __init__(self, facts: ModelFacts, state: StateFacts, weights: Weights, layer: int) -> None:
        name, inner, size = f"model.layers.{layer}.mixer", state.inner_size, state.state_size
        bias, rank = state.projection_bias, state.step_rank
        self._in = weights.linear([f"{name}.in_proj"], [2 * inner], facts.hidden_size, bias=bias)
        self._kernel = conv_kernel(state, weights, name)
        self._selection = weights.linear([f"{name}.x_proj"], [rank + 2 * size], inner)
        parts = {"step_norm": rank, "input_norm": size, "output_norm": size}
        self._norms = [weights.vector(f"{name}.{part}", n) for part, n in parts.items()]
        self._steps = weights.linear([f"{name}.step_proj"], [inner], rank, bias=True)
        self._weights = StateSpaceWeights(
            log_decay=weights.vector(f"{name}.log_decay", inner * size),
            step_bias=None,  # the projection has it
            skip=weights.vector(f"{name}.skip", inner),
        )
        self._out = weights.linear([f"{name}.out_proj"], [facts.hidden_size], inner, bias=bias)
        self._spec = state_spec(state, layer)
        self._widths, self._eps = tuple(parts.values()), facts.norm_eps

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        inner = self._spec.num_heads
        x, gate = ops.split(ops.linear(x, self._in), (inner, inner))
        x = ops.activation(ops.short_conv(x, self._kernel, self._spec.layer), "silu")
        selected = ops.split(ops.linear(x, self._selection), self._widths)
        steps, inputs, outputs = (
            ops.rms_norm(part, norm, self._eps)
            for part, norm in zip(selected, self._norms, strict=True)
        )
        steps = ops.linear(steps, self._steps)
        mixed = ops.state_space(x, steps, inputs, outputs, self._weights, self._spec)
        return ops.linear(gated_by(ops, gate, mixed, inner, "silu"), self._out)


class Mamba2:
    """Heads of many columns, each with one decay; what goes in and comes out passes the
    convolution too.
    """

    def __init__(self, facts: ModelFacts, state: StateFacts, weights: Weights, layer: int) -> None:
        name, inner, bias = f"model.layers.{layer}.mixer", state.inner_size, state.projection_bias
        self._widths = (inner, state.num_channels, state.num_heads)
        shared = state.num_groups * state.state_size
        self._mixed_widths = (inner, shared, shared)
        self._in = weights.linear(
            [f"{name}.in_proj"], [sum(self._widths)], facts.hidden_size, bias=bias
        )
        self._kernel = conv_kernel(state, weights, name)
        self._weights = StateSpaceWeights(
            log_decay=weights.vector(f"{name}.log_decay", state.num_heads),
            step_bias=weights.vector(f"{name}.step", state.num_heads, ending="bias"),
            skip=weights.vector(f"{name}.skip", state.num_heads),
        )
        self._norm = weights.vector(f"{name}.norm", inner) if state.has_norm else None
        self._out = weights.linear([f"{name}.out_proj"], [facts.hidden_size], inner, bias=bias)
        self._spec, self._eps = state_spec(state, layer), facts.norm_eps
        self._norms_first, self._scales = state.norm_before_gate, state.scales

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        gate, mixed, steps = self._scaled(ops, ops.linear(x, self._in))
        mixed = ops.activation(ops.short_conv(mixed, self._kernel, self._spec.layer), "silu")
        x, inputs, outputs = ops.split(mixed, self._mixed_widths)
        y = ops.state_space(x, steps, inputs, outputs, self._weights, self._spec)
        if self._norms_first:
            y = gated_by(ops, gate, self._normed(ops, y), self._widths[0], "silu")
        else:
            y = self._normed(ops, gated_by(ops, gate, y, self._widths[0], "silu"))
        return ops.linear(y, self._out)

    def _scaled(self, ops: Ops[T], projected: T) -> tuple[T, ...]:
        """The gate, what passes the convolution, time steps."""
        if self._scales is None:
            return ops.split(projected, self._widths)
        widths = (self._widths[0], *self._mixed_widths, self._widths[2])
        parts = [
            ops.scale(part, scale)
            for part, scale in zip(ops.split(projected, widths), self._scales, strict=True)
        ]
        mixed = zip(parts[1:4], self._mixed_widths, strict=True)
        return parts[0], ops.join_heads(tuple(HeadPart(*one) for one in mixed), 1), parts[4]

    def _normed(self, ops: Ops[T], y: T) -> T:
        if self._norm is None:
            return y
        return ops.group_norm(y, self._norm, self._spec.num_groups, self._eps)


def conv_kernel(state: StateFacts, weights: Weights, name: str) -> Linear:
    """Of the short convolution."""
    return weights.linear(
        [f"{name}.conv"], [state.num_channels], state.conv_width, bias=state.conv_bias
    )


def state_spec(state: StateFacts, layer: int) -> StateSpec:
    """The constants of a layer that carries a state."""
    return StateSpec(
        layer=state.layers.index(layer),
        num_heads=state.num_heads,
        head_dim=state.head_dim,
        state_size=state.state_size,
        num_groups=state.num_groups,
        step_limits=state.step_limits,
    )
