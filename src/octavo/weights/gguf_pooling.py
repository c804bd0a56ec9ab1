"""How a GGUF file makes vectors of texts: its keys and small tensors -> PoolingFacts.

Owns the meaning of `pooling_type` and the names of what llama.cpp puts on top of a vector. A file
that says nothing makes text, unless it is an encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from octavo.config.model_facts import DenseFacts, ModelFacts, PoolingFacts, PoolingMethod
from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import TensorView
from octavo.weights.fields import Fields

# `pooling_type` of llama.cpp
NO_POOLING, FIRST_TOKEN, RANK = 0, 2, 4
METHODS: dict[int, PoolingMethod] = {1: "mean", FIRST_TOKEN: "first", 3: "last"}
HEAD, HEAD_OUTPUT = "cls", "cls.output"
DENSE = ("dense_2", "dense_3")  # of sentence-transformers, by the numbers of its modules


def with_pooling(facts: ModelFacts, keys: Fields, tensors: Mapping[str, TensorView]) -> ModelFacts:
    """The facts of a model that makes vectors; unchanged where it makes text.

    Raises UnsupportedModelError for a way of pooling that we do not have.
    """
    kind = keys.integer("pooling_type", NO_POOLING if facts.is_causal else FIRST_TOKEN)
    if kind == NO_POOLING and facts.is_causal:
        return facts
    if kind == RANK and _has_head(facts, tensors):
        return replace(facts, pooling=_classifier(keys, tensors))
    if kind not in METHODS:
        raise UnsupportedModelError(
            f"{keys.where}: pooling of type {kind} is not supported. Supported: mean (1), the "
            "first token (2), the last one (3), and scores (4) of encoders with cls and cls.output"
        )
    layers = tuple(
        DenseFacts(name=name, out_features=view.shape[0], bias=f"{name}.bias" in tensors)
        for name in DENSE
        if (view := tensors.get(f"{name}.weight")) is not None
    )
    return replace(facts, pooling=PoolingFacts(method=METHODS[kind], layers=layers))


def _has_head(facts: ModelFacts, tensors: Mapping[str, TensorView]) -> bool:
    """RoBERTa's, the only one of which a file holds all that it was trained with."""
    names = [f"{part}.{ending}" for part in (HEAD, HEAD_OUTPUT) for ending in ("weight", "bias")]
    return not facts.is_causal and facts.learned_positions and all(n in tensors for n in names)


def _classifier(keys: Fields, tensors: Mapping[str, TensorView]) -> PoolingFacts:
    """Scores of labels from the first token."""
    num_labels = tensors[f"{HEAD_OUTPUT}.weight"].shape[0]
    labels = keys.texts("classifier.output_labels") or [f"LABEL_{i}" for i in range(num_labels)]
    if len(labels) != num_labels:
        keys.refuse("classifier.output_labels", f"has {len(labels)} items for {num_labels} scores")
    width = tensors[f"{HEAD}.weight"].shape[0]
    return PoolingFacts(
        task="classify",
        method="first",
        layers=(
            DenseFacts(name=HEAD, out_features=width, activation="tanh"),
            DenseFacts(name=HEAD_OUTPUT, out_features=num_labels),
        ),
        normalize=False,
        labels=tuple(labels),
        activation="sigmoid" if num_labels == 1 else "softmax",
    )
