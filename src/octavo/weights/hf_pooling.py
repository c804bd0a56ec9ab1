"""How a Hugging Face folder makes vectors of texts: PoolingFacts from its files.

Owns config.json's keys about labels and heads, and the files of sentence-transformers beside it:
modules.json, N_Pooling, N_Dense, sentence_bert_config.json. Does not know tensors beyond the names
of small layers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.config.model_facts import (
    DenseFacts,
    HiddenAct,
    ModelFacts,
    PoolingFacts,
    PoolingMethod,
    ScoreActivation,
)
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.fields import Fields
from octavo.weights.json_file import optional_fields, read_bytes, read_fields
from octavo.weights.word_classifier import compares_words, words_of

MODULES = "modules.json"
CLASSIFIER = "ForSequenceClassification"
# Flags of N_Pooling/config.json -> ours; newer files have one word instead.
_MODES: dict[str, PoolingMethod] = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_MODE_WORDS: dict[str, PoolingMethod] = {"cls": "first", "mean": "mean", "lasttoken": "last"}
_ACTIVATIONS: dict[str, HiddenAct | None] = {
    "Identity": None,
    "GELU": "gelu",
    "ReLU": "relu",
    "SiLU": "silu",
}


@dataclass(frozen=True, slots=True)
class _Module:
    """An entry of modules.json."""

    kind: str  # the last part of its class's name
    folder: str


def with_pooling(facts: ModelFacts, folder: Path, config: Fields, architecture: str) -> ModelFacts:
    """The facts of a model that makes vectors; unchanged where it makes text.

    `architecture` is the name in config.json. Raises CorruptFileError, or UnsupportedModelError for
    a way of pooling that we do not have.
    """
    if architecture.endswith(CLASSIFIER):
        return replace(facts, pooling=classifier_facts(facts, config, architecture))
    modules = _modules(folder)
    is_generator = facts.is_causal and architecture == facts.architecture
    if not modules and is_generator:
        return facts
    pooling = PoolingFacts(
        method="last" if facts.is_causal else "first", dimensions=_dimensions(config)
    )
    if modules:
        pooling = _of_modules(pooling, folder, modules)
        longest, num_positions = _longest(folder, facts.max_position), facts.max_position
        facts = replace(facts, max_position=longest, num_positions=num_positions)
    return replace(facts, pooling=pooling)


def classifier_facts(facts: ModelFacts, config: Fields, architecture: str) -> PoolingFacts:
    """Scores of labels from one vector."""
    labels = _labels(config)
    return PoolingFacts(
        task="classify",
        method=_classifier_method(facts, config),
        layers=_classifier_layers(facts, config, architecture, len(labels)),
        normalize=False,
        labels=labels,
        activation=_classifier_activation(config, len(labels)),
    )


def dense_files(folder: Path) -> dict[str, Path]:
    """Weight files of the small layers of sentence-transformers -> the prefix of their names."""
    return {
        f"{module.folder}.": folder / module.folder / "model.safetensors"
        for module in _modules(folder)
        if module.kind == "Dense"
    }


def _modules(folder: Path) -> list[_Module]:
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        entries = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorruptFileError(f"{path} must hold a list of objects")
    modules = []
    for entry in entries:
        fields = Fields(entry, path.name)
        name = fields.text("path", "")
        if name and (Path(name).is_absolute() or ".." in Path(name).parts):
            fields.refuse("path", "must stay within the folder")
        modules.append(_Module(fields.text("type").rpartition(".")[2], name))
    return modules


def _of_modules(pooling: PoolingFacts, folder: Path, modules: list[_Module]) -> PoolingFacts:
    layers: list[DenseFacts] = []
    method = pooling.method
    for module in modules:
        if module.kind == "Pooling":
            method = _method(read_fields(folder / module.folder / "config.json"))
        elif module.kind == "Dense":
            layers.append(_dense(read_fields(folder / module.folder / "config.json"), module))
        elif module.kind not in ("Transformer", "Normalize"):
            raise UnsupportedModelError(
                f"{folder / MODULES}: modules of type {module.kind} are not supported. "
                "Supported: Transformer, Pooling, Dense, Normalize"
            )
    return replace(
        pooling,
        method=method,
        layers=tuple(layers),
        normalize=any(module.kind == "Normalize" for module in modules),
    )


def _method(keys: Fields) -> PoolingMethod:
    word = keys.value("pooling_mode")
    if isinstance(word, str) and word in _MODE_WORDS:
        return _MODE_WORDS[word]
    modes = [key for key in keys if key.startswith("pooling_mode_") and keys.flag(key, False)]
    if len(modes) == 1 and modes[0] in _MODES:
        return _MODES[modes[0]]
    found = ", ".join(modes) or repr(word)
    raise UnsupportedModelError(
        f"{keys.where}: pooling by {found} is not supported. Supported is one of: "
        f"{', '.join(_MODE_WORDS)}"
    )


def _dense(keys: Fields, module: _Module) -> DenseFacts:
    name = keys.text("activation_function", "Tanh").rpartition(".")[2]
    if name not in _ACTIVATIONS and name != "Tanh":
        message = f"{module.folder}/{keys.where}: the activation {name!r} is not supported"
        raise UnsupportedModelError(f"{message}. Supported: Tanh, {', '.join(_ACTIVATIONS)}")
    return DenseFacts(
        name=f"{module.folder}.linear",
        out_features=keys.integer("out_features", at_least=1),
        bias=keys.flag("bias", True),
        activation="tanh" if name == "Tanh" else _ACTIVATIONS[name],
    )


def _longest(folder: Path, max_position: int) -> int:
    """The length that sentence-transformers cuts texts to, as vLLM takes it over."""
    keys = optional_fields(folder / "sentence_bert_config.json")
    wanted = keys.optional_integer("max_seq_length", at_least=1)
    return max_position if wanted is None else min(wanted, max_position)


def _dimensions(config: Fields) -> tuple[int, ...] | None:
    """Widths of Matryoshka embeddings."""
    sizes = tuple(int(size) for size in config.numbers("matryoshka_dimensions", above=0.0))
    if sizes:
        return sizes
    return None if config.flag("is_matryoshka", False) else ()


def _labels(config: Fields) -> tuple[str, ...]:
    words = words_of(config)
    if words:
        return ("LABEL_0",) if compares_words(config) else tuple(words)
    names = config.section("id2label")
    if names is None:
        return tuple(f"LABEL_{i}" for i in range(config.integer("num_labels", 2, at_least=1)))
    labels = {int(key): names.text(key) for key in names if key.isdigit()}
    if sorted(labels) != list(range(len(labels))) or not labels:
        config.refuse("id2label", "must have a label for each number from 0 up")
    return tuple(labels[i] for i in range(len(labels)))


def _classifier_method(facts: ModelFacts, config: Fields) -> PoolingMethod:
    if facts.is_causal:
        return "last"
    word = config.text("classifier_pooling", "cls")
    if word not in ("cls", "mean"):
        config.refuse("classifier_pooling", f"must be cls or mean, got {word!r}")
    return _MODE_WORDS[word]


def _classifier_layers(
    facts: ModelFacts, config: Fields, architecture: str, num_labels: int
) -> tuple[DenseFacts, ...]:
    width = facts.hidden_size
    if facts.is_causal:
        return (DenseFacts(name="score", out_features=num_labels, bias=False),)
    if architecture.startswith("ModernBert"):
        activation = _ACTIVATIONS_OF_CONFIG.get(config.text("classifier_activation", "gelu"))
        if activation is None:
            config.refuse("classifier_activation", "must be gelu, relu or silu")
        return (
            DenseFacts(
                name="head.dense",
                out_features=width,
                bias=config.flag("classifier_bias", False),
                activation=activation,
                norm="head.norm",
            ),
            DenseFacts(name="classifier", out_features=num_labels),
        )
    names = ("classifier.dense", "classifier.out_proj")
    if architecture.startswith("Bert"):
        names = ("pooler.dense", "classifier")
    return (
        DenseFacts(name=names[0], out_features=width, activation="tanh"),
        DenseFacts(name=names[1], out_features=num_labels),
    )


_SCORE_ACTIVATIONS: dict[str, ScoreActivation] = {
    "identity": "none",
    "sigmoid": "sigmoid",
    "softmax": "softmax",
}
_ACTIVATIONS_OF_CONFIG: dict[str, HiddenAct] = {"gelu": "gelu", "relu": "relu", "silu": "silu"}


def _classifier_activation(config: Fields, num_labels: int) -> ScoreActivation:
    """As vLLM decides: by what sentence-transformers wrote, the kind of problem, or the count."""
    section = config.section("sentence_transformers")
    written = section.optional_text("activation_fn") if section is not None else None
    written = written or config.optional_text("sbert_ce_default_activation_function")
    if written is not None:
        word = written.rpartition(".")[2].lower()
        if word in _SCORE_ACTIVATIONS:
            return _SCORE_ACTIVATIONS[word]
        raise UnsupportedModelError(f"{config.where}: the activation {written!r} is not supported")
    problem = config.optional_text("problem_type")
    if problem == "regression":
        return "none"
    if problem == "multi_label_classification" or (problem is None and num_labels == 1):
        return "sigmoid"
    return "softmax"
