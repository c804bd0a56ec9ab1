"""CountingWeights: a `Weights` that has none: the tensors that a model asks for are counted."""

from __future__ import annotations

from octavo.config.model_facts import ModelFacts
from octavo.models.registry import model_class
from octavo.ops.weights import Embedding, Linear, Vector, VectorEnding
from octavo.sizing.model_shape import Parameters

_KINDS = ("embedding", "head", "attention", "mlp", "experts", "router", "vectors")


class CountingWeights:
    """Satisfies `ops.weights.Weights`; what is asked for twice counts once."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> Embedding:
        """See `Weights`."""
        self._sizes[f"embedding {name}"] = vocab_size * hidden_size
        return Embedding(vocab_size, hidden_size, name)

    def linear(
        self, names: list[str], out_features: list[int], in_features: int, *, bias: bool = False
    ) -> Linear:
        """See `Weights`."""
        for name, rows in zip(names, out_features, strict=True):
            self._sizes[f"{_kind(name)} {name}"] = rows * in_features
            if bias:
                self._sizes[f"vectors {name}.bias"] = rows
        return Linear(sum(out_features), in_features, tuple(out_features), names)

    def tied_linear(self, embedding: Embedding) -> Linear:
        """See `Weights`."""
        rows = embedding.vocab_size
        return Linear(rows, embedding.hidden_size, (rows,), embedding.handle)

    def constant(self, size: int, value: float) -> Vector:
        """See `Weights`. No file has it."""
        return Vector(size, None)

    def vector(
        self, name: str, size: int, *, offset: float = 0.0, ending: VectorEnding = "weight"
    ) -> Vector:
        """See `Weights`."""
        self._sizes[f"vectors {name}.{ending}"] = size
        return Vector(size, name)

    def parameters(self) -> Parameters:
        """All that was asked for."""
        sums = dict.fromkeys(_KINDS, 0)
        for name, size in self._sizes.items():
            sums[name.partition(" ")[0]] += size
        return Parameters(**sums)


def count_parameters(facts: ModelFacts) -> Parameters:
    """Parameters of a model that Octavo computes."""
    weights = CountingWeights()
    model_class(facts.architecture)(facts, weights, facts.max_position)
    return weights.parameters()


def _kind(name: str) -> str:
    """Of a matrix: our names tell."""
    if ".mlp.experts." in name:
        return "experts"
    if name.endswith(".mlp.gate"):
        return "router"
    if ".mixer." in name or ".self_attn." in name or ".attention." in name or ".attn." in name:
        return "attention"
    return "mlp" if name.startswith("model.layers.") else "head"
