"""The flags that every command with an engine of its own takes, and how they are parsed.

parser = Parser(prog=...)
add_engine_flags(parser)
...                                   # the command's own flags
parsed = parse_flags(parser, arguments)
config = engine_config(parsed)
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence

from octavo.cli.vllm_flags import ENGINE_FLAGS, add_vllm_flags, explain_vllm_flags
from octavo.config.cli_args import Parser, add_options, build, warn
from octavo.config.config_file import read_config_file
from octavo.config.engine import EngineConfig
from octavo.config.keywords import PARTS
from octavo.config.server import ServerConfig
from octavo.config.sources import Sources, naming_sources, sources_of
from octavo.config.vllm_variables import READ, no_effect
from octavo.config.vllm_verdicts import VllmOption
from octavo.errors import ConfigError
from octavo.foundation import env

_CONFIG = "--config"
_ALIKE = 0.9  # how near a variable must be to one of ours to be called a slip


def add_engine_flags(parser: argparse.ArgumentParser, *, model_is_optional: bool = True) -> None:
    """The model, positional or as `--model`, and the options of the engine."""
    parser.add_argument(
        "model",
        nargs="?" if model_is_optional else None,
        help="Short name, hub id, local folder or .gguf file [smollm2:135m].",
    )
    parser.add_argument("--model", dest="model_flag", metavar="MODEL", help=argparse.SUPPRESS)
    if isinstance(parser, Parser):
        parser.note("model", "value", ("--model",))
    parser.add_argument(
        _CONFIG, metavar="FILE", action=_Once, help="YAML file of flags; the command line wins."
    )
    for part in PARTS.values():
        add_options(parser, part, skip=("model",))


def parse_flags(
    parser: Parser,
    arguments: Sequence[str],
    more: Sequence[VllmOption] = (),
    *,
    is_vllm: bool = False,
) -> argparse.Namespace:
    """The options from everywhere. `more` are options of vLLM's beyond those of engines.

    `is_vllm`: the command has vLLM's name, so variables of vLLM's count. Raises ConfigError.
    """
    added = add_vllm_flags(parser, (*ENGINE_FLAGS, *more))
    parsed = parser.parse_args(arguments)
    path = parsed.config or env.flag_value(_CONFIG)
    file = read_config_file(path, parser.shapes) if path else {}
    parsed.sources = Sources(file, READ if is_vllm else {})
    _tell_slips(parser)
    if is_vllm:
        for variable in env.names_beginning("VLLM_"):
            if variable not in READ.values():
                warn(no_effect(variable))
    explain_vllm_flags(parsed, added)
    return parsed


def model_of(parsed: argparse.Namespace) -> str | None:
    """The model that was named anywhere. Raises ConfigError for two on one command line."""
    if parsed.model and parsed.model_flag and parsed.model != parsed.model_flag:
        raise ConfigError(
            f"two models were named: {parsed.model!r} and --model {parsed.model_flag!r}"
        )
    named: str | None = parsed.model or parsed.model_flag
    if named is None:
        setting = sources_of(parsed).find("model")
        named = None if setting is None else str(setting.value)
    return named


def engine_config(parsed: argparse.Namespace) -> EngineConfig:
    """The configuration of parsed flags. Raises ConfigError."""
    model = model_of(parsed)
    more = {"model": model} if model else {}
    parts = {
        name: build(kind, parsed, **(more if name == "model" else {}))
        for name, kind in PARTS.items()
    }
    with naming_sources(parsed):
        return EngineConfig(**parts)


class _Once(argparse.Action):
    """A flag that may be given once; a second file would replace the first in silence."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "may be given once")
        setattr(namespace, self.dest, values)


def _tell_slips(parser: Parser) -> None:
    """A variable that is nearly one of ours was meant to be; others may be of somebody else.

    A Kubernetes service called `octavo` sets OCTAVO_SERVICE_HOST and the like in every pod.
    """
    names = {*parser.shapes, *ServerConfig.__dataclass_fields__, "config"}
    known = {env.flag_variable(name) for name in names} | {row.name for row in env.VARIABLES}
    for variable in env.names_beginning("OCTAVO_"):
        near = difflib.get_close_matches(variable, known, n=1, cutoff=_ALIKE)
        if near and variable not in known:
            warn(f"{variable} has no effect; did you mean {near[0]}?")
