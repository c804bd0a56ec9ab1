"""What was set elsewhere than on the command line: in a file of `--config`, in the environment.

Owns the order: the file comes before the environment. Values are texts; `texts.py` reads them.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from octavo.config.field import flag_name
from octavo.errors import ConfigError
from octavo.foundation import env


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, and where it stands."""

    value: str | tuple[str, ...]
    where: str  # "in launch.yaml:3", "in the environment variable OCTAVO_PORT"


@dataclass(frozen=True, slots=True)
class Sources:
    """The settings by field name. `variables` are further variables that are read, by field."""

    file: Mapping[str, Setting] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Setting | None:
        """The setting that counts."""
        if name in self.file:
            return self.file[name]
        own = env.flag_variable(flag_name(name))
        for variable in (own, self.variables.get(name, own)):
            text = env.text(variable)
            if text is not None:
                return Setting(text, f"in the environment variable {variable}")
        return None


def sources_of(arguments: Namespace) -> Sources:
    """The sources beside parsed arguments; a plain argparse parser knows the environment alone."""
    sources = getattr(arguments, "sources", None)
    return sources if isinstance(sources, Sources) else Sources()


@contextmanager
def naming_sources(arguments: Namespace) -> Iterator[None]:
    """An error about options says which of them come from a file or the environment, and where.

    Whoever reads it may never have given them. What the message already says is left alone.
    """
    try:
        yield
    except ConfigError as error:
        message = str(error)
        told: dict[str, None] = {}
        for flag in re.findall(r"--[a-z][a-z0-9-]*", message):
            name = flag.removeprefix("--").replace("-", "_")
            if getattr(arguments, name, None) is not None:
                continue
            setting = sources_of(arguments).find(name)
            if setting is not None and setting.where not in message:
                told[f"{flag} is set {setting.where}"] = None
        raise ConfigError("; ".join([message, *told])) from None
