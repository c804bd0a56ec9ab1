"""Ops: the arithmetic of a model, as a model file sees it.

`T` is whatever a back end hands around: a buffer of a program while it is recorded, a tensor while
it runs. All activations are float32, `[num_tokens, width]`, one row per token of the step in plan
order; after `wanted_rows` one row per position whose logits are wanted. Which token sits at which
position of which sequence, and where its KV blocks lie, is the back end's knowledge: a model never
sees it.

Batch invariance: every op computes a row from that row (and, for attention and states, from what
is kept of that sequence) alone, in an order of operations that does not depend on how many rows
there are, on where a prompt was cut into chunks, or on the number of threads. The native back end
keeps this bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from octavo.config.model_facts import Scoring
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Experts, Linear, StateSpaceWeights, Vector

T = TypeVar("T")
# relu2: relu(x)^2; hardtanh: the nearest number from -1 to 1
Activation = Literal["silu", "gelu_tanh", "gelu", "relu", "relu2", "tanh", "sigmoid", "hardtanh"]
# Besides `act(gate) * up`: clamped_swiglu, see `Ops.gated`.
GateActivation = Activation | Literal["clamped_swiglu"]


class AttentionSpec(msgspec.Struct, frozen=True):
    """Constants of one attention layer."""

    layer: int  # index of its KV storage; layers that are not causal may share one
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float  # factor of q.k before softmax
    # Keys seen, the current token included; None: all. Not causal: so many to either side.
    window: int | None = None
    soft_cap: float | None = None  # s -> cap * tanh(s / cap), after scale, before the mask
    # Whether a token sees only those before it. Else it sees its whole sequence, which one step
    # computes from beginning to end; nothing of the KV storage is read after the op.
    is_causal: bool = True
    # Sequences are cut into chunks of the window's size, and tokens see those of their own chunk.
    is_chunked: bool = False
    # For each head what every position that a key lies behind the query takes from its score, after
    # the soft cap (Press et al. 2022); empty: nothing.
    slopes: tuple[float, ...] = ()


class StateSpec(msgspec.Struct, frozen=True):
    """Constants of one layer that carries a state from token to token.

    Head h belongs to group h // (num_heads / num_groups). The state of a sequence before its first
    token is zero.
    """

    layer: int  # index of its state
    num_heads: int
    head_dim: int  # columns of a head
    state_size: int  # numbers that a head keeps for each column
    num_groups: int
    step_limits: tuple[float, float]  # time steps are kept within


class RouterSpec(msgspec.Struct, frozen=True):
    """How scores become a choice of experts, and weights of those chosen.

    softmax: chosen by, and weighted with, the softmax over all experts (Shazeer et al. 2017).
    softmax_chosen: chosen by the score, weighted with the softmax over the chosen.
    sigmoid: chosen by, and weighted with, the sigmoid of the score (DeepSeek-AI 2024).
    score: chosen by, and weighted with, the score.
    sparse_mixer: one after the other, the best of those left; its weight is its share of the
    softmax over those left that are within `tolerance` of it (Liu et al. 2023).
    """

    num_experts: int
    num_chosen: int  # experts of a token
    scoring: Scoring = "softmax"
    normalises: bool = False  # weights are divided by their sum
    scale: float = 1.0  # and multiplied with this
    # Neighbouring experts form groups, of which only the best are looked at (DeepSeek-AI 2024).
    num_groups: int = 1
    num_chosen_groups: int = 1
    group_best: int = 1  # what counts of a group: the sum of so many of its best
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class HeadPart(Generic[T]):
    """What one buffer gives to each head: its first columns, then zeros where it has fewer."""

    x: T  # [rows, heads * any width]
    width: int  # of the part of each head
    is_shared: bool = False  # x has one head, which all of the result share


class Ops(Protocol[T]):
    """One forward pass over the tokens of a step."""

    def embed(self, table: Embedding, *, scale: float = 1.0) -> T:
        """Rows of `table` for the step's token ids, times `scale`: [num_tokens, hidden_size]."""

    def embed_positions(self, table: Embedding) -> T:
        """Rows of `table` for the positions of the step's tokens: [num_tokens, hidden_size].

        `table` has a row for every position that can come.
        """

    def embed_segments(self, table: Embedding) -> T:
        """Rows of `table` for the segments of the step's tokens: [num_tokens, hidden_size].

        A token of the second of two texts has segment 1, any other 0.
        """

    def linear(self, x: T, weight: Linear) -> T:
        """`x` times the transpose of `weight`, plus its bias: [rows, out_features].

        float32 accumulation; quantised weights are dequantised in the kernel.
        """

    def linear_heads(self, x: T, heads: tuple[Linear, ...]) -> T:
        """Each head times a matrix of its own: [rows, num_heads * out_features].

        x: [rows, num_heads * width], of which the first `in_features` columns of each head count.
        Activations are float32 whatever the type of the weights.
        """

    def join_heads(self, parts: tuple[HeadPart[T], ...], num_heads: int) -> T:
        """Heads put together, part behind part: [rows, num_heads * sum of widths]."""

    def split(self, x: T, widths: tuple[int, ...]) -> tuple[T, ...]:
        """Columns of `x` in parts, without a copy: `sum(widths)` is the width of `x`."""

    def rms_norm(self, x: T, weight: Vector, eps: float) -> T:
        """`x / sqrt(mean(x^2) + eps) * weight` along the row (Zhang and Sennrich 2019)."""

    def layer_norm(self, x: T, weight: Vector | None, bias: Vector | None, eps: float) -> T:
        """`(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias` along the row (Ba et al. 2016).

        The variance is the mean of `(x - mean(x))^2`. Without `weight` it is 1, without `bias` 0.
        """

    def head_norm(self, x: T, weight: Vector, eps: float) -> T:
        """`rms_norm` of each group of `weight.size` columns on its own: q/k norm."""

    def group_norm(self, x: T, weight: Vector, num_groups: int, eps: float) -> T:
        """`rms_norm` of each of so many equal parts of the row; `weight` is as long as the row."""

    def position_factors(self, period: float, weight: float) -> T:
        """`log(1 + floor((position + 1) / period)) * weight + 1` for every token: [num_tokens, 1].

        Queries times it keep their attention sharp over long contexts (Nakanishi 2025).
        """

    def rotary(self, x: T, table: RopeTable, head_dim: int) -> T:
        """Rotate the first `table.rotary_dim` columns of each head by the row's position.

        Halves style: column i pairs with i + rotary_dim / 2 (Su et al. 2021, as GPT-NeoX lays it
        out).
        """

    def attention(self, q: T, k: T, v: T, spec: AttentionSpec, sinks: Vector | None = None) -> T:
        """Store `k` and `v` in the cache, then attend: [rows, num_heads * head_dim].

        q: [rows, num_heads * head_dim]   k, v: [rows, num_kv_heads * head_dim]
        Query head h reads KV head h // (num_heads / num_kv_heads). Softmax in float32.
        Keys and values are rounded to the cache's dtype before anyone reads them.
        sinks: [num_heads] scores that take part in the softmax of every row of a head, beside those
        of the keys, and bring no value with them (OpenAI 2025).
        """

    def short_conv(self, x: T, kernel: Linear, layer: int) -> T:
        """Each column convolved with its own row of `kernel`, plus its bias: [rows, channels].

        kernel: [channels, width]; its last column meets the token itself, those before it the
        tokens before it, of which `width - 1` are kept in the state `layer`.
        """

    def state_space(
        self, x: T, steps: T, inputs: T, outputs: T, weights: StateSpaceWeights, spec: StateSpec
    ) -> T:
        """A selective state space (Gu and Dao 2023): [rows, num_heads * head_dim].

        x: as the result   steps: [rows, num_heads]   inputs, outputs: [rows, groups * state_size]
        Token by token, for each head with its group's inputs b and outputs c, and the time step
        t = softplus(steps + weights.step_bias) within the limits:
        state = exp(-exp(weights.log_decay) t) state + t x b, result = state c + weights.skip x.
        """

    def delta_rule(
        self, q: T, k: T, v: T, gates: tuple[T, T], weights: StateSpaceWeights, spec: StateSpec
    ) -> T:
        """The gated delta rule (Yang et al. 2024): [rows, num_heads * head_dim].

        q, k: [rows, groups * state_size]   v: as the result   gates: rates and steps of the decay,
        each [rows, num_heads].
        Token by token, for each head with the query q and key k of its group, both made one long,
        and with t = softplus(steps + weights.step_bias):
        state = exp(-exp(weights.log_decay) t) state, state += sigmoid(rate) (v - state k) k,
        result = state q / sqrt(state_size).
        """

    def gated(self, x: T, activation: GateActivation) -> T:
        """`act(gate) * up` of `x` = [gate | up]: [rows, width / 2].

        clamped_swiglu: `gate * sigmoid(1.702 gate) * (up + 1)`, with gate at most 7 and up within
        7 of zero (OpenAI 2025).
        """

    def activation(self, x: T, activation: Activation) -> T:
        """`act(x)` for each element."""

    def add(self, a: T, b: T) -> T:
        """Element-wise sum."""

    def scale(self, x: T, factor: float) -> T:
        """`x * factor`."""

    def multiply_rows(self, x: T, factors: T) -> T:
        """Each row of `x` times the one number of its row of `factors`, which is [rows, 1]."""

    def route(self, scores: T, spec: RouterSpec, correction: Vector | None = None) -> T:
        """[rows, 2 * num_chosen]: numbers of the experts chosen, best first, then their weights.

        scores: [rows, num_experts]. `correction` is added to what experts are chosen by and counts
        in no weight. Of equal ones the expert with the lower number wins.
        """

    def experts(self, x: T, routing: T, experts: Experts, activation: GateActivation) -> T:
        """What the experts of each row make of it, weighted and added up: [rows, hidden_size].

        An expert gives `down(gated(gate_up(x)))`, a plain one `down(act(up(x)))`. Added up in the
        order of `routing`, that of `route`.
        """

    def wanted_rows(self, x: T) -> T:
        """The rows whose logits the step needs: [num_wanted, width]."""

    def mean_rows(self, x: T) -> T:
        """For each wanted row the mean of the tokens that it stands for: [num_wanted, width].

        Added up in order of tokens. The mean of one token is that token.
        """

    def logits(self, x: T, head: Linear, *, scale: float = 1.0, soft_cap: float | None = None) -> T:
        """`head` product times `scale`, then `cap * tanh(l / cap)`: [num_wanted, vocab_size]."""
