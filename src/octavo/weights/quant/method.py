"""How a folder's checkpoint is quantised, and its tensors as the rest of Octavo sees them.

Owns where the configuration is looked for, the names of methods, and what is held against
--quantization. Does not know formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView
from octavo.weights.fields import Fields
from octavo.weights.json_file import read_fields
from octavo.weights.quant.awq import awq_views
from octavo.weights.quant.bitsandbytes import bitsandbytes_views
from octavo.weights.quant.compressed import compressed_views
from octavo.weights.quant.fp4 import mxfp4_stacks
from octavo.weights.quant.fp8 import fp8_views
from octavo.weights.quant.gptq import gptq_views
from octavo.weights.quant.modelopt import modelopt_views
from octavo.weights.quant.tables import Stems
from octavo.weights.stored_tensor import StoredTensor

MakeViews = Callable[[Stems, Fields], dict[str, TensorView]]

METHODS: dict[str, MakeViews] = {
    "awq": awq_views,
    "bitsandbytes": bitsandbytes_views,
    "compressed-tensors": compressed_views,
    "fp8": fp8_views,
    "gptq": gptq_views,
    "modelopt": modelopt_views,
    "mxfp4": mxfp4_stacks,
}
# Keys of config.json, and files of older tools with the method that each implies.
_KEYS = ("quantization_config", "compression_config")
_FILES = {
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "hf_quant_config.json": "modelopt",
}
# Of activations and of the KV cache, which are quantised by other rules here.
_UNUSED = (
    *(".input_scale", ".input_zero_point", ".input_global_scale", ".activation_scale"),
    *(".output_scale", ".output_zero_point", ".k_scale", ".v_scale", ".q_scale", ".prob_scale"),
    *(".k_zero_point", ".v_zero_point", ".g_idx_sort_indices"),
)


@dataclass(frozen=True, slots=True)
class Quantisation:
    """A method and its settings in a checkpoint."""

    method: str
    config: Fields

    def check(self) -> None:
        """Raises UnsupportedModelError or CorruptFileError for settings that no tensor mends."""
        METHODS[self.method](Stems({}), self.config)

    def views(self, tensors: Mapping[str, StoredTensor]) -> dict[str, TensorView]:
        """All tensors, the quantised ones as matrices of our own types.

        Raises UnsupportedModelError or CorruptFileError with the name of a tensor.
        """
        stems = Stems(tensors)
        views = METHODS[self.method](stems, self.config)
        if not views:
            raise CorruptFileError(
                f"{self.config.where} says quantisation {self.method}, but no tensor is quantised"
            )
        stems.drop(lambda name: name.endswith(_UNUSED))
        return views | stems.floats()


def find_quantisation(folder: Path | None, config: Fields) -> Quantisation | None:
    """What config.json, or a file beside it in `folder`, says; None for a checkpoint of floats.

    Raises UnsupportedModelError for a method that we do not have.
    """
    text = config.section("text_config")
    for section in (config, text):
        for key in _KEYS:
            found = section.section(key) if section is not None else None
            if found is not None:
                return _known(found, found.text("quant_method", ""))
    for file_name, method in _FILES.items():
        if folder is not None and (folder / file_name).is_file():
            found = read_fields(folder / file_name)
            return _known(found, found.text("quant_method", method))
    return None


def _known(config: Fields, named: str) -> Quantisation:
    method = named.replace("_", "-").lower() or "compressed-tensors"
    if method not in METHODS:
        raise UnsupportedModelError(
            f"{config.where}: quantisation {named!r} is not supported. Supported: "
            f"{', '.join(METHODS)}, and GGUF files"
        )
    return Quantisation(method, config)
