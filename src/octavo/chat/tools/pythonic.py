"""Dialects whose calls are written as Python: `[get_weather(city="Paris"), now()]`.

The text is parsed, never evaluated: only literals may be arguments.
"""

from __future__ import annotations

import ast
from typing import ClassVar

from octavo.chat.tools.base import MalformedCallError, ToolCall, ToolDialect, Tools, call_of

_MAX_CHARS = 100_000  # Python's own parser recurses


class Pythonic(ToolDialect):
    """A list of calls as the whole answer: Llama 3.2, Llama 4, ToolACE, OLMo 3."""

    begins: ClassVar[tuple[str, ...]] = ("[",)
    only_at_start = True
    keeps_begin = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        return _calls(body)


class Llama4Pythonic(Pythonic):
    """The same between `<|python_start|>` and `<|python_end|>`, or bare."""

    begins = ("<|python_start|>", "[")
    has_special_tags = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        return _calls(body.removeprefix("<|python_start|>").partition("<|python_end|>")[0])


def _calls(text: str) -> list[ToolCall]:
    if len(text) > _MAX_CHARS:
        raise MalformedCallError("too long")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedCallError(str(error)) from None
    if not isinstance(tree.body, ast.List) or not tree.body.elts:
        raise MalformedCallError("not a list of calls")
    return [_call(node) for node in tree.body.elts]


def _call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or node.args:
        raise MalformedCallError("not a call with named arguments")
    try:
        arguments = {
            keyword.arg: ast.literal_eval(keyword.value)
            for keyword in node.keywords
            if keyword.arg is not None
        }
        return call_of(ast.unparse(node.func), arguments)
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedCallError(str(error)) from None
