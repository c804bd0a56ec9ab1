"""Texts -> values of options, wherever the text comes from: command line, file or environment.

Does not know which options there are: whoever asks gives name and type.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from octavo.config.engine import AUTO_LENGTH
from octavo.config.field import flag_name, option_info
from octavo.errors import ConfigError
from octavo.foundation.quantities import parse_count

Shape = Literal["switch", "value", "list", "object"]
"""On or off; one text; several texts; an object of JSON."""

SHORT: Mapping[str, tuple[str, ...]] = {
    "api_server_count": ("-asc",),
    "attention_config": ("-ac",),
    "compilation_config": ("-cc",),
    "data_parallel_address": ("-dpa",),
    "data_parallel_backend": ("-dpb",),
    "data_parallel_external_lb": ("-dpe",),
    "data_parallel_hybrid_lb": ("-dph",),
    "data_parallel_multi_port_external_lb": ("-dpm",),
    "data_parallel_rank": ("-dpn",),
    "data_parallel_rpc_port": ("-dpp",),
    "data_parallel_size": ("-dp",),
    "data_parallel_size_local": ("-dpl",),
    "data_parallel_start_rank": ("-dpr",),
    "decode_context_parallel_size": ("-dcp",),
    "diffusion_config": ("-dc",),
    "enable_expert_parallel": ("-ep",),
    "nnodes": ("-n",),
    "node_rank": ("-r",),
    "optimization_level": ("-O",),
    "pipeline_parallel_size": ("-pp",),
    "prefill_context_parallel_size": ("-pcp",),
    "quantization": ("-q",),
    "speculative_config": ("-sc",),
    "tensor_parallel_size": ("-tp",),
}
"""Short flags as vLLM has them, by option."""
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def shape_of(field: dataclasses.Field[Any], hint: Any) -> Shape:
    """How the value of a config's field is written."""
    kind = plain_kind(hint)
    if kind is bool:
        return "switch"
    if typing.get_origin(kind) is tuple:
        return "list"
    return "object" if option_info(field).is_json else "value"


def plain_kind(hint: Any) -> Any:
    """`int | None` -> int."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def value_of(text: str | tuple[str, ...], field_name: str, hint: Any) -> Any:
    """The value of a field; a list may be one text with commas. Raises ConfigError."""
    kind = plain_kind(hint)
    if typing.get_origin(kind) is tuple:
        return tuple(text.split(",")) if isinstance(text, str) else text
    assert isinstance(text, str), "only lists have several texts"
    if kind is bool:
        return switch_of(text, flag_name(field_name))
    return scalar_of(text, field_name, kind)


def switch_of(text: str, flag: str) -> bool:
    """On or off. Raises ConfigError."""
    lowered = text.lower().strip()
    if lowered in _ON:
        return True
    if lowered in _OFF:
        return False
    raise ConfigError(f"{flag} is on or off, got {text!r}")


def scalar_of(text: str, field_name: str, kind: Any) -> Any:
    """A count, a number, or the text itself. Raises ConfigError."""
    flag = flag_name(field_name)
    if field_name == "max_model_len" and text.lower().strip() == "auto":
        return AUTO_LENGTH
    if kind is int:
        return parse_count(text, flag)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{flag} takes a number, got {text!r}") from None
    return text
