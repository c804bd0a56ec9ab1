"""Names of tool dialects, and the one that a chat template speaks.

The names are vLLM's `--tool-call-parser` values. A new dialect is one line in `DIALECTS`, and one
in `_MARKS` if its template can be told by a mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from octavo.chat.tools.base import ToolDialect
from octavo.chat.tools.json_tags import (
    DeepSeek,
    Granite,
    Harmony,
    Hermes,
    LlamaJson,
    Mistral,
    Phi4Mini,
)
from octavo.chat.tools.pythonic import Llama4Pythonic, Pythonic
from octavo.chat.tools.xml_tags import Qwen3Coder
from octavo.errors import ConfigError

DIALECTS: Mapping[str, type[ToolDialect]] = MappingProxyType(
    {
        "hermes": Hermes,
        "llama3_json": LlamaJson,
        "llama4_json": LlamaJson,
        "llama4_pythonic": Llama4Pythonic,
        "pythonic": Pythonic,
        "mistral": Mistral,
        "qwen3_coder": Qwen3Coder,
        "qwen3_xml": Qwen3Coder,
        "deepseek_v3": DeepSeek,
        "deepseek_v31": DeepSeek,
        "openai": Harmony,
        "granite": Granite,
        "granite4": Hermes,
        "phi4_mini_json": Phi4Mini,
    }
)
# What stands in a template -> its dialect; the first mark that is found decides.
_MARKS = (
    ("<function=", "qwen3_coder"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v3"),
    ("<|channel|>", "openai"),
    ("<|tool_call|>", "granite"),
    ("functools[", "phi4_mini_json"),
    ("<|python_start|>", "llama4_pythonic"),
    ("<|python_tag|>", "llama3_json"),
)


def find_dialect(name: str) -> ToolDialect:
    """The dialect of this name.

    Raises ConfigError that lists the names.
    """
    if name not in DIALECTS:
        known = ", ".join(sorted(DIALECTS))
        raise ConfigError(f"--tool-call-parser must be one of {known}, got {name!r}")
    return DIALECTS[name]()


def dialect_of_template(template: str | None) -> str | None:
    """The name of the dialect that a chat template teaches its model; None if it has no tools."""
    for mark, name in _MARKS:
        if template is not None and mark in template:
            return name
    return None
