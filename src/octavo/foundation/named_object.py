"""Objects that users name by "module:name"."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from octavo.errors import ConfigError


def named_object(target: str, told: str) -> Any:
    """What "module:name" names; the name may have dots.

    `told` begins the errors. Raises ConfigError for a target of another form, for a module that
    cannot be imported and for one without such a name.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise ConfigError(f"{told}: must be module:Class, got {target!r}")
    try:
        found: Any = import_module(module)
    except Exception as error:  # a border: what a module raises on import is its own affair
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{told}: {module} cannot be imported: {reason}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ConfigError(f"{told}: {module} has no {name}")
    return found
