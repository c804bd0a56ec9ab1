"""The table of environment variables: name, type, default, sentence. The only reader of os.environ.

Flags of the command line have variables of their own (`--max-num-seqs` is `OCTAVO_MAX_NUM_SEQS`);
those are read where the flags are parsed, through `flag_value`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EnvVariable:
    """One row of the table."""

    name: str
    help: str


CACHE = EnvVariable("OCTAVO_CACHE", "Folder of downloaded models; default ~/.cache/octavo.")
CPU_ISA = EnvVariable("OCTAVO_CPU_ISA", "Instruction set to use instead of the best one found.")
LOG_LEVEL = EnvVariable("OCTAVO_LOG_LEVEL", "Level of log messages: debug, info, warning, error.")
LOG_INTERVAL = EnvVariable(
    "OCTAVO_LOG_STATS_INTERVAL", "Seconds between statistics lines of a busy server; default 10."
)

VARIABLES = (CACHE, CPU_ISA, LOG_LEVEL, LOG_INTERVAL)


def value(variable: EnvVariable) -> str | None:
    """The variable's text; an empty one counts as unset."""
    return text(variable.name)


def cache_folder() -> Path:
    """Where downloaded models lie."""
    own = value(CACHE)
    if own is not None:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "octavo"


def flag_value(flag: str) -> str | None:
    """The value of `--some-flag` from `OCTAVO_SOME_FLAG`; an empty one counts as unset."""
    return text(flag_variable(flag))


def text(name: str) -> str | None:
    """The text of a variable by its name; an empty one counts as unset."""
    return os.environ.get(name) or None


def names_beginning(prefix: str) -> list[str]:
    """The names of the variables that are set and begin so."""
    return sorted(name for name, value in os.environ.items() if value and name.startswith(prefix))


def flag_variable(flag: str) -> str:
    """`--some-flag` -> `OCTAVO_SOME_FLAG`."""
    return "OCTAVO_" + flag.lstrip("-").replace("-", "_").upper()
