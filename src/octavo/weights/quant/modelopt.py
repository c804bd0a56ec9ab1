"""NVIDIA ModelOpt: FP8 with a scale per matrix, and NVFP4. The tensors are those of fp8 and fp4."""

from __future__ import annotations

from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import TensorView
from octavo.weights.fields import Fields
from octavo.weights.quant.fp4 import nvfp4_view
from octavo.weights.quant.fp8 import scaled_float_views
from octavo.weights.quant.tables import Stems

_ALGORITHMS = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4")


def modelopt_views(stems: Stems, config: Fields) -> dict[str, TensorView]:
    """All quantised matrices. Raises UnsupportedModelError for another algorithm."""
    inner = config.section("quantization") or config
    algorithm = inner.text("quant_algo")
    if algorithm not in _ALGORITHMS:
        raise UnsupportedModelError(
            f"{config.where}: ModelOpt's {algorithm} is not supported. Supported: "
            f"{', '.join(_ALGORITHMS)}"
        )
    views = {}
    for stem in stems.with_ending("weight_scale_2"):
        codes = stems.take(stem, "weight")
        views[codes.name] = nvfp4_view(stem, codes, stems)
    return views | scaled_float_views(stems, None)
