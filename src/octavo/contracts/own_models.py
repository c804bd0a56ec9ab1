"""Models that users bring: architecture -> class, for whoever reads a checkpoint or computes it.

Owns the table, what may be entered in it, and the plugins of installed packages that enter
something. Does not know what a class computes (`models/base.py` has its contract) nor how its
checkpoint is read (`weights/hf_families.py`): both look their part up on the class.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError
from octavo.foundation.named_object import named_object
from octavo.foundation.plugins import installed_plugins

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGIN_GROUP = "octavo.models"
"""Entry points of installed packages in this group are called once in a process that loads
models."""
_MODELS: dict[str, str | type[Any]] = {}
_GUIDE = "docs/adding-a-model.md shows one"

logger = logging.getLogger(__name__)


def register(architecture: str, model: str | type[Any]) -> None:
    """Enter a model: `architecture` is what `architectures` in config.json says.

    `model` is its class, or "module:Class", which is imported when a checkpoint asks for it. A
    model of Octavo's, or one that was registered before, is replaced.

    Raises ConfigError for a name or a target that can be none.
    """
    if not isinstance(architecture, str) or not architecture.isidentifier():
        raise ConfigError(
            f"register: architecture must be a name as in config.json, got {architecture!r}"
        )
    if isinstance(model, str):
        module, colon, name = model.partition(":")
        if not (module and colon and name.isidentifier()):
            raise ConfigError(f"register {architecture}: model must be module:Class, got {model!r}")
    else:
        _check_class(architecture, model)
    before = _MODELS.get(architecture, model)
    if before != model:
        logger.warning("the model %s was %s and is now %s", architecture, before, model)
    _MODELS[architecture] = model


def is_registered(architecture: str) -> bool:
    """Whether a user's class computes `architecture`."""
    return architecture in _MODELS


def registered_names() -> list[str]:
    """Architectures that users' classes compute."""
    return sorted(_MODELS)


def registered_class(architecture: str) -> type[Any] | None:
    """The class of a user that computes `architecture`; None where there is none.

    Raises ConfigError that names the target when it cannot be imported or is no model.
    """
    model = _MODELS.get(architecture)
    if not isinstance(model, str):
        return model
    found = named_object(model, f"the model {architecture} is registered as {model}")
    _check_class(architecture, found)
    _MODELS[architecture] = found
    return found if isinstance(found, type) else None


@cache
def load_plugins() -> tuple[str, ...]:
    """Call the functions of all installed plugins, once in this process.

    One that fails does not keep the others, or models that need none, from working: it is told as
    a warning and here, in a sentence that names its distribution.
    """
    failures = []
    for plugin in installed_plugins(PLUGIN_GROUP):
        try:
            _call(plugin)
        except Exception as error:  # noqa: BLE001 - what a plugin raises is its own affair
            failures.append(_told(plugin, error))
            logger.warning("%s", failures[-1])
    return tuple(failures)


def _call(plugin: EntryPoint) -> None:
    function: Any = plugin.load()
    if isinstance(function, type) or not callable(function):
        raise TypeError(
            "it must be a function without arguments that calls octavo.models.register, got "
            f"{function!r}"
        )
    function()


def _told(plugin: EntryPoint, error: Exception) -> str:
    brought_by = "" if plugin.dist is None else f" of the package {plugin.dist.name}"
    return (
        f"the plugin {plugin.name}{brought_by} ({plugin.value}), which brings models, failed: "
        f"{type(error).__name__}: {error}; mend or remove the package"
    )


def _check_class(architecture: str, found: object) -> None:
    if not isinstance(found, type) or not callable(getattr(found, "forward", None)):
        raise ConfigError(
            f"the model {architecture}: {found!r} is no model: it must be a class with "
            f"__init__(facts, weights, max_model_len) and forward(ops); {_GUIDE}"
        )
