"""Arithmetic of templates, bounded before it is carried out.

Owns the operators that can make much out of little: `+ * ** %`.
Used by: sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.exceptions import SecurityError

from octavo.chat.messages import CallArguments, text_of_arguments
from octavo.chat.render_budget import LIST_ITEM, RenderBudget

MAX_BITS = 4096  # of an integer
MAX_WIDTH = 1000  # of a formatted field
CONVERSION = re.compile(r"%(?:\([^()]*\))?[-#0 +]*([*\d]*)(?:\.([*\d]*))?[hlL]?[a-zA-Z%]")


def add(budget: RenderBudget, left: Any, right: Any) -> Any:
    """`left + right`.

    Where a text meets an object, the object is written as JSON: templates that expect the arguments
    of a tool call as text join them so, and others read them as an object.
    """
    if isinstance(left, str):
        if isinstance(right, CallArguments):
            right = text_of_arguments(right)
        elif isinstance(right, dict):
            budget.weigh(right)
            right = json.dumps(right, ensure_ascii=False)
        if isinstance(right, str):
            budget.tick(len(left) + len(right))
    elif isinstance(left, list) and isinstance(right, list):
        budget.tick((len(left) + len(right)) * LIST_ITEM)
    elif isinstance(left, tuple):
        raise SecurityError("tuples cannot be joined in chat templates")
    return left + right


def multiply(budget: RenderBudget, left: Any, right: Any) -> Any:
    """`left * right`, which repeats text and lists."""
    if isinstance(right, str | list | tuple):
        left, right = right, left
    if isinstance(left, str | list | tuple) and isinstance(right, int):
        if isinstance(left, tuple):
            raise SecurityError("tuples cannot be repeated in chat templates")
        budget.tick((budget.weigh(left) + 1) * max(right, 0))
    elif isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def power(budget: RenderBudget, left: Any, right: Any) -> Any:
    """`left ** right`."""
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 0))
    return left**right


def modulo(budget: RenderBudget, left: Any, right: Any) -> Any:
    """`left % right`: a remainder, or a text formatted as by printf."""
    if isinstance(left, str):
        check_printf(budget, left, right)
        text: str = left % right
        budget.tick(len(text))
        return text
    return left % right


def check_printf(budget: RenderBudget, template: str, values: object) -> None:
    """Refuse wide fields, and charge what the values may come to."""
    num_fields = 0
    for match in CONVERSION.finditer(template):
        num_fields += 1
        for width in match.groups():
            if width and ("*" in width or int(width) > MAX_WIDTH):
                raise SecurityError(f"fields are at most {MAX_WIDTH} wide in chat templates")
    # A mapping may be named by every field, other values are used once.
    uses = num_fields if isinstance(values, Mapping) else 1
    budget.tick(len(template) + budget.weigh(values) * uses)


def _check_bits(num_bits: int) -> None:
    if num_bits > MAX_BITS:
        raise SecurityError(f"numbers have at most {MAX_BITS} bits in chat templates")


OPERATORS: Mapping[str, Callable[[RenderBudget, Any, Any], Any]] = {
    "+": add,
    "*": multiply,
    "**": power,
    "%": modulo,
}
