"""Filters and tests that templates may use, each bounded before it is carried out.

Owns the allow-list of Jinja's filters and the replacements of those that make much out of little.
Does not know: methods and operators.
Used by: sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from jinja2 import filters, pass_context
from jinja2.exceptions import FilterArgumentError, SecurityError

from octavo.chat.render_budget import LIST_ITEM
from octavo.chat.sandbox_context import MeteredContext
from octavo.chat.sandbox_operators import check_printf

MAX_STRIPPED = 64
MAX_PRECISION = 30  # decimal places
MAX_SEPARATOR = 64  # characters of an indentation or a separator of JSON

# fmt: off
# Filters that take any value and make no more than it holds.
PLAIN = (
    "abs", "attr", "count", "d", "default", "first", "float", "int", "items", "last", "length",
    "map", "random", "reject", "rejectattr", "reverse", "select", "selectattr",
)
# The same, of a value as text.
TEXTUAL = (
    "capitalize", "e", "escape", "forceescape", "lower", "safe", "string", "title", "truncate",
    "upper", "wordcount",
)
# Filters that compare items with each other, or hash them: the items are weighed first.
COMPARING = ("dictsort", "groupby", "max", "min", "sort", "unique")
COMPARING_TESTS = (
    "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt", "lessthan",
    "<=", "le", "in",
)
# fmt: on


def metered_filters() -> dict[str, Callable[..., Any]]:
    """The filters of an environment by name."""
    known = filters.FILTERS
    plain = {name: _plain(known[name]) for name in PLAIN}
    textual = {name: _textual(known[name]) for name in TEXTUAL}
    comparing = {name: _comparing(known[name]) for name in COMPARING}
    return {**plain, **textual, **comparing, **_REPLACED}


def metered_tests(tests: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Jinja's tests, those that compare bounded."""
    return {
        name: _comparing_test(test) if name in COMPARING_TESTS else test
        for name, test in tests.items()
    }


def _arguments_of(context: MeteredContext, function: Any) -> tuple[Any, ...]:
    """What a function of Jinja wants before its value."""
    kind = getattr(function, "jinja_pass_arg", None)
    if kind is None:
        return ()
    wanted = {"context": context, "eval_context": context.eval_ctx}
    return (wanted.get(kind.name, context.environment),)


def _plain(function: Any) -> Callable[..., Any]:
    @pass_context
    @wraps(function, assigned=(), updated=())
    def metered(context: MeteredContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        return context.made(function(*_arguments_of(context, function), value, *args, **kwargs))

    return metered


def _textual(function: Any) -> Callable[..., Any]:
    @pass_context
    @wraps(function, assigned=(), updated=())
    def metered(context: MeteredContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        text = value if hasattr(value, "__html__") else context.text(value)
        return context.made(function(*_arguments_of(context, function), text, *args, **kwargs))

    return metered


def _comparing(function: Any) -> Callable[..., Any]:
    @pass_context
    @wraps(function, assigned=(), updated=())
    def metered(context: MeteredContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(value, dict):
            value = list(value)
        context.comparable(value)
        return context.made(function(*_arguments_of(context, function), value, *args, **kwargs))

    return metered


def _comparing_test(function: Any) -> Callable[..., Any]:
    @pass_context
    def metered(context: MeteredContext, *values: Any) -> Any:
        return function(*map(context.comparable, values))

    return metered


@pass_context
def _center(context: MeteredContext, value: object, width: int = 80) -> str:
    text = context.text(value)
    context.tick(max(width, 0))
    return text.center(width)


@pass_context
def _format(context: MeteredContext, value: object, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise FilterArgumentError("format takes values by place or by name, not both")
    text = context.text(value)
    check_printf(context.budget, text, kwargs or args)
    return context.text(text % (kwargs or args))


@pass_context
def _indent(
    context: MeteredContext,
    value: object,
    width: int | str = 4,
    first: bool = False,
    blank: bool = False,
) -> str:
    margin = width if isinstance(width, str) else " " * min(width, MAX_SEPARATOR)
    if len(margin) > MAX_SEPARATOR or (isinstance(width, int) and width > MAX_SEPARATOR):
        raise SecurityError(f"indent takes at most {MAX_SEPARATOR} characters in chat templates")
    text = context.text(value)
    context.tick(text.count("\n") * len(margin))
    indented: str = filters.do_indent(text, margin, first, blank)
    return context.text(indented)


@pass_context
def _join(
    context: MeteredContext,
    value: Iterable[object],
    d: str = "",
    attribute: str | int | None = None,
) -> str:
    if attribute is not None:
        value = map(filters.make_attrgetter(context.environment, attribute), value)
    parts = [context.text(item) for item in value]
    separator = context.text(d)
    context.tick(len(separator) * len(parts))
    return context.text(separator.join(parts))


@pass_context
def _list(context: MeteredContext, value: Iterable[object]) -> list[object]:
    items = []
    for item in value:
        context.tick(LIST_ITEM)
        items.append(item)
    return items


@pass_context
def _replace(
    context: MeteredContext, value: object, old: object, new: object, count: int | None = None
) -> str:
    text, old_text, new_text = context.text(value), context.text(old), context.text(new)
    context.tick(text.count(old_text) * len(new_text))
    return text.replace(old_text, new_text, -1 if count is None else count)


@pass_context
def _round(
    context: MeteredContext, value: float, precision: int = 0, method: str = "common"
) -> float:
    if abs(precision) > MAX_PRECISION:
        raise SecurityError(f"round takes at most {MAX_PRECISION} places in chat templates")
    rounded: float = filters.do_round(value, precision, method)  # type: ignore[arg-type]
    return rounded


@pass_context
def _sum(
    context: MeteredContext,
    iterable: Iterable[Any],
    attribute: str | int | None = None,
    start: int | float = 0,
) -> Any:
    if attribute is not None:
        iterable = map(filters.make_attrgetter(context.environment, attribute), iterable)
    total = start
    for item in iterable:
        if not isinstance(item, int | float):
            raise SecurityError("sum adds numbers only in chat templates")
        context.tick()
        total += item
    return total


@pass_context
def _tojson(
    context: MeteredContext,
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Transformers writes it: not made for HTML, letters of all scripts as they are."""
    width = len(indent) if isinstance(indent, str) else indent or 0
    if max(width, *map(len, separators or ("",))) > MAX_SEPARATOR:
        raise SecurityError(f"tojson takes at most {MAX_SEPARATOR} characters between values")
    context.budget.weigh(value)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        return context.text(encoder.encode(value))
    # Deep values are mostly margin: count the text while it grows.
    return "".join(map(context.text, encoder.iterencode(value)))


@pass_context
def _trim(context: MeteredContext, value: object, chars: str | None = None) -> str:
    if chars is not None and len(chars) > MAX_STRIPPED:
        raise SecurityError(f"trim takes at most {MAX_STRIPPED} characters in chat templates")
    return context.text(value).strip(chars)


_REPLACED: Mapping[str, Callable[..., Any]] = {
    "center": _center,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "list": _list,
    "replace": _replace,
    "round": _round,
    "sum": _sum,
    "tojson": _tojson,
    "trim": _trim,
}
