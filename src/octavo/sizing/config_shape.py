"""config.json -> ModelShape: models that Octavo computes, and mixtures of experts.

Owns which of the two ways of counting a model takes, and the windows of its layers. Does not know
quantisation (`storage.py`) or the keys of experts (`expert_layers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.config.model_facts import ModelFacts
from octavo.errors import UnsupportedModelError
from octavo.sizing.counting_weights import count_parameters
from octavo.sizing.expert_layers import EXPERT_FAMILIES, expert_parameters, kv_entry, mlp_width
from octavo.sizing.model_shape import KvEntry, ModelShape, Storage, weight_bytes
from octavo.sizing.storage import storage_of
from octavo.weights.fields import Fields
from octavo.weights.hf_config import facts_from_config, text_section
from octavo.weights.hf_families import FAMILIES, base_architecture

_QUANTISATION = "quantization_config"
_WINDOWED = {"full_attention": False, "sliding_attention": True}


def shape_from_config(
    values: Mapping[str, object], where: str, name: str, storage: Storage | None = None
) -> ModelShape:
    """The shape of a model, from the content of its config.json alone.

    `storage` replaces what the file says about it. Raises UnsupportedModelError that lists what can
    be counted, CorruptFileError that names a key.
    """
    config = Fields(values, where)
    text = text_section(config)
    if storage is None:
        quantisation = config.section(_QUANTISATION) or text.section(_QUANTISATION)
        typed = text if "dtype" in text or "torch_dtype" in text else config
        storage = storage_of(typed, quantisation)
        is_quantised = quantisation is not None
    else:
        is_quantised = False
    names = config.texts("architectures")
    for architecture in names:
        if base_architecture(architecture) is not None:
            facts = facts_from_config(_without_quantisation(values), where)
            return shape_from_facts(facts, name, storage, is_served=not is_quantised)
        if architecture in EXPERT_FAMILIES:
            return _expert_shape(text, architecture, name, storage)
    found = ", ".join(names) or "none"
    known = ", ".join(sorted({*FAMILIES, *EXPERT_FAMILIES}))
    raise UnsupportedModelError(
        f"{where}: the parameters of the architecture {found} cannot be counted. Known: {known}"
    )


def shape_from_facts(
    facts: ModelFacts, name: str, storage: Storage, *, is_served: bool
) -> ModelShape:
    """The shape of a model that Octavo computes."""
    parameters = count_parameters(facts)
    layers = range(facts.num_layers if facts.is_causal else 0)
    return ModelShape(
        name=name,
        architecture=facts.architecture,
        parameters=parameters,
        weight_bytes=weight_bytes(parameters, storage),
        storage=storage.name,
        num_heads=facts.num_heads,
        hidden_size=facts.hidden_size,
        intermediate_size=facts.intermediate_size,
        vocab_size=facts.vocab_size,
        max_position=facts.max_position,
        entries=tuple(KvEntry(facts.num_kv_heads, facts.head_dim) for _ in layers),
        windows=tuple(facts.window_of(layer) or 0 for layer in layers),
        is_served=is_served,
    )


def _expert_shape(keys: Fields, architecture: str, name: str, storage: Storage) -> ModelShape:
    parameters = expert_parameters(keys, architecture)
    num_layers = keys.integer("num_hidden_layers", at_least=1)
    return ModelShape(
        name=name,
        architecture=architecture,
        parameters=parameters,
        weight_bytes=weight_bytes(parameters, storage),
        storage=storage.name,
        num_heads=keys.integer("num_attention_heads", at_least=1),
        hidden_size=keys.integer("hidden_size"),
        intermediate_size=mlp_width(keys, architecture),
        vocab_size=keys.integer("vocab_size"),
        max_position=keys.integer("max_position_embeddings", at_least=1),
        entries=(kv_entry(keys),) * num_layers,
        windows=_windows(keys, num_layers),
        is_served=False,
    )


def _windows(keys: Fields, num_layers: int) -> tuple[int, ...]:
    """The window of each layer: of those that `layer_types` names, else of all with a window."""
    window = keys.optional_integer("sliding_window", at_least=1)
    if window is None or not keys.flag("use_sliding_window", True):
        return (0,) * num_layers
    kinds = keys.texts("layer_types")
    if not kinds:
        return (window,) * num_layers
    unknown = sorted(set(kinds) - set(_WINDOWED))
    if unknown or len(kinds) != num_layers:
        keys.refuse("layer_types", f"must name {', '.join(_WINDOWED)} for {num_layers} layers")
    return tuple(window if _WINDOWED[kind] else 0 for kind in kinds)


def _without_quantisation(values: Mapping[str, object]) -> dict[str, object]:
    """The keys for `facts_from_config`, which refuses weights that Octavo cannot read."""
    plain = {key: value for key, value in values.items() if key != _QUANTISATION}
    nested = plain.get("text_config")
    if isinstance(nested, dict):
        plain["text_config"] = {k: v for k, v in nested.items() if k != _QUANTISATION}
    return plain
