"""EngineArgs and AsyncEngineArgs: options of an engine as an object, the way vLLM's scripts pass
them around.

Every keyword of `LLM` is a field, vLLM's further ones included; the same table decides about them.
"""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from typing import Any, Self

from octavo.cli.vllm_flags import ENGINE_FLAGS, add_vllm_flags
from octavo.config.cli_args import add_options
from octavo.config.engine import EngineConfig, ModelConfig
from octavo.config.keywords import PARTS, engine_config
from octavo.config.vllm_options import FOREIGN

_OF_LLM = "disable_log_stats"  # a keyword of LLM itself, not of engines
_KEPT = ("model", _OF_LLM)
_DEFAULT_MODEL = ModelConfig().model


class Args:
    """What both have in common. Values are checked when an engine is made of them."""

    @classmethod
    def from_cli_args(cls, args: Namespace) -> Self:
        """From parsed flags; what was not given keeps its default."""
        names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        given = {name: value for name, value in vars(args).items() if value is not None}
        return cls(**{name: value for name, value in given.items() if name in names})

    @staticmethod
    def add_cli_args(parser: ArgumentParser) -> ArgumentParser:
        """Add the flags of an engine to a parser; which is returned."""
        parser.add_argument("--model", default=_DEFAULT_MODEL, help="The model.")
        for part in PARTS.values():
            add_options(parser, part, skip=("model",))
        add_vllm_flags(parser, ENGINE_FLAGS)
        return parser

    def options(self) -> dict[str, Any]:
        """The keywords of `LLM` that differ from their defaults, and the model."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {field.name: (getattr(self, field.name), field.default) for field in fields}
        return {
            name: value
            for name, (value, default) in values.items()
            if name in _KEPT or value != default
        }

    def create_engine_config(self) -> EngineConfig:
        """Octavo's configuration. Raises ConfigError."""
        options = {name: value for name, value in self.options().items() if name != _OF_LLM}
        return engine_config(options)


def _fields() -> list[tuple[str, Any, Any]]:
    own = {
        field.name: field.default for part in PARTS.values() for field in dataclasses.fields(part)
    }
    foreign = {name: row.default for name, row in FOREIGN.items() if name not in own}
    return [(name, Any, value) for name, value in {**own, **foreign, "task": None}.items()]


EngineArgs: type[Args] = dataclasses.make_dataclass("EngineArgs", _fields(), bases=(Args,))
AsyncEngineArgs: type[Args] = dataclasses.make_dataclass("AsyncEngineArgs", [], bases=(EngineArgs,))
for _made in (EngineArgs, AsyncEngineArgs):
    _made.__module__ = __name__  # so that they can be pickled
