"""option() makes a dataclass field with a sentence, a range and choices; check_options() checks."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from octavo.errors import ConfigError

_DEFAULT = re.compile(r"[Dd]efault: (.+?)\.?$")  # what the sentence of an option ends with


@dataclasses.dataclass(frozen=True, slots=True)
class OptionInfo:
    """What `option()` knows beyond the dataclass field."""

    help: str
    at_least: float | None = None
    at_most: float | None = None
    multiple_of: int | None = None
    choices: Sequence[str] | None = None
    metavar: str | None = None
    is_json: bool = False  # an object, as a text; its parts may be given apart


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    multiple_of: int | None = None,
    choices: Sequence[str] | None = None,
    metavar: str | None = None,
    is_json: bool = False,
) -> Any:
    """A documented field of a frozen config dataclass. `None` is always in range."""
    info = OptionInfo(help, at_least, at_most, multiple_of, choices, metavar, is_json)
    return dataclasses.field(default=default, metadata={"option": info})


def option_info(field: dataclasses.Field[Any]) -> OptionInfo:
    """The documentation of a field made by `option()`."""
    info = field.metadata["option"]
    assert isinstance(info, OptionInfo)
    return info


def flag_name(field_name: str) -> str:
    """`max_num_seqs` -> `--max-num-seqs`."""
    return "--" + field_name.replace("_", "-")


def check_options(config: Any) -> None:
    """Check every field of a config dataclass against its range and choices.

    Raises ConfigError that names the flag, the value and what would be right.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is None or "option" not in field.metadata:
            continue
        info, flag = option_info(field), flag_name(field.name)
        if info.choices is not None and value not in info.choices:
            raise ConfigError(f"{flag} must be one of {', '.join(info.choices)}, got {value!r}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not math.isfinite(value):
            raise ConfigError(f"{flag} must be a finite number, got {value}")
        if info.at_least is not None and value < info.at_least:
            default = _DEFAULT.search(info.help)
            way_out = f"; leave it out for {default[1]}" if default is not None else ""
            raise ConfigError(f"{flag} must be at least {info.at_least}, got {value}{way_out}")
        if info.at_most is not None and value > info.at_most:
            raise ConfigError(f"{flag} must be at most {info.at_most}, got {value}")
        if info.multiple_of is not None and value % info.multiple_of:
            below = int(value // info.multiple_of * info.multiple_of)
            raise ConfigError(
                f"{flag} must be a multiple of {info.multiple_of}, got {value}; use {below} or "
                f"{below + info.multiple_of}"
            )
