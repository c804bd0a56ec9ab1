"""From what a user calls a model to its shape: config.json, or the header of a GGUF file.

Owns where to look, in the order of `weights/source.py`; of a hub model only config.json is fetched.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

from octavo.sizing.config_shape import shape_from_config, shape_from_facts
from octavo.sizing.model_shape import ModelShape, Storage
from octavo.sizing.storage import storage_named
from octavo.weights.checkpoint import CONFIG, Checkpoint
from octavo.weights.hub import download_config
from octavo.weights.hub_names import parse_hub_model
from octavo.weights.json_file import read_fields
from octavo.weights.quant.online import with_quantisation
from octavo.weights.source import open_checkpoint


def find_shape(
    model: str,
    *,
    revision: str | None = None,
    storage: Storage | None = None,
    quantization: str = "auto",
) -> ModelShape:
    """The shape of a model: a config.json, a folder that has one, a GGUF file, a name.

    `storage` replaces what the files say about the type of weights, `quantization` is that of the
    command line. Raises as `open_checkpoint` does, UnsupportedModelError for a model whose
    parameters cannot be counted, ConfigError for a quantization that contradicts the files.
    """
    config = _config_of(model, revision)
    if config is not None:
        is_local = Path(model).expanduser().exists()
        name = config.resolve().parent.name if is_local else model
        return shape_from_config(
            read_fields(config).values,
            str(config),
            name,
            storage,
            config.parent,
            quantization=quantization,
        )
    checkpoint = open_checkpoint(model, revision=revision)
    return _checkpoint_shape(with_quantisation(checkpoint, quantization), storage)


def _config_of(model: str, revision: str | None) -> Path | None:
    """The config.json that a name leads to; None where it leads to a GGUF file or a package."""
    path = Path(model).expanduser()
    if path.is_file() and path.suffix == ".json":
        return path
    if path.is_dir():
        return path / CONFIG if (path / CONFIG).is_file() else None
    hub_model = None if path.exists() else parse_hub_model(model)
    if hub_model is None or hub_model.wants_gguf:
        return None
    return download_config(hub_model, revision)


def _checkpoint_shape(checkpoint: Checkpoint, storage: Storage | None) -> ModelShape:
    """Weights take what the file says, tensor by tensor, unless another storage is asked for."""
    sizes: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        sizes[tensor.type.name] += tensor.type.num_bytes(math.prod(tensor.shape))
    most = sizes.most_common(1)[0][0]
    stored = storage or storage_named(most.lower())
    shape = shape_from_facts(checkpoint.facts, checkpoint.name, stored, is_served=True)
    if storage is not None:
        return shape
    label = most if len(sizes) == 1 else f"{most} and {len(sizes) - 1} other types"
    return replace(shape, weight_bytes=sizes.total(), storage=label)
