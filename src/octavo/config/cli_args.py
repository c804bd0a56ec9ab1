"""Config dataclasses -> command line options, and parsed options -> config dataclasses.

A flag is the field's name with dashes; booleans have a `--no-` form; counts take `8k` and `8K`.
The order of precedence is: command line, then `OCTAVO_<FLAG>` in the environment, then the default.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import sys
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from octavo.config.field import flag_name, option_info
from octavo.errors import ConfigError
from octavo.foundation import env
from octavo.foundation.quantities import parse_count

C = TypeVar("C")

ALIASES = {
    "max_model_len": ("-c", "--ctx-size"),
    "threads": ("-t",),
    "served_model_name": ("--alias",),
}
AUTO_IS_MINUS_ONE = frozenset({"max_model_len"})


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors name the nearest known flag and end with exit code 2."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            flag = unknown.split()[0].split("=")[0]
            near = difflib.get_close_matches(flag, self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            kind = "option" if flag.startswith("-") else "argument"
            message = f"unknown {kind} {flag}{hint}"
        self.exit(2, f"{self.prog}: {message}\nSee {self.prog} --help\n")


def add_options(parser: argparse.ArgumentParser, config: type, *, skip: Iterable[str] = ()) -> None:
    """One option per field of a config dataclass, in a group named by its docstring."""
    title = (config.__doc__ or config.__name__).splitlines()[0].rstrip(".")
    group = parser.add_argument_group(title)
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if field.name in skip or "option" not in field.metadata:
            continue
        if option_info(field).on_command_line:
            _add_option(group, field, hints[field.name])


def build(config: type[C], arguments: argparse.Namespace, **more: Any) -> C:
    """A config dataclass from parsed options; the environment fills what was not given.

    Raises ConfigError.
    """
    values = dict(more)
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):  # type: ignore[arg-type]  # every config is a dataclass
        if field.name in values or "option" not in field.metadata:
            continue
        if getattr(arguments, field.name, None) is not None:
            values[field.name] = getattr(arguments, field.name)
            continue
        text = env.flag_value(flag_name(field.name))
        if text is not None:
            values[field.name] = _from_environment(text, field.name, hints[field.name])
    return config(**values)


def warn(message: str) -> None:
    """One line about an option that has no effect here."""
    print(f"octavo: {message}", file=sys.stderr)  # noqa: T201 - logging is not set up yet


def _add_option(group: Any, field: dataclasses.Field[Any], hint: Any) -> None:
    info, flag = option_info(field), flag_name(field.name)
    text = info.help.replace("%", "%%")
    if field.default not in (None, (), ""):
        text += f" [{field.default}]"
    names = (flag, *ALIASES.get(field.name, ()))
    kind = _plain(hint)
    if kind is bool:
        group.add_argument(
            *names, dest=field.name, action=argparse.BooleanOptionalAction, default=None, help=text
        )
    elif typing.get_origin(kind) is tuple:
        group.add_argument(
            *names, dest=field.name, nargs="+", action=_Extend, metavar="VALUE", help=text
        )
    else:
        group.add_argument(
            *names,
            dest=field.name,
            type=_Reader(field.name, kind),
            metavar=info.metavar or _metavar(kind, info.choices),
            help=text,
        )


class _Extend(argparse.Action):
    """Collects the values of a flag that may be given again, each time with one or more values."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        before = getattr(namespace, self.dest) or ()
        setattr(namespace, self.dest, (*before, *values))


class _Reader:
    """Turns a flag's text into its value; argparse prints the error."""

    def __init__(self, field_name: str, kind: Any) -> None:
        self._field_name, self._kind = field_name, kind

    def __call__(self, text: str) -> Any:
        try:
            return _read(text, self._field_name, self._kind)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None


def _from_environment(text: str, field_name: str, hint: Any) -> Any:
    """The value of a variable. An error names it: whoever reads it may never have set it.

    A Kubernetes service called `octavo` sets OCTAVO_PORT in every pod, to a URL.
    """
    try:
        return _from_text(text, field_name, hint)
    except ConfigError as error:
        name = env.flag_variable(flag_name(field_name))
        raise ConfigError(f"{error} in the environment variable {name}") from None


def _from_text(text: str, field_name: str, hint: Any) -> Any:
    kind = _plain(hint)
    if kind is bool:
        lowered = text.lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off"):
            return False
        raise ConfigError(f"{flag_name(field_name)} is on or off, got {text!r}")
    if typing.get_origin(kind) is tuple:
        return tuple(text.split(","))
    return _read(text, field_name, kind)


def _read(text: str, field_name: str, kind: Any) -> Any:
    flag = flag_name(field_name)
    if field_name in AUTO_IS_MINUS_ONE and text == "auto":
        return -1
    if kind is int:
        return parse_count(text, flag)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{flag} takes a number, got {text!r}") from None
    return text


def _plain(hint: Any) -> Any:
    """`int | None` -> int."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _metavar(kind: Any, choices: Sequence[str] | None) -> str:
    if choices is not None:
        return "{" + ",".join(choices) + "}"
    return {int: "N", float: "X"}.get(kind, "TEXT")
