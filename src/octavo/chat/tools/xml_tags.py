"""Dialects whose calls are XML-like tags with one tag for each parameter.

Values are bare text, so the schema of the parameter decides whether `7` is a number or a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from octavo.chat.tools.base import MalformedCallError, ToolCall, ToolDialect, Tools, call_of

_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)


class Qwen3Coder(ToolDialect):
    """`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`:
    Qwen3-Coder.
    """

    begins = ("<tool_call>",)
    end = "</tool_call>"

    def is_open(self, body: str) -> bool:
        return "<function=" in body and "</function>" not in body

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        calls = []
        for name, parameters in _FUNCTION.findall(body):
            arguments = {
                key: _value(text, tools.schema_of(name, key))
                for key, text in _PARAMETER.findall(parameters)
            }
            calls.append(call_of(name, arguments))
        if not calls:
            raise MalformedCallError("no function")
        return calls


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """A parameter's text in the type that its schema asks for; as it is where that fails."""
    text = text.removeprefix("\n").removesuffix("\n")
    kinds = schema.get("type", "string" if not schema else None)
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        lowered = text.strip().lower()
        return {"true": True, "false": False, "none": None}.get(lowered, text)
