"""Config dataclasses -> command line options, and parsed options -> config dataclasses.

A flag is the field's name with dashes; booleans have a `--no-` form; counts take `8k` and `8K`;
`words.py` has further spellings. The order of precedence is: command line, then the file of
`--config`, then `OCTAVO_<FLAG>` in the environment, then the default.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import typing
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from octavo.config.field import flag_name, option_info
from octavo.config.sources import Setting, naming_sources, sources_of
from octavo.config.texts import SHORT, Shape, plain_kind, scalar_of, shape_of, value_of
from octavo.config.words import plain_words
from octavo.errors import ConfigError
from octavo.foundation.nearest import nearest

C = TypeVar("C")

ALIASES = {
    "max_model_len": ("-c", "--ctx-size"),
    "threads": ("-t",),
    "served_model_name": ("--alias",),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors name the nearest known flag and end with exit code 2.

    A flag is written out: what `--max-n` means today may be another flag tomorrow.

    `shapes` has the options that may also be set in a file or by a variable, by field name.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.shapes: dict[str, Shape] = {}
        self._objects: dict[str, str] = {}  # spellings of flags that take parts -> their names

    def note(self, name: str, shape: Shape, spellings: Sequence[str]) -> None:
        """Remember an option that has been added."""
        self.shapes[name] = shape
        if shape == "object":
            self._objects.update(dict.fromkeys(spellings, flag_name(name)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, after the words of vLLM's spellings are rewritten."""
        try:
            words = plain_words(sys.argv[1:] if args is None else args, self._objects)
        except ConfigError as error:
            self.error(str(error))
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            flag = unknown.split()[0].split("=")[0]
            near = nearest(flag, self._shown_flags(), most=3)
            if "--url" in self._option_string_actions and flag.startswith(("http://", "https://")):
                near = [f"--url {flag}"]
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            kind = "option" if flag.startswith("-") else "argument"
            message = f"unknown {kind} {flag}{hint}"
        self.exit(2, f"{self.prog}: {message}\nSee {self.prog} --help\n")

    def _shown_flags(self) -> list[str]:
        """Without those that are taken and have no effect."""
        return [
            flag
            for flag, action in self._option_string_actions.items()
            if flag.startswith("--") and action.help != argparse.SUPPRESS
        ]


def add_options(parser: argparse.ArgumentParser, config: type, *, skip: Iterable[str] = ()) -> None:
    """One option per field of a config dataclass, in a group named by its docstring."""
    title = (config.__doc__ or config.__name__).splitlines()[0].rstrip(".")
    group = parser.add_argument_group(title)
    hints, skipped = typing.get_type_hints(config), frozenset(skip)
    for field in dataclasses.fields(config):
        if field.name in skipped or "option" not in field.metadata:
            continue
        spellings = _add_option(group, field, hints[field.name])
        if isinstance(parser, Parser):
            parser.note(field.name, shape_of(field, hints[field.name]), spellings)


def build(config: type[C], arguments: argparse.Namespace, **more: Any) -> C:
    """A config dataclass from parsed options; file and environment fill what was not given.

    Raises ConfigError.
    """
    values, sources = dict(more), sources_of(arguments)
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):  # type: ignore[arg-type]  # every config is a dataclass
        if field.name in values or "option" not in field.metadata:
            continue
        if getattr(arguments, field.name, None) is not None:
            values[field.name] = getattr(arguments, field.name)
            continue
        setting = sources.find(field.name)
        if setting is not None:
            values[field.name] = _from_setting(setting, field.name, hints[field.name])
    with naming_sources(arguments):
        return config(**values)


def warn(message: str) -> None:
    """One line about an option that has no effect here."""
    print(f"octavo: {message}", file=sys.stderr)  # noqa: T201 - logging is not set up yet


def _add_option(group: Any, field: dataclasses.Field[Any], hint: Any) -> Sequence[str]:
    """Add one option; its spellings."""
    info, flag = option_info(field), flag_name(field.name)
    text = info.help.replace("%", "%%")
    if field.default not in (None, (), ""):
        text += f" [{field.default}]"
    names = (flag, *ALIASES.get(field.name, ()), *SHORT.get(field.name, ()))
    kind = plain_kind(hint)
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
    return names


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
            return scalar_of(text, self._field_name, self._kind)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None


def _from_setting(setting: Setting, field_name: str, hint: Any) -> Any:
    """The value of a setting. An error says where it stands: whoever reads it may not know it.

    A Kubernetes service called `octavo` sets OCTAVO_PORT in every pod, to a URL.
    """
    try:
        return value_of(setting.value, field_name, hint)
    except ConfigError as error:
        raise ConfigError(f"{error} {setting.where}") from None


def _metavar(kind: Any, choices: Sequence[str] | None) -> str:
    if choices is not None:
        return "{" + ",".join(choices) + "}"
    return {int: "N", float: "X"}.get(kind, "TEXT")
