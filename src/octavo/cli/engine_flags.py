"""The flags that every command with an engine of its own takes."""

from __future__ import annotations

import argparse

from octavo.config.cli_args import add_options, build
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.errors import ConfigError
from octavo.foundation import env


def add_engine_flags(parser: argparse.ArgumentParser, *, model_is_optional: bool = True) -> None:
    """The model, positional or as `--model`, and the options of the engine."""
    parser.add_argument(
        "model",
        nargs="?" if model_is_optional else None,
        help="Short name, hub id, local folder or .gguf file [smollm2:135m].",
    )
    parser.add_argument("--model", dest="model_flag", metavar="MODEL", help=argparse.SUPPRESS)
    add_options(parser, ModelConfig, skip=("model",))
    add_options(parser, CacheConfig)
    add_options(parser, SchedulerConfig)


def engine_config(parsed: argparse.Namespace) -> EngineConfig:
    """The configuration of parsed flags. Raises ConfigError."""
    model = parsed.model or parsed.model_flag
    if parsed.model and parsed.model_flag and parsed.model != parsed.model_flag:
        raise ConfigError(
            f"two models were named: {parsed.model!r} and --model {parsed.model_flag!r}"
        )
    model = model or env.flag_value("--model")
    more = {"model": model} if model else {}
    return EngineConfig(
        model=build(ModelConfig, parsed, **more),
        cache=build(CacheConfig, parsed),
        scheduler=build(SchedulerConfig, parsed),
    )
