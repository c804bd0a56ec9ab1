"""A folder in Hugging Face's layout, understood by transformers' configuration classes.

Owns which models of transformers may run here, and their facts. Does not read weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from octavo.backends.torch.foreign.attention import PROBE, refusal
from octavo.backends.torch.foreign.probe import Probed, probe
from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import CONFIG
from octavo.weights.hf_folder import (
    HfCheckpoint,
    float_tensors,
    with_generation,
)
from octavo.weights.hf_generation import chat_template
from octavo.weights.json_file import read_fields

_TRUST = (
    ". The folder brings Python code of its own: --trust-remote-code lets it run, with all that "
    "this process may do"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForeignCheckpoint(HfCheckpoint):
    """A model that transformers' code computes."""

    config: Any = None  # transformers' own
    probed: Probed | None = None
    weights_bytes: int = 0
    trusts_code: bool = False


def open_foreign(
    folder: Path,
    *,
    name: str | None = None,
    overrides: Mapping[str, object] | None = None,
    trusts_code: bool = False,
) -> ForeignCheckpoint:
    """Understand a folder; no weights are read.

    `overrides` replace keys of config.json; `trusts_code`: Python files of the folder may be run.

    Raises UnsupportedModelError that says what keeps the model from running here,
    CorruptFileError, or ModelFileError when a file is missing.
    """
    keys = read_fields(folder / CONFIG)
    keys.values = {**keys.values, **(overrides or {})}
    architecture = ", ".join(keys.texts("architectures")) or keys.text("model_type", "unknown")
    where = f"{keys.where}: {architecture}"
    if "quantization_config" in keys:
        raise UnsupportedModelError(f"{where}: quantised checkpoints need a model of Octavo's")
    tensors = float_tensors(folder)
    try:
        config = _config(folder, overrides or {}, trusts_code=trusts_code)
        text = config.get_text_config()
        model = _empty_model(config, trusts_code=trusts_code)
        probed = probe(model, text)
    except UnsupportedModelError as error:
        hint = "" if trusts_code or "auto_map" not in keys else _TRUST
        raise UnsupportedModelError(f"{where}: {error}{hint}") from error
    if type(model).__name__ not in keys.texts("architectures"):
        logger.warning("%s: transformers runs it as %s", where, type(model).__name__)
    facts = with_generation(_facts(architecture, text, probed, where), folder, keys)
    return ForeignCheckpoint(
        name=name or folder.resolve().name,
        facts=facts,
        tensors=tensors,
        chat_template=chat_template(folder),
        folder=folder,
        config=config,
        probed=probed,
        weights_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        trusts_code=trusts_code,
    )


def _config(folder: Path, overrides: Mapping[str, object], *, trusts_code: bool) -> Any:
    try:
        return AutoConfig.from_pretrained(
            folder, trust_remote_code=trusts_code, local_files_only=True, **overrides
        )
    except Exception as error:  # a border: the checkpoint's own code may run, and raise anything
        raise UnsupportedModelError(
            f"transformers {transformers.__version__} does not read its configuration "
            f"({_short(error)})"
        ) from error


def _empty_model(config: Any, *, trusts_code: bool) -> Any:
    """The model without numbers, ready for the probe. It has its own copy of the configuration."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                deepcopy(config),
                trust_remote_code=trusts_code,
                attn_implementation=PROBE,
                dtype=config.dtype or torch.float32,
            ).eval()
    except Exception as error:  # a border, as above
        raise UnsupportedModelError(
            f"transformers {transformers.__version__} makes no decoder of it ({_short(error)})"
        ) from error
    if not model._supports_attention_backend:
        raise refusal(
            f"{type(model).__name__} takes no attention from outside "
            "(_supports_attention_backend is not set)"
        )
    if getattr(model, "_is_stateful", False):
        raise refusal(f"{type(model).__name__} keeps a state besides keys and values")
    if model._can_set_experts_implementation():
        model.set_experts_implementation("batched_mm")  # which looks at no number
    return model


def _facts(architecture: str, text: Any, probed: Probed, where: str) -> ModelFacts:
    """What the engine and the KV cache need to know; a "layer" is a call of attention.

    What only models of our own read (norms, rotary frequencies) has its neutral value.
    """
    calls = probed.calls
    longest = getattr(text, "max_position_embeddings", None)
    if not isinstance(longest, int) or longest < 1:
        raise UnsupportedModelError(
            f"{where}: max_position_embeddings must say how long a sequence may be; give it with "
            "--hf-overrides '{\"max_position_embeddings\": 2048}'"
        )
    windows = tuple(call.sight.window for call in calls)
    inner = getattr(text, "intermediate_size", None)
    return ModelFacts(
        architecture=architecture,
        vocab_size=probed.vocab_size,
        hidden_size=text.hidden_size,
        intermediate_size=inner if isinstance(inner, int) else 4 * text.hidden_size,
        num_layers=len(calls),
        num_heads=max(call.num_heads // call.num_kv_heads for call in calls)
        * max(call.num_kv_heads for call in calls),
        num_kv_heads=max(call.num_kv_heads for call in calls),
        head_dim=max(max(call.key_dim, call.value_dim) for call in calls),
        max_position=longest,
        norm_eps=1e-6,
        hidden_act="silu",
        rope=RopeFacts(rotary_dim=0),
        attention_scale=calls[0].scale,
        sliding_windows=windows if any(windows) else (),
        windows_are_chunks=any(call.sight.is_chunked for call in calls),
        dtype=str(text.dtype or torch.float32).removeprefix("torch."),
    )


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:300]}"
