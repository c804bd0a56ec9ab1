"""How a checkpoint stores its weights, from `dtype` and `quantization_config` of a config.json.

Owns the bits of a number in the published formats, scales and zero points included. Does not know
shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from octavo.errors import ConfigError, UnsupportedModelError
from octavo.sizing.model_shape import FLOAT_BYTES, Storage
from octavo.weights.checkpoint import WeightType
from octavo.weights.fields import Fields
from octavo.weights.quant.method import Quantisation

_SCALE_BITS = 16
_ROW = 4096  # columns that share a scale, where it is one for a row
_FP8_BLOCK = 128 * 128  # numbers that share a float32 scale
# OCP microscaling: four bits, and eight of a scale for 32 numbers
_MXFP4_BITS = 4.25


def storage_of(text: Fields, quantisation: Quantisation | None) -> Storage:
    """How the weights lie in the files.

    Raises UnsupportedModelError that lists the known types, CorruptFileError that names a key.
    """
    name = text.text("dtype", text.text("torch_dtype", "float32")).removeprefix("torch.")
    if name not in FLOAT_BYTES:
        known = ", ".join(FLOAT_BYTES)
        raise UnsupportedModelError(f"{text.where}: weights of type {name!r}. Known: {known}")
    bits = 8 * FLOAT_BYTES[name]
    if quantisation is None:
        return Storage(name, bits, bits, bits, bits)
    if quantisation.method == "mxfp4":  # gpt-oss: experts alone
        return Storage("mxfp4 experts", bits, bits, bits, _MXFP4_BITS)
    kind, matrix_bits = METHODS[quantisation.method](quantisation.config)
    return Storage(f"{quantisation.method} {kind}", bits, bits, matrix_bits, matrix_bits)


def rounded(floats: Storage, to: WeightType) -> Storage:
    """Floats whose matrices become `to` while they are loaded; tables and vectors stay."""
    bits = 8 * to.block_bytes / to.block_elements
    return replace(
        floats,
        name=f"{to.name} and {floats.name}",
        matrix_bits=bits,
        expert_bits=bits,
    )


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


def _fp8(keys: Fields) -> tuple[str, float]:
    return "8 bit", 8 + 32 / _FP8_BLOCK


def _grouped(keys: Fields) -> tuple[str, float]:
    """GPTQ and AWQ: a scale and a zero point for each group of columns."""
    bits = keys.integer("bits" if "bits" in keys else "w_bit", 4, at_least=1, at_most=16)
    group = keys.value("group_size" if "group_size" in keys else "q_group_size")
    columns = group if isinstance(group, int) and group > 0 else _ROW  # -1: a whole row
    return f"{bits} bit", bits + (_SCALE_BITS + bits) / columns


def _bitsandbytes(keys: Fields) -> tuple[str, float]:
    """A float32 scale for 64 numbers; with double quantisation a byte, and one for 256 of those."""
    if keys.flag("load_in_8bit", False):
        return "8 bit", 8.0
    is_nested = keys.flag("bnb_4bit_use_double_quant", False)
    return "4 bit", 4 + (8 + 32 / 256 if is_nested else 32) / 64


def _compressed(keys: Fields) -> tuple[str, float]:
    """compressed-tensors: the bits of its first group."""
    groups = keys.section("config_groups")
    first = next(iter(groups)) if groups is not None else None
    group = groups.section(first) if groups is not None and first is not None else None
    weights = group.section("weights") if group is not None else None
    if weights is None:
        keys.refuse("config_groups", "must have a group with `weights`")
    bits = weights.integer("num_bits", 8, at_least=1, at_most=16)
    size = weights.value("group_size")
    if not isinstance(size, int) or size < 1:
        return f"{bits} bit", float(bits)
    is_float = weights.text("type", "int") == "float"
    scale_bits = 8 if is_float else _SCALE_BITS  # NVFP4 and MXFP4 have scales of a byte
    zero_bits = 0 if is_float or weights.flag("symmetric", True) else bits
    return f"{bits} bit", bits + (scale_bits + zero_bits) / size


def _modelopt(keys: Fields) -> tuple[str, float]:
    algorithm = (keys.section("quantization") or keys).text("quant_algo")
    return (algorithm, 4.5) if algorithm == "NVFP4" else (algorithm, 8.0)


METHODS: Mapping[str, Callable[[Fields], tuple[str, float]]] = MappingProxyType(
    {
        "awq": _grouped,
        "bitsandbytes": _bitsandbytes,
        "compressed-tensors": _compressed,
        "fp8": _fp8,
        "gptq": _grouped,
        "modelopt": _modelopt,
    }
)
