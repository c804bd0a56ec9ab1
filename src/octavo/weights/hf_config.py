"""config.json of a Hugging Face folder -> ModelFacts.

Owns the keys that all architectures have, and the refusal of what we do not have. What is special
about one is in `hf_families.py`. Does not know files other than by the objects it is given, and no
tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.config.model_facts import HiddenAct, ModelFacts, RopeFacts
from octavo.contracts.own_models import load_plugins, registered_names
from octavo.errors import UnknownArchitectureError, UnsupportedModelError
from octavo.weights.facts_check import MAX_LAYERS, check_facts
from octavo.weights.fields import Fields
from octavo.weights.hf_families import FAMILIES, Family, base_architecture, family_of
from octavo.weights.hf_rope import max_position, rope_facts

ACTIVATIONS: dict[str, HiddenAct] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
DTYPES = ("float32", "float16", "bfloat16")


def facts_from_config(values: Mapping[str, object], where: str) -> ModelFacts:
    """Facts from the content of config.json, without what other files say (EOS ids, defaults).

    Raises UnsupportedModelError for an architecture that we do not have, CorruptFileError that
    names a missing or wrong key.
    """
    config = Fields(values, where)
    named = named_architecture(config)
    architecture = base_architecture(named) or named
    family = family_of(architecture)
    text = text_section(config)
    present = _present(values, text)
    keys = Fields({**family.assumed, **present}, text.where, names=family.names)
    facts = family.adjust(_common(keys, architecture, family), keys)
    check_facts(facts, where)
    return facts


def text_section(config: Fields) -> Fields:
    """The part about the decoder: models that also see or hear keep it apart."""
    return config.section("text_config") or config


def _present(values: Mapping[str, object], text: Fields) -> dict[str, object]:
    """Keys of the decoder, before those that hold for the whole model."""
    nested = values.get("text_config")
    if not isinstance(nested, dict):
        return dict(values)
    shared = {k: values[k] for k in ("tie_word_embeddings", "torch_dtype", "dtype") if k in values}
    return {**shared, **nested}


def named_architecture(config: Fields) -> str:
    """The first architecture of the file that we have, as the file calls it.

    Raises UnsupportedModelError that lists what there is.
    """
    names = config.texts("architectures")
    for name in names:
        if base_architecture(name) is not None:
            return name
    found = ", ".join(names) or f"model_type {config.text('model_type', 'unknown')}"
    message = f"{config.where}: the architecture {found} is not supported"
    known = ", ".join(sorted({*FAMILIES, *registered_names()}))
    raise UnknownArchitectureError(". ".join([message, f"Supported: {known}", *load_plugins()]))


def _common(keys: Fields, architecture: str, family: Family) -> ModelFacts:
    """What is read in the same way for all architectures."""
    hidden_size = keys.integer("hidden_size", at_least=1)
    num_heads = keys.integer("num_attention_heads", at_least=1)
    head_dim = keys.optional_integer("head_dim", at_least=1)
    if head_dim is None:
        if hidden_size % num_heads:
            keys.refuse("hidden_size", f"{hidden_size} is not a multiple of {num_heads} heads")
        head_dim = hidden_size // num_heads
    rope = RopeFacts(rotary_dim=0)
    if not family.learned_positions:
        rope = rope_facts(keys, head_dim, family.theta)
    inner_size = family.inner_times * hidden_size or None
    longest = keys.integer("max_position_embeddings", at_least=1)
    has_bias = keys.flag("attention_bias", False)
    return ModelFacts(
        architecture=architecture,
        vocab_size=keys.integer("vocab_size", at_least=1),
        hidden_size=hidden_size,
        intermediate_size=keys.integer("intermediate_size", inner_size, at_least=1),
        num_layers=_num_layers(keys),
        num_heads=num_heads,
        num_kv_heads=keys.integer("num_key_value_heads", num_heads, at_least=1),
        head_dim=head_dim,
        max_position=max_position(keys, rope, longest),
        norm_eps=keys.number("norm_eps", above=0.0),
        hidden_act=_activation(keys),
        rope=rope,
        tie_word_embeddings=keys.flag("tie_word_embeddings"),
        attention_bias=has_bias,
        attention_out_bias=has_bias,
        attention_scale=head_dim**-0.5,
        learned_positions=family.learned_positions,
        dtype=_dtype(keys),
    )


def _num_layers(keys: Fields) -> int:
    """Files that list the kinds of their layers may not say how many there are."""
    num_listed = len(keys.items("layers_block_type")) or None
    return keys.integer("num_hidden_layers", num_listed, at_least=1, at_most=MAX_LAYERS)


def _activation(keys: Fields) -> HiddenAct:
    name = keys.text("hidden_activation", keys.text("hidden_act", "silu"))
    if name not in ACTIVATIONS:
        message = f"{keys.where}: the activation {name!r} is not supported"
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _dtype(keys: Fields) -> str:
    """Of the weights as they were saved; a note, the tensors themselves count."""
    name = keys.text("dtype", keys.text("torch_dtype", "float32")).removeprefix("torch.")
    if name not in DTYPES:
        message = f"{keys.where}: weights of type {name!r} are not supported"
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(DTYPES)}")
    return name


SUPPORTED_ARCHITECTURES = frozenset(FAMILIES)
