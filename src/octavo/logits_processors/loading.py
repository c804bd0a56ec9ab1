"""From `--logits-processors` and installed plugins to classes, and the checks of requests by them.

Does not know rows or logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.config.field import flag_name
from octavo.errors import ConfigError, InvalidRequestError
from octavo.foundation.named_object import named_object
from octavo.foundation.plugins import installed_plugins
from octavo.logits_processors.base import AdapterLogitsProcessor
from octavo.sampling_params import FIELD_DEFAULTS, SamplingParams, shown

PLUGIN_GROUP = "octavo.logits_processors"
"""Entry points of installed packages in this group are loaded into every engine that makes text."""
FLAG = flag_name("logits_processors")
ProcessorClass = type[AdapterLogitsProcessor]
_NOT_PASSED_ON = frozenset({"output_kind", "structured_outputs"})


def load_classes(named: Sequence[str | type[Any]]) -> tuple[ProcessorClass, ...]:
    """The classes that are named, `module:Class` or the class itself, in their order.

    Raises ConfigError that says which name is wrong, and why.
    """
    return tuple(
        _checked(named_object(name, f"{FLAG} {name}") if isinstance(name, str) else name)
        for name in named
    )


def with_plugins(named: Sequence[str | type[Any]]) -> tuple[ProcessorClass, ...]:
    """The same after those of installed packages. Each class comes once."""
    plugins = []
    for plugin in installed_plugins(PLUGIN_GROUP):
        try:
            plugins.append(_checked(plugin.load()))
        except Exception as error:  # a border: what a package raises on import is its own affair
            raise ConfigError(
                f"the logits processor {plugin.name} ({plugin.value}), which an installed package "
                f"brings, cannot be loaded: {error}; mend or remove the package"
            ) from error
    return tuple(dict.fromkeys([*plugins, *load_classes(named)]))


def _checked(found: object) -> ProcessorClass:
    if isinstance(found, type) and issubclass(found, AdapterLogitsProcessor):
        return found
    raise ConfigError(
        f"{FLAG}: {shown(found)} is no logits processor; derive the class from "
        "octavo.logits_processors.AdapterLogitsProcessor, which works on one request at a time"
    )


def check_request(classes: Sequence[ProcessorClass], params: SamplingParams) -> None:
    """Refuse what no loaded class reads, and what one of them refuses.

    Raises InvalidRequestError that names the argument.
    """
    known = [name for processor in classes for name in processor.extra_args]
    for name in params.extra_args or ():
        if name not in known:
            names = f"; known: {', '.join(known)}" if known else ""
            raise InvalidRequestError(
                f"extra_args: no loaded logits processor reads {shown(name)}{names}. Leave it out, "
                f"or start the engine with the {FLAG} that reads it",
                param="extra_args",
            )
    for processor in classes:
        try:
            processor.validate_params(params)
        except InvalidRequestError:
            raise
        except ValueError as error:
            raise InvalidRequestError(
                f"extra_args: {processor.__name__} refuses the request: {error}", param="extra_args"
            ) from error


def passed_params(params: SamplingParams) -> dict[str, Any]:
    """The fields that are not at their default, as `SamplingSpec.processor_params` carries them."""
    return {
        name: getattr(params, name)
        for name, default in FIELD_DEFAULTS.items()
        if name not in _NOT_PASSED_ON and getattr(params, name) != default
    }
