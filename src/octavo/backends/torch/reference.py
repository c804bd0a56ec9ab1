"""TorchOps: the op set in plain PyTorch, run at once. The definition of correct.

Every method is the sentence of its docstring in `ops.ops`, written as directly as PyTorch allows,
in float32. Nothing is fused, cached or reordered. Runs on any torch device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from octavo.backends.torch import recurrence
from octavo.backends.torch.kv_cache import TorchKvCache
from octavo.backends.torch.kv_codec import rotate
from octavo.backends.torch.router import route
from octavo.backends.torch.states import TorchStates
from octavo.backends.torch.weights import LinearHandle, Stack
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.ops import (
    Activation,
    AttentionSpec,
    GateActivation,
    HeadPart,
    RouterSpec,
    StateSpec,
)
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Experts, Linear, StateSpaceWeights, Vector


def round_to_int8(x: Tensor) -> Tensor:
    """What int8 activations stand for: q * scale, where every 32 columns share a scale.

    scale = max |x| / 127, q = x / scale rounded to the nearest even integer; a group whose largest
    number is below 2^-100 counts as zero.
    """
    groups = x.reshape(len(x), -1, 32)
    largest = groups.abs().amax(dim=2, keepdim=True)
    inverse = torch.where(largest > 2.0**-100, 127.0 / largest, 0.0)
    return ((groups * inverse).round() * (largest / 127.0)).reshape(x.shape)


def round_to_bfloat16(x: Tensor) -> Tensor:
    """The nearest bfloat16 of each number, as float32."""
    return x.bfloat16().float()


ROUNDINGS = {"int8": round_to_int8, "bfloat16": round_to_bfloat16}


def _is_outside(window: int, spec: AttentionSpec, queries: Tensor, keys: Tensor) -> Tensor:
    """Which keys lie outside the window, or the chunk, of which query."""
    if spec.is_chunked:
        return queries // window != keys // window
    return (keys - queries).abs() >= window


class TorchOps:
    """`Ops[Tensor]` over the tokens of one step."""

    def __init__(
        self,
        tensors: Mapping[Stack, Tensor],
        cache: TorchKvCache,
        batch: StepBatch,
        device: torch.device,
        group_rows: Sequence[tuple[BatchRow, ...]] = (),
    ) -> None:
        """`group_rows`: the rows of the batch with the block tables of each KV group.

        Without them the batch's own rows hold for all layers.
        """
        self._tensors = tensors
        self._cache = cache
        self._group_rows = group_rows or (batch.rows,)
        self.token_ids = torch.tensor(batch.token_ids, device=device)
        self.positions = torch.tensor(batch.positions, device=device)
        segments = batch.segments or (0,) * len(batch.token_ids)
        self._segments = torch.tensor(segments, dtype=torch.long, device=device)
        self.wanted = torch.tensor(batch.wanted, dtype=torch.long, device=device)
        self._wanted_first = batch.wanted_first or batch.wanted

    def embed(self, table: Embedding, *, scale: float = 1.0) -> Tensor:
        """See `ops.ops.Ops`."""
        return self._tensor(table.handle)[self.token_ids] * scale

    def embed_positions(self, table: Embedding) -> Tensor:
        """See `ops.ops.Ops`."""
        return self._tensor(table.handle)[self.positions]

    def embed_segments(self, table: Embedding) -> Tensor:
        """See `ops.ops.Ops`."""
        return self._tensor(table.handle)[self._segments]

    def linear(self, x: Tensor, weight: Linear) -> Tensor:
        """See `ops.ops.Ops`."""
        assert isinstance(weight.handle, LinearHandle)
        product = self._product(x, weight, weight.handle)
        if weight.handle.bias is None:
            return product
        return product + self._tensor(weight.handle.bias)

    def _product(self, x: Tensor, weight: Linear, handle: LinearHandle) -> Tensor:
        matrix = self._tensor(handle.matrix)
        if weight.order is not None:
            x = x[:, torch.tensor(weight.order, device=x.device)]
        if not handle.rounded_parts:
            return x @ matrix.T
        rounded = ROUNDINGS[handle.activation_dtype](x)
        parts = torch.split(matrix, list(weight.parts))
        return torch.cat(
            [
                (rounded if is_rounded else x) @ part.T
                for part, is_rounded in zip(parts, handle.rounded_parts, strict=True)
            ],
            dim=1,
        )

    def linear_heads(self, x: Tensor, heads: tuple[Linear, ...]) -> Tensor:
        """See `ops.ops.Ops`."""
        columns = x.reshape(len(x), len(heads), -1).unbind(dim=1)
        products = []
        for own, weight in zip(columns, heads, strict=True):
            assert isinstance(weight.handle, LinearHandle)
            products.append(own[:, : weight.in_features] @ self._tensor(weight.handle.matrix).T)
        return torch.cat(products, dim=1)

    def join_heads(self, parts: tuple[HeadPart[Tensor], ...], num_heads: int) -> Tensor:
        """See `ops.ops.Ops`."""
        columns = []
        for part in parts:
            heads = part.x.reshape(len(part.x), 1 if part.is_shared else num_heads, -1)
            padding = max(0, part.width - heads.shape[2])
            own = functional.pad(heads[..., : part.width], (0, padding))
            columns.append(own.expand(-1, num_heads, -1))
        return torch.cat(columns, dim=2).flatten(1)

    def split(self, x: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
        """See `ops.ops.Ops`."""
        return torch.split(x, list(widths), dim=1)

    def rms_norm(self, x: Tensor, weight: Vector, eps: float) -> Tensor:
        """See `ops.ops.Ops`."""
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + eps) * self._tensor(weight.handle)

    def layer_norm(
        self, x: Tensor, weight: Vector | None, bias: Vector | None, eps: float
    ) -> Tensor:
        """See `ops.ops.Ops`."""
        centred = x - x.mean(dim=-1, keepdim=True)
        normalised = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
        if weight is not None:
            normalised = normalised * self._tensor(weight.handle)
        return normalised if bias is None else normalised + self._tensor(bias.handle)

    def head_norm(self, x: Tensor, weight: Vector, eps: float) -> Tensor:
        """See `ops.ops.Ops`."""
        heads = x.reshape(len(x), -1, weight.size)
        return self.rms_norm(heads, weight, eps).flatten(1)

    def group_norm(self, x: Tensor, weight: Vector, num_groups: int, eps: float) -> Tensor:
        """See `ops.ops.Ops`."""
        parts = x.reshape(len(x), num_groups, -1)
        mean_square = parts.square().mean(dim=-1, keepdim=True)
        normalised = (parts * torch.rsqrt(mean_square + eps)).flatten(1)
        return normalised * self._tensor(weight.handle)

    def position_factors(self, period: float, weight: float) -> Tensor:
        """See `ops.ops.Ops`."""
        periods = torch.floor((self.positions.float() + 1.0) / period)
        return (torch.log1p(periods) * weight + 1.0)[:, None]

    def rotary(self, x: Tensor, table: RopeTable, head_dim: int) -> Tensor:
        """See `ops.ops.Ops`."""
        inv_freq = torch.tensor(table.inv_freq, dtype=torch.float32, device=x.device)
        angles = self.positions.float()[:, None] * inv_freq
        cos = (angles.cos() * table.attention_factor)[:, None]  # [rows, 1, rotary_dim / 2]
        sin = (angles.sin() * table.attention_factor)[:, None]

        heads = x.reshape(len(x), -1, head_dim)  # [rows, heads, head_dim]
        half = table.rotary_dim // 2
        parts = [half, half, head_dim - table.rotary_dim]
        first, second, rest = torch.split(heads, parts, dim=2)
        rotated = [first * cos - second * sin, second * cos + first * sin, rest]
        return torch.cat(rotated, dim=2).flatten(1)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, sinks: Vector | None = None
    ) -> Tensor:
        """See `ops.ops.Ops`.

        All rows store before any row reads: two sequences with the same beginning may share the
        blocks that one of them fills in this very step.
        """
        q, k, v = (x.reshape(len(x), -1, spec.head_dim) for x in (q, k, v))
        if self._cache.type.is_rotated:
            q, k, v = rotate(q), rotate(k), rotate(v)
        rows = self._group_rows[self._cache.group_of(spec.layer)]
        for row in rows:
            tokens = slice(row.first_token, row.first_token + row.num_tokens)
            self._cache.write(spec.layer, row, k[tokens], v[tokens])
        outputs = torch.empty_like(q)
        for row in rows:
            tokens = slice(row.first_token, row.first_token + row.num_tokens)
            outputs[tokens] = self._attend(q[tokens], row, spec, sinks)
        if self._cache.type.is_rotated:
            outputs = rotate(outputs)
        return outputs.flatten(1)

    def _attend(
        self, q: Tensor, row: BatchRow, spec: AttentionSpec, sinks: Vector | None
    ) -> Tensor:
        """Attention of one sequence; q and result: [num_tokens, num_heads, head_dim]."""
        end = row.context_len + row.num_tokens
        looks_back = spec.is_causal and spec.window is not None
        first = max(0, row.context_len + 1 - (spec.window or 0)) if looks_back else 0
        keys, values = self._cache.read(spec.layer, row, first, end)
        # [num_tokens, num_kv_heads, heads of the group, head_dim]: head h reads KV head h // group
        grouped = q.reshape(len(q), spec.num_kv_heads, -1, spec.head_dim)
        scores = torch.einsum("qhgd,khd->hgqk", grouped, keys) * spec.scale
        if spec.soft_cap is not None:
            scores = spec.soft_cap * torch.tanh(scores / spec.soft_cap)
        query_places = torch.arange(row.context_len, end, device=q.device)[:, None]
        key_places = torch.arange(first, end, device=q.device)[None, :]
        ahead = key_places - query_places
        if spec.slopes:
            slopes = torch.tensor(spec.slopes, device=q.device).reshape(spec.num_kv_heads, -1, 1, 1)
            scores = scores + slopes * ahead
        hidden = ahead > 0 if spec.is_causal else torch.zeros_like(ahead, dtype=torch.bool)
        if spec.window is not None:
            hidden |= _is_outside(spec.window, spec, query_places, key_places)
        scores = scores.masked_fill(hidden, float("-inf"))
        if sinks is not None:
            heads = self._tensor(sinks.handle).reshape(spec.num_kv_heads, -1, 1, 1)
            scores = torch.cat([scores, heads.expand(*scores.shape[:3], 1)], dim=-1)
        weights = scores.softmax(dim=-1)[..., : keys.shape[0]]
        return torch.einsum("hgqk,khd->qhgd", weights, values).flatten(1, 2)

    def short_conv(self, x: Tensor, kernel: Linear, layer: int) -> Tensor:
        """See `ops.ops.Ops`."""
        assert isinstance(kernel.handle, LinearHandle)
        matrix = self._tensor(kernel.handle.matrix)
        result = recurrence.short_conv(x, matrix, layer, *self._states())
        bias = kernel.handle.bias
        return result if bias is None else result + self._tensor(bias)

    def state_space(
        self,
        x: Tensor,
        steps: Tensor,
        inputs: Tensor,
        outputs: Tensor,
        weights: StateSpaceWeights,
        spec: StateSpec,
    ) -> Tensor:
        """See `ops.ops.Ops`."""
        columns = x.reshape(len(x), spec.num_heads, spec.head_dim)
        going_in, coming_out = (
            one.reshape(len(x), spec.num_groups, spec.state_size) for one in (inputs, outputs)
        )
        times = self._time_steps(steps, weights).clamp(*spec.step_limits)
        decay = self._tensor(weights.log_decay.handle)
        given = columns, times, going_in, coming_out
        result = recurrence.state_space(given, decay, spec, *self._states())
        if weights.skip is not None:
            result = result + columns * self._tensor(weights.skip.handle)[:, None]
        return result.flatten(1)

    def delta_rule(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: tuple[Tensor, Tensor],
        weights: StateSpaceWeights,
        spec: StateSpec,
    ) -> Tensor:
        """See `ops.ops.Ops`."""
        rates, steps = gates
        queries, keys = (one.reshape(len(v), spec.num_groups, spec.state_size) for one in (q, k))
        values = v.reshape(len(v), spec.num_heads, spec.head_dim)
        decay = self._tensor(weights.log_decay.handle).exp()
        decays = -decay * self._time_steps(steps, weights)
        given = queries, keys, values, rates.sigmoid(), decays
        return recurrence.delta_rule(given, spec, *self._states()).flatten(1)

    def _time_steps(self, steps: Tensor, weights: StateSpaceWeights) -> Tensor:
        bias = weights.step_bias
        return recurrence.time_steps(steps, None if bias is None else self._tensor(bias.handle))

    def _states(self) -> tuple[TorchStates, tuple[BatchRow, ...]]:
        """The memory of states, and the rows with their tables in it."""
        states = self._cache.states
        assert states is not None, "a model without states has none to compute with"
        return states, self._group_rows[states.group]

    def gated(self, x: Tensor, activation: GateActivation) -> Tensor:
        """See `ops.ops.Ops`."""
        gate, up = x.chunk(2, dim=1)
        if activation == "clamped_swiglu":
            gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
            return gate * torch.sigmoid(1.702 * gate) * (up + 1.0)
        return self.activation(gate, activation) * up

    def activation(self, x: Tensor, activation: Activation) -> Tensor:
        """See `ops.ops.Ops`."""
        match activation:
            case "silu":
                return functional.silu(x)
            case "gelu_tanh":
                return functional.gelu(x, approximate="tanh")
            case "gelu":
                return functional.gelu(x)
            case "relu":
                return functional.relu(x)
            case "relu2":
                return functional.relu(x).square()
            case "hardtanh":
                return functional.hardtanh(x)
            case "tanh":
                return torch.tanh(x)
            case "sigmoid":
                return torch.sigmoid(x)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """See `ops.ops.Ops`."""
        return a + b

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """See `ops.ops.Ops`."""
        return x * factor

    def multiply_rows(self, x: Tensor, factors: Tensor) -> Tensor:
        """See `ops.ops.Ops`."""
        return x * factors

    def route(self, scores: Tensor, spec: RouterSpec, correction: Vector | None = None) -> Tensor:
        """See `ops.ops.Ops`."""
        return route(scores, spec, None if correction is None else self._tensor(correction.handle))

    def experts(
        self, x: Tensor, routing: Tensor, experts: Experts, activation: GateActivation
    ) -> Tensor:
        """See `ops.ops.Ops`."""
        chosen, weights = routing.chunk(2, dim=1)
        results = x.new_zeros(*chosen.shape, x.shape[1])  # [rows, num_chosen, hidden_size]
        for expert, (gate_up, down) in enumerate(zip(experts.gate_up, experts.down, strict=True)):
            row, slot = torch.where(chosen == expert)
            if len(row) == 0:
                continue
            inner = self.linear(x[row], gate_up)
            if experts.is_gated:
                inner = self.gated(inner, activation)
            else:
                assert activation != "clamped_swiglu", "which is a gate"
                inner = self.activation(inner, activation)
            results[row, slot] = self.linear(inner, down)
        return ((weights[:, :, None] if experts.is_weighted else 1.0) * results).sum(dim=1)

    def wanted_rows(self, x: Tensor) -> Tensor:
        """See `ops.ops.Ops`."""
        return x[self.wanted]

    def mean_rows(self, x: Tensor) -> Tensor:
        """See `ops.ops.Ops`."""
        spans = zip(self._wanted_first, self.wanted.tolist(), strict=True)
        means = [x[first : last + 1].mean(dim=0) for first, last in spans]
        return torch.stack(means) if means else x[:0]

    def logits(
        self, x: Tensor, head: Linear, *, scale: float = 1.0, soft_cap: float | None = None
    ) -> Tensor:
        """See `ops.ops.Ops`."""
        scores = self.linear(x, head) * scale
        if soft_cap is None:
            return scores
        return soft_cap * torch.tanh(scores / soft_cap)

    def _tensor(self, handle: object) -> Tensor:
        assert isinstance(handle, Stack)
        return self._tensors[handle]
