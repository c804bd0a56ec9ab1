"""Stacked experts of transformers' models as llama.cpp's converter writes them, and back.

transformers keeps `experts.gate_up_proj` of all experts in one parameter; a GGUF file has gate and
up apart, as [experts, out_features, in_features] under names that end in `.weight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_LATENT = ".kv_b_proj.weight"
_TURNED = ("gpt_oss", "llama4_text")  # matrices are [experts, in_features, out_features]
_ALTERNATING = "gpt_oss"  # a row of the gate, a row of up


def exported(state: Mapping[str, Tensor], config: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors as a converter sees them."""
    is_turned = config.model_type in _TURNED
    for name, values in state.items():
        if name.endswith(_LATENT):
            yield from _heads_apart(name.removesuffix(_LATENT), values, config)
            continue
        stem, _, ending = name.partition(".experts.")
        part, kind = ending.removesuffix("_bias"), "bias" if ending.endswith("_bias") else "weight"
        if part not in ("gate_up_proj", "down_proj"):
            yield _renamed(name), values
            continue
        rows = values.transpose(1, 2) if is_turned and kind == "weight" else values
        if part == "down_proj":
            yield f"{stem}.experts.down_proj.{kind}", rows.contiguous()
            continue
        gate, up = (
            (rows[:, 0::2], rows[:, 1::2])
            if config.model_type == _ALTERNATING
            else rows.chunk(2, dim=1)
        )
        yield f"{stem}.experts.gate_proj.{kind}", gate.contiguous()
        yield f"{stem}.experts.up_proj.{kind}", up.contiguous()


def _heads_apart(stem: str, values: Tensor, config: Any) -> Iterator[tuple[str, Tensor]]:
    """Latent attention: a matrix for each head, those of keys turned."""
    nope = config.qk_nope_head_dim
    heads = values.unflatten(0, (config.num_attention_heads, -1))
    yield f"{stem}.k_b_proj.weight", heads[:, :nope].transpose(1, 2).contiguous()
    yield f"{stem}.v_b_proj.weight", heads[:, nope:].contiguous()


def imported(state: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
    """The state of a model again, of what `exported` made."""
    is_turned = config.model_type in _TURNED
    result: dict[str, Tensor] = {}
    for name, values in state.items():
        stem, _, ending = name.partition(".experts.")
        if name.endswith(".k_b_proj.weight"):
            own = name.removesuffix(".k_b_proj.weight")
            heads = [values.transpose(1, 2), state[f"{own}.v_b_proj.weight"]]
            result[own + _LATENT] = torch.cat(heads, dim=1).flatten(0, 1)
        elif not ending and not name.endswith(".v_b_proj.weight"):
            result[_original(name)] = values
        if not ending:
            continue
        part, _, kind = ending.partition(".")
        rows = values
        if part == "up_proj":
            continue
        if part == "gate_proj":
            up = state[f"{stem}.experts.up_proj.{kind}"]
            rows = torch.cat([values, up], dim=1)
            if config.model_type == _ALTERNATING:
                rows = torch.stack([values, up], dim=2).flatten(1, 2)
            part = "gate_up_proj"
        if is_turned and kind == "weight":
            rows = rows.transpose(1, 2).contiguous()
        result[f"{stem}.experts.{part}" + ("_bias" if kind == "bias" else "")] = rows
    return result


def _renamed(name: str) -> str:
    """Parameters without an ending get one, as gguf's table of names wants it."""
    if name.endswith(".e_score_correction_bias"):
        return name.replace(".e_score_correction_bias", ".e_score_correction.bias")
    if name.endswith(".block_sparse_moe.router.weight"):
        return name.replace(".router.", ".router.layer.")
    return f"{name}.weight" if name.endswith(".sinks") else name


def _original(name: str) -> str:
    if name.endswith(".e_score_correction.bias"):
        return name.replace(".e_score_correction.bias", ".e_score_correction_bias")
    name = name.replace(".block_sparse_moe.router.layer.", ".block_sparse_moe.router.")
    return name.removesuffix(".weight") if name.endswith(".sinks.weight") else name
