"""Ops: the arithmetic of a model, as a model file sees it.

`T` is whatever a back end hands around: a buffer of a program while it is recorded, a tensor while
it runs. All activations are float32, `[num_tokens, width]`, one row per token of the step in plan
order; after `wanted_rows` one row per position whose logits are wanted. Which token sits at which
position of which sequence, and where its KV blocks lie, is the back end's knowledge: a model never
sees it.

Batch invariance: every op computes a row from that row (and, for attention, that sequence's cache)
alone, in an order of operations that does not depend on how many rows there are, on where a prompt
was cut into chunks, or on the number of threads. The native back end keeps this bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Linear, Vector

T = TypeVar("T")
Activation = Literal["silu", "gelu_tanh", "gelu", "relu", "relu2", "tanh"]  # relu2: relu(x)^2


@dataclass(frozen=True, slots=True)
class AttentionSpec:
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

    def rotary(self, x: T, table: RopeTable, head_dim: int) -> T:
        """Rotate the first `table.rotary_dim` columns of each head by the row's position.

        Halves style: column i pairs with i + rotary_dim / 2 (Su et al. 2021, as GPT-NeoX lays it
        out).
        """

    def attention(self, q: T, k: T, v: T, spec: AttentionSpec) -> T:
        """Store `k` and `v` in the cache, then attend: [rows, num_heads * head_dim].

        q: [rows, num_heads * head_dim]   k, v: [rows, num_kv_heads * head_dim]
        Query head h reads KV head h // (num_heads / num_kv_heads). Softmax in float32.
        Keys and values are rounded to the cache's dtype before anyone reads them.
        """

    def gated(self, x: T, activation: Activation) -> T:
        """`act(gate) * up` of `x` = [gate | up]: [rows, width / 2]."""

    def activation(self, x: T, activation: Activation) -> T:
        """`act(x)` for each element."""

    def add(self, a: T, b: T) -> T:
        """Element-wise sum."""

    def scale(self, x: T, factor: float) -> T:
        """`x * factor`."""

    def wanted_rows(self, x: T) -> T:
        """The rows whose logits the step needs: [num_wanted, width]."""

    def mean_rows(self, x: T) -> T:
        """For each wanted row the mean of the tokens that it stands for: [num_wanted, width].

        Added up in order of tokens. The mean of one token is that token.
        """

    def logits(self, x: T, head: Linear, *, scale: float = 1.0, soft_cap: float | None = None) -> T:
        """`head` product times `scale`, then `cap * tanh(l / cap)`: [num_wanted, vocab_size]."""
