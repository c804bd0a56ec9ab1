"""From the options of a model to its checkpoint, and to whose code computes it.

Owns what --model-impl means, and which readers exist. Does not know files or formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from octavo.config.engine import ModelConfig
from octavo.config.json_option import json_option
from octavo.errors import ConfigError, UnknownArchitectureError
from octavo.foundation.registry import Registry
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.progress import OnProgress

# Readers of quantised files need the native library, which is loaded with the first model.
READING: Registry[Callable[..., Any]] = Registry(
    "step of reading a model",
    {
        "find": "octavo.weights.source:find_model",
        "open": "octavo.weights.source:open_found",
        "open by name": "octavo.weights.source:open_checkpoint",
        "open for transformers": "octavo.backends.torch.foreign.checkpoint:open_foreign",
        "quantise": "octavo.weights.quant.online:with_quantisation",
    },
)
OWN, TRANSFORMERS = "octavo", "transformers"
_INSTALL = "install what it needs with pip install 'octavo[transformers]'"


def read_model(model: ModelConfig, on_progress: OnProgress) -> tuple[Checkpoint, ModelConfig]:
    """The checkpoint, understood, and the options with the implementation that was chosen.

    Raises ModelFileError, DownloadError or ConfigError.
    """
    overrides = json_option("hf_overrides", model.hf_overrides)
    try:
        found = READING.load("find")(
            model.model,
            revision=model.revision,
            on_progress=on_progress,
            any_architecture=model.backend == "torch" and model.model_impl != OWN,
        )
        if model.model_impl != TRANSFORMERS:
            return _own(found, overrides, model), replace(model, model_impl=OWN)
    except UnknownArchitectureError as error:
        if model.model_impl == OWN:
            raise
        if model.backend != "torch":
            raise UnknownArchitectureError(
                f"{error}. transformers' code may run it: --backend torch; {_INSTALL}"
            ) from None
    return _foreign(found, overrides, model), replace(model, model_impl=TRANSFORMERS)


def open_named(name: str) -> Checkpoint:
    """Another model by its name. Raises as `read_model`."""
    checkpoint: Checkpoint = READING.load("open by name")(name)
    return checkpoint


def _own(found: Any, overrides: Any, model: ModelConfig) -> Checkpoint:
    checkpoint = READING.load("open")(found, overrides)
    if model.quantization == "auto":
        own: Checkpoint = checkpoint
        return own
    quantised: Checkpoint = READING.load("quantise")(checkpoint, model.quantization)
    return quantised


def _foreign(found: Any, overrides: Any, model: ModelConfig) -> Checkpoint:
    if not found.is_hf_folder:
        raise ConfigError(
            f"--model-impl transformers reads folders with a config.json, and {found.path} is none"
            "; use --model-impl octavo"
        )
    if model.quantization != "auto":
        raise ConfigError(
            f"--quantization {model.quantization} needs a model of Octavo's; transformers' code "
            "runs floats: leave it out"
        )
    try:
        reader = READING.load("open for transformers")
    except ModuleNotFoundError as error:
        if error.name in ("torch", "transformers"):
            raise ConfigError(f"--model-impl transformers: {_INSTALL}") from error
        raise
    checkpoint: Checkpoint = reader(
        found.path,
        name=found.name,
        overrides=overrides,
        trusts_code=model.trust_remote_code,
    )
    return checkpoint
