"""config.json -> ModelShape, by asking the model file for its tensors.

Does not know quantisation (`storage.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from octavo.config.model_facts import ModelFacts
from octavo.contracts.own_models import load_plugins, registered_names
from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.sizing.counting_weights import count_parameters
from octavo.sizing.model_shape import KvEntry, ModelShape, Storage, weight_bytes
from octavo.sizing.storage import rounded, storage_of
from octavo.weights.fields import Fields
from octavo.weights.hf_config import facts_from_config, text_section
from octavo.weights.hf_families import FAMILIES, base_architecture
from octavo.weights.quant.method import Quantisation, find_quantisation
from octavo.weights.quant.online import online_types


def shape_from_config(
    values: Mapping[str, object],
    where: str,
    name: str,
    storage: Storage | None = None,
    folder: Path | None = None,
    *,
    quantization: str = "auto",
) -> ModelShape:
    """The shape of a model, from the content of its config.json alone.

    `storage` replaces what the file says about it; in `folder`, where there is one, other files may
    say how it is quantised; `quantization` is that of the command line. Raises
    UnsupportedModelError that lists what can be counted, CorruptFileError that names a key,
    ConfigError where the option contradicts the file.
    """
    config = Fields(values, where)
    text = text_section(config)
    if storage is None:
        quantisation = find_quantisation(folder, config)
        typed = text if "dtype" in text or "torch_dtype" in text else config
        storage = storage_of(typed, quantisation)
        is_served = quantisation is None or _is_read(quantisation)
        found = None if quantisation is None else quantisation.method
        types = online_types(quantization, found, name)
        storage = storage if types is None else rounded(storage, types[0])
    else:
        is_served = True
    names = config.texts("architectures")
    load_plugins()
    for architecture in names:
        if base_architecture(architecture) is not None:
            facts = facts_from_config(values, where)
            return shape_from_facts(facts, name, storage, is_served=is_served)
    given = ", ".join(names) or "none"
    known = ", ".join(sorted({*FAMILIES, *registered_names()}))
    raise UnsupportedModelError(
        f"{where}: the parameters of the architecture {given} cannot be counted. Known: {known}"
    )


def shape_from_facts(
    facts: ModelFacts, name: str, storage: Storage, *, is_served: bool
) -> ModelShape:
    """The shape of a model that Octavo computes."""
    parameters = count_parameters(facts)
    layers = facts.attention_layers if facts.is_causal else ()
    entry = KvEntry(facts.num_kv_heads, facts.head_dim, is_latent=facts.latent is not None)
    return ModelShape(
        name=name,
        architecture=facts.architecture,
        parameters=parameters,
        weight_bytes=weight_bytes(parameters, storage),
        storage=storage.name,
        num_heads=facts.num_heads,
        hidden_size=facts.hidden_size,
        intermediate_size=_mlp_width(facts),
        vocab_size=facts.vocab_size,
        max_position=facts.max_position,
        entries=(entry,) * len(layers),
        windows=tuple(facts.window_of(layer) or 0 for layer in layers),
        state_bytes=0 if facts.state is None else facts.state.num_bytes,
        is_served=is_served,
    )


def _mlp_width(facts: ModelFacts) -> int:
    """Numbers between the two products of the widest MLP that one token passes."""
    if facts.moe is None:
        return facts.intermediate_size
    experts = facts.moe.num_chosen * facts.moe.intermediate_size + facts.moe.shared_size
    return max(experts, 0 if len(facts.moe.layers) == facts.num_layers else facts.intermediate_size)


def _is_read(quantisation: Quantisation) -> bool:
    """Whether Octavo reads weights that are quantised so."""
    try:
        quantisation.check()
    except ModelFileError:
        return False
    return True
