"""How a model asks for its weights. Each back end packs or places them in its own way."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

VectorEnding = Literal["weight", "bias"]


class Linear(msgspec.Struct, frozen=True):
    """A matrix [out_features, in_features], possibly several checkpoint tensors on top of each
    other.

    `handle` belongs to the back end that made it.
    """

    out_features: int
    in_features: int
    parts: tuple[int, ...]  # out_features of each tensor that was put together
    handle: object
    # How the back end reorders the columns of the input first; None: it does not. See
    # `weights.checkpoint.TensorView.columns`.
    order: object = None


class Experts(msgspec.Struct, frozen=True):
    """MLPs, of which a router chooses some for each token."""

    gate_up: tuple[Linear, ...]  # of each expert, [2 * inner size, hidden_size]; plain: the half
    down: tuple[Linear, ...]  # [hidden_size, inner size]
    is_weighted: bool = True  # else what they give counts in full
    is_gated: bool = True  # else plain: `down(act(up))`

    def __len__(self) -> int:
        return len(self.gate_up)


class Embedding(msgspec.Struct, frozen=True):
    """A table [vocab_size, hidden_size]."""

    vocab_size: int
    hidden_size: int
    handle: object


class Vector(msgspec.Struct, frozen=True):
    """A float32 vector [size]: weights and biases of norms."""

    size: int
    handle: object


class StateSpaceWeights(msgspec.Struct, frozen=True):
    """What a layer that carries a state has besides matrices."""

    log_decay: Vector  # [num_heads], or of each number that they keep: [num_heads * state_size]
    step_bias: Vector | None  # [num_heads]
    skip: Vector | None = None  # [num_heads]; None: nothing passes by the state


class Weights(Protocol):
    """What a model's constructor is given. Names are Hugging Face's without the ending `.weight`.

    A missing tensor or a wrong shape raises CorruptFileError with the name. Asking marks a tensor
    as used; the loader lists those that nobody asked for.
    """

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> Embedding: ...

    def linear(
        self, names: list[str], out_features: list[int], in_features: int, *, bias: bool = False
    ) -> Linear:
        """`names` stacked row-wise into one matrix; with `bias`, `<name>.bias` of each as well."""

    def tied_linear(self, embedding: Embedding) -> Linear:
        """The embedding table used as output matrix, stored once."""

    def constant(self, size: int, value: float) -> Vector:
        """A vector that no file has, all elements alike."""

    def vector(
        self, name: str, size: int, *, offset: float = 0.0, ending: VectorEnding = "weight"
    ) -> Vector:
        """Elements of `<name>.<ending>` plus `offset`."""
