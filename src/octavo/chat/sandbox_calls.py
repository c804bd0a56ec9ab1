"""Calls that templates may make, each bounded before it is carried out.

Owns the allow-list of methods and the limits of those that make much out of little.
Does not know: filters (`sandbox_filters.py`), operators.
Used by: sandbox.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.sandbox import SandboxedFormatter
from jinja2.utils import Cycler, Joiner

from octavo.chat.sandbox_context import MeteredContext
from octavo.chat.sandbox_globals import TemplateDict
from octavo.chat.sandbox_operators import MAX_WIDTH

MAX_STRIPPED = 64  # different characters that strip() looks for

# Methods that make no more than their object and arguments hold.
# fmt: off
PLAIN_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha",
        "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable",
        "isspace", "istitle", "isupper", "lower", "partition", "removeprefix", "removesuffix",
        "rfind", "rindex", "rpartition", "rsplit", "split", "splitlines", "startswith", "swapcase",
        "title", "upper",
    }),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
    int: frozenset({"bit_length", "is_integer"}),
    float: frozenset({"is_integer"}),
}
# fmt: on
OBJECT_METHODS: Mapping[type, frozenset[str]] = {
    LoopContext: frozenset({"cycle", "changed"}),
    Cycler: frozenset({"next", "reset"}),
    TemplateDict: frozenset({"fromkeys"}),
}
CALLABLE_OBJECTS = (Macro, LoopContext, BlockReference, Joiner, Undefined)
BOUND = (types.BuiltinMethodType, types.MethodType)
DATA = tuple(PLAIN_METHODS)
SCOPE_ARGUMENTS = ("_loop_vars", "_block_vars")


def call_metered(
    context: MeteredContext, callee: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Carry out a call. Raises SecurityError for a callee that is not on the list."""
    receiver = getattr(callee, "__self__", None) if isinstance(callee, BOUND) else None
    if isinstance(receiver, DATA):
        return _call_method(context, callee, args, _own(kwargs))
    if isinstance(callee, BoundFormat):
        return callee.format(context, args, _own(kwargs))
    if not _is_known(context, callee, receiver):
        name = getattr(callee, "__name__", type(callee).__name__)
        raise SecurityError(f"{name} cannot be called in chat templates")
    if isinstance(receiver, LoopContext):  # loop.changed() compares
        for value in args:
            context.comparable(value)
    return context.made(context.call(callee, *args, **kwargs))


def _own(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the template wrote, without those that generated code adds for Jinja."""
    return {name: value for name, value in kwargs.items() if name not in SCOPE_ARGUMENTS}


def _is_known(context: MeteredContext, callee: Any, receiver: Any) -> bool:
    """Objects of Jinja, and the functions that are globals of the template."""
    if receiver is not None:
        return any(
            isinstance(receiver, kind) and callee.__name__ in names
            for kind, names in OBJECT_METHODS.items()
        )
    if isinstance(callee, CALLABLE_OBJECTS):
        return True
    return any(callee is known for known in context.environment.globals.values())


def _call_method(
    context: MeteredContext, method: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    receiver, name = method.__self__, method.__name__
    check = BOUNDED_METHODS.get(name) if isinstance(receiver, str) else None
    if check is not None:
        check(context, receiver, args, kwargs)
    elif not any(
        isinstance(receiver, kind) and name in names for kind, names in PLAIN_METHODS.items()
    ):
        kind = type(receiver).__name__
        raise SecurityError(f"{kind}.{name} is not available in chat templates")
    for value in args:
        context.comparable(value)
    result = method(*args, **kwargs)
    if isinstance(receiver, str) and isinstance(result, list):
        context.tick(len(receiver))
    return context.made(result)


def _argument(
    args: Sequence[Any], kwargs: Mapping[str, Any], place: int, name: str, default: Any = None
) -> Any:
    return args[place] if place < len(args) else kwargs.get(name, default)


def _padded(
    context: MeteredContext, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    width = _argument(args, kwargs, 0, "width", 0)
    if isinstance(width, int):
        context.tick(max(width, 0))


def _tabs(
    context: MeteredContext, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    size = _argument(args, kwargs, 0, "tabsize", 8)
    if isinstance(size, int):
        context.tick(text.count("\t") * max(size, 0))


def _replaced(
    context: MeteredContext, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    old, new = _argument(args, kwargs, 0, "old"), _argument(args, kwargs, 1, "new")
    if isinstance(old, str) and isinstance(new, str):
        context.tick(text.count(old) * len(new))


def _joined(
    context: MeteredContext, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    items = _argument(args, kwargs, 0, "iterable", ())
    if not isinstance(items, list | tuple | dict | str):
        raise SecurityError("str.join takes a list in chat templates")
    context.tick(len(text) * len(items) + context.budget.weigh(items))


def _stripped(
    context: MeteredContext, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    wanted = _argument(args, kwargs, 0, "chars")
    if isinstance(wanted, str) and len(wanted) > MAX_STRIPPED:
        raise SecurityError(f"strip takes at most {MAX_STRIPPED} characters in chat templates")


BOUNDED_METHODS: Mapping[str, Callable[..., None]] = {
    "center": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "expandtabs": _tabs,
    "replace": _replaced,
    "join": _joined,
    "strip": _stripped,
    "lstrip": _stripped,
    "rstrip": _stripped,
}


@dataclass(frozen=True, slots=True)
class BoundFormat:
    """`text.format` or `text.format_map`, not yet called."""

    text: str
    is_map: bool

    @classmethod
    def of(cls, value: object) -> BoundFormat | None:
        """The bound method as one of ours, None for anything else."""
        if not isinstance(value, types.BuiltinMethodType | types.MethodType):
            return None
        if value.__name__ not in ("format", "format_map") or not isinstance(value.__self__, str):
            return None
        return cls(value.__self__, value.__name__ == "format_map")

    def format(
        self, context: MeteredContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> str:
        """The formatted text."""
        if self.is_map:
            (kwargs,), args = args, ()
        return _MeteredFormatter(context).vformat(self.text, args, kwargs)


class _MeteredFormatter(SandboxedFormatter):
    """Charges each field; wide ones are refused."""

    def __init__(self, context: MeteredContext) -> None:
        super().__init__(context.environment)
        self._context = context

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._context.budget.weigh(value)
        return Formatter.convert_field(self, value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        self._context.budget.weigh(value)
        digits = "".join(sign if sign.isdigit() else " " for sign in format_spec).split()
        if any(len(number) > 4 or int(number) > MAX_WIDTH for number in digits):
            raise SecurityError(f"fields are at most {MAX_WIDTH} wide in chat templates")
        text: str = format(value, format_spec)
        self._context.tick(len(text))
        return text
