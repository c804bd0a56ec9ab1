"""Options whose value is a JSON object, and the one that changes how a model samples by default.

Does not know the command line: `cli_args.py` joins dotted flags (`--x.y 1`) to such a text.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from octavo.config.field import flag_name
from octavo.config.wrong_field import wrong_field
from octavo.errors import ConfigError
from octavo.foundation.nearest import nearest

S = TypeVar("S", bound=msgspec.Struct)

_MOST_SHOWN = 200  # characters of a text that is no JSON

# Sampling parameters of generation_config.json that are taken over, as vLLM does.
WHOLE_NUMBERS = ("top_k", "max_new_tokens")
NUMBERS = ("repetition_penalty", "temperature", "top_p", "min_p")


def json_option(name: str, text: str | None) -> dict[str, Any]:
    """The object that an option holds; empty without one. Raises ConfigError."""
    if text is None:
        return {}
    flag = flag_name(name)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{flag} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{flag} must be a JSON object, got {text[:60]}")
    return value


def typed_option(flag: str, text: str, kind: type[S], example: str) -> S:
    """The value of an option whose object has fixed fields. Raises ConfigError naming the field."""
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        shown = repr(text[:_MOST_SHOWN])
        raise ConfigError(f"{flag} takes JSON such as '{example}', got {shown}: {error}") from None
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{flag}: {wrong_field(error, kind, given)}") from None


def generation_override(text: str | None) -> dict[str, float | int]:
    """The numbers of `--override-generation-config` by name; their ranges are not known here.

    Raises ConfigError for what is no JSON object of such numbers.
    """
    given = json_option("override_generation_config", text)
    for name, value in given.items():
        if name not in (*NUMBERS, *WHOLE_NUMBERS):
            raise ConfigError(_unknown(name))
        kinds = int if name in WHOLE_NUMBERS else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            kind = "a whole number" if name in WHOLE_NUMBERS else "a number"
            shown = json.dumps(value)[:60]
            raise ConfigError(f"--override-generation-config: {name} must be {kind}, got {shown}")
    return given


def _unknown(name: str) -> str:
    known = sorted((*NUMBERS, *WHOLE_NUMBERS))
    near = nearest(name, known)
    hint = f"did you mean {near[0]}?" if near else f"it may hold {', '.join(known)}"
    return f"--override-generation-config: {name[:60]!r} cannot be overridden; {hint}"
