"""Layers that carry a state, in plain PyTorch: the definitions of `short_conv`, `state_space` and
`delta_rule` of `ops.ops.Ops`.

Token by token, over all sequences of a step at once, so that it makes no difference where a prompt
was cut. Owns the arithmetic; `states.py` has the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from octavo.backends.torch.states import TorchStates
from octavo.ops.batch import BatchRow
from octavo.ops.ops import StateSpec

_SMALLEST_SQUARE = 1e-6  # added to the squared length of queries and keys

# State of some sequences, then for each of them its inputs at one token -> new state, result.
Step = Callable[..., tuple[Tensor, Tensor]]


def short_conv(
    x: Tensor, kernel: Tensor, layer: int, states: TorchStates, rows: Sequence[BatchRow]
) -> Tensor:
    """x: [num_tokens, channels]   kernel: [channels, width]."""
    result, width = torch.empty_like(x), kernel.shape[1]
    before = states.read(layer, "conv", rows)
    kept = torch.empty_like(before)
    for place, row in enumerate(rows):
        tokens = slice(row.first_token, row.first_token + row.num_tokens)
        seen = torch.cat([before[place], x[tokens]])
        windows = seen.unfold(0, width, 1)  # [tokens, channels, width]
        result[tokens] = (windows * kernel).sum(dim=2)
        kept[place] = seen[row.num_tokens :]
    states.write(layer, "conv", rows, kept)
    return result


def state_space(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
    log_decay: Tensor,
    spec: StateSpec,
    states: TorchStates,
    rows: Sequence[BatchRow],
) -> Tensor:
    """What comes out of the states: [num_tokens, num_heads, head_dim].

    inputs: x [num_tokens, num_heads, head_dim], time steps [num_tokens, num_heads], what goes in
    and comes out [num_tokens, num_groups, state_size] each.
    """
    x, steps, going_in, coming_out = inputs
    decay = -log_decay.exp().reshape(spec.num_heads, -1)  # the same for all numbers, or of each

    def step(
        state: Tensor, x: Tensor, steps: Tensor, going_in: Tensor, coming_out: Tensor
    ) -> tuple[Tensor, Tensor]:
        kept = (steps[:, :, None] * decay).exp()[:, :, None, :]
        added = (steps[:, :, None] * x)[..., None] * _heads(going_in, spec)[:, :, None, :]
        state = state * kept + added
        return state, (state * _heads(coming_out, spec)[:, :, None, :]).sum(dim=3)

    return _scan(step, (x, steps, going_in, coming_out), x, spec.layer, states, rows)


def delta_rule(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    spec: StateSpec,
    states: TorchStates,
    rows: Sequence[BatchRow],
) -> Tensor:
    """What comes out of the states: [num_tokens, num_heads, head_dim].

    inputs: q and k [num_tokens, num_groups, state_size], v [num_tokens, num_heads, head_dim],
    rates and logarithms of the decay [num_tokens, num_heads] each.
    """
    q, k, v, rates, decays = inputs
    q, k = _unit(q) * spec.state_size**-0.5, _unit(k)

    def step(
        state: Tensor, q: Tensor, k: Tensor, v: Tensor, rates: Tensor, decays: Tensor
    ) -> tuple[Tensor, Tensor]:
        key = _heads(k, spec)[:, :, None, :]
        state = state * decays.exp()[:, :, None, None]
        missing = (v - (state * key).sum(dim=3)) * rates[:, :, None]
        state = state + missing[..., None] * key
        return state, (state * _heads(q, spec)[:, :, None, :]).sum(dim=3)

    return _scan(step, (q, k, v, rates, decays), v, spec.layer, states, rows)


def _scan(
    step: Step,
    inputs: tuple[Tensor, ...],
    like: Tensor,
    layer: int,
    states: TorchStates,
    rows: Sequence[BatchRow],
) -> Tensor:
    """Let the state of every row take in its tokens, one after the other."""
    result, state = torch.empty_like(like), states.read(layer, "state", rows)
    for place in range(max((row.num_tokens for row in rows), default=0)):
        live = [idx for idx, row in enumerate(rows) if row.num_tokens > place]
        tokens = [rows[idx].first_token + place for idx in live]
        given = [one[tokens] for one in inputs]
        if len(live) == len(rows):
            state, result[tokens] = step(state, *given)
        else:
            state[live], result[tokens] = step(state[live], *given)
    states.write(layer, "state", rows, state)
    return result


def _heads(groups: Tensor, spec: StateSpec) -> Tensor:
    """What each head has of its group: [rows, num_groups, size] -> [rows, num_heads, size]."""
    return groups.repeat_interleave(spec.num_heads // spec.num_groups, dim=1)


def _unit(x: Tensor) -> Tensor:
    """One long along the last dimension."""
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + _SMALLEST_SQUARE)


def time_steps(steps: Tensor, bias: Tensor | None) -> Tensor:
    """softplus(steps + bias)."""
    return functional.softplus(steps if bias is None else steps + bias)
