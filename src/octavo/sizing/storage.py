"""How a checkpoint stores its weights, from `dtype` and `quantization_config` of a config.json.

Owns the bits of a number in the published formats, scales and zero points included. Does not know
shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from octavo.errors import ConfigError, UnsupportedModelError
from octavo.sizing.model_shape import FLOAT_BYTES, Storage
from octavo.weights.checkpoint import WeightType
from octavo.weights.fields import Fields

_SCALE_BITS = 16
_FP8_BLOCK = 128 * 128  # numbers that share a float32 scale
# OCP microscaling: four bits, and eight of a scale for 32 numbers
_MXFP4_BITS = 4.25


def storage_of(text: Fields, quantisation: Fields | None) -> Storage:
    """How the weights lie in the files.

    Raises UnsupportedModelError that lists the known methods.
    """
    name = text.text("dtype", text.text("torch_dtype", "float32")).removeprefix("torch.")
    if name not in FLOAT_BYTES:
        known = ", ".join(FLOAT_BYTES)
        raise UnsupportedModelError(f"{text.where}: weights of type {name!r}. Known: {known}")
    bits = 8 * FLOAT_BYTES[name]
    if quantisation is None:
        return Storage(name, bits, bits, bits, bits)
    method = quantisation.text("quant_method", "")
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise UnsupportedModelError(
            f"{quantisation.where}: quantisation {method or 'without a quant_method'} is not "
            f"known. Known: {known}"
        )
    label, matrix_bits, expert_bits = METHODS[method](quantisation, bits)
    return Storage(label, bits, bits, matrix_bits, expert_bits)


def storage_named(name: str) -> Storage:
    """What a value of --weight-type means: all matrices of that type, vectors in float32.

    Raises ConfigError that lists the names.
    """
    types = {type.name.lower(): type for type in WeightType}
    if name not in types:
        raise ConfigError(f"--weight-type must be one of {', '.join(types)}, got {name!r}")
    type = types[name]
    bits = 8 * type.block_bytes / type.block_elements
    return Storage(name, 32.0, bits, bits, bits)


def _fp8(keys: Fields, float_bits: float) -> tuple[str, float, float]:
    bits = 8 + 32 / _FP8_BLOCK
    return "fp8", bits, bits


def _mxfp4(keys: Fields, float_bits: float) -> tuple[str, float, float]:
    """Experts alone: gpt-oss."""
    return "mxfp4 experts", float_bits, _MXFP4_BITS


def _grouped(keys: Fields, float_bits: float) -> tuple[str, float, float]:
    """GPTQ and AWQ: a scale and a zero point for each group of columns."""
    bits = keys.integer("bits", 4, at_least=1, at_most=16)
    group = keys.value("group_size")
    columns = group if isinstance(group, int) and group > 0 else 4096  # -1: a whole row
    number = bits + (_SCALE_BITS + bits) / columns
    return f"{keys.text('quant_method')} {bits} bit", number, number


def _bitsandbytes(keys: Fields, float_bits: float) -> tuple[str, float, float]:
    if keys.flag("load_in_8bit", False):
        return "bitsandbytes 8 bit", 8.0, 8.0
    return "bitsandbytes 4 bit", 4.5, 4.5  # a float32 scale for 64 numbers


def _compressed(keys: Fields, float_bits: float) -> tuple[str, float, float]:
    """compressed-tensors: the bits of its first group."""
    groups = keys.section("config_groups")
    first = next(iter(groups)) if groups is not None else None
    group = groups.section(first) if groups is not None and first is not None else None
    weights = group.section("weights") if group is not None else None
    if weights is None:
        keys.refuse("config_groups", "must have a group with `weights`")
    bits = weights.integer("num_bits", 8, at_least=1, at_most=16)
    columns = weights.value("group_size")
    scale = _SCALE_BITS / columns if isinstance(columns, int) and columns > 0 else 0.0
    return f"compressed-tensors {bits} bit", bits + scale, bits + scale


METHODS: Mapping[str, Callable[[Fields, float], tuple[str, float, float]]] = MappingProxyType(
    {
        "awq": _grouped,
        "bitsandbytes": _bitsandbytes,
        "compressed-tensors": _compressed,
        "fp8": _fp8,
        "gptq": _grouped,
        "mxfp4": _mxfp4,
    }
)
