"""octavo serve [MODEL]: flags to configuration, the start banner, the server."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from octavo.cli.banner import banner
from octavo.cli.engine_flags import add_engine_flags, engine_config, model_of, parse_flags
from octavo.cli.progress import PhaseProgress
from octavo.config.cli_args import Parser, add_options, build
from octavo.config.engine import SchedulerConfig
from octavo.config.server import ServerConfig
from octavo.config.sources import sources_of
from octavo.config.vllm_options import SERVER_OPTIONS
from octavo.config.vllm_variables import READ
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.build import Engine
from octavo.errors import ConfigError
from octavo.foundation import env
from octavo.foundation.log import set_up_logging, statistics_interval_s
from octavo.foundation.registry import Registry
from octavo.server.listening import listening

logger = logging.getLogger(__name__)
SERVER: Registry[Callable[..., None]] = Registry("server", {"serve": "octavo.server.serve:serve"})
EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 - what commands of this name have always done


def run(arguments: Sequence[str], *, is_vllm: bool = False) -> int:
    """Serve until a signal ends it. `is_vllm`: by a command that has vLLM's name."""
    parser = Parser(
        prog="octavo serve",
        description="Serve a model over an OpenAI-compatible HTTP API.",
        epilog="Every flag is also a key of the file of --config, and an environment variable: "
        "--max-num-seqs is OCTAVO_MAX_NUM_SEQS. vLLM's further flags are explained when given.",
    )
    add_engine_flags(parser)
    add_options(parser, ServerConfig)
    parsed = parse_flags(parser, arguments, SERVER_OPTIONS, is_vllm=is_vllm)
    set_up_logging()
    _refuse_swallowed_model(parsed)
    _take_vllms_ways(parsed, is_vllm)
    server_config = _with_template(build(ServerConfig, parsed))
    _warn_if_open(server_config)
    progress = PhaseProgress(in_bytes=False)

    def announce(engine: Engine, url: str) -> None:
        progress.close()
        for line in banner(engine, url):
            logger.info("%s", line)

    def report(phase: str, share: float) -> None:
        progress.show(phase, share, 1.0)

    config = engine_config(parsed)
    _warn_if_alone(config.scheduler, server_config)
    every_s = statistics_interval_s()
    with listening(server_config) as listener:
        engine = AsyncLLM.start(config)  # loads while the server is imported
        SERVER.load("serve")(
            engine,
            config,
            server_config,
            listener,
            announce=announce,
            report=report,
            every_s=every_s,
        )
    return 0


def _refuse_swallowed_model(parsed: argparse.Namespace) -> None:
    """`--api-key KEY MODEL` would make a key of the model's name and serve the default model.

    The values stay out of the message: they may be secret.
    """
    if model_of(parsed):
        return
    for flag, values in (
        ("--api-key", parsed.api_key),
        ("--admin-api-key", parsed.admin_api_key),
        ("--served-model-name", parsed.served_model_name),
    ):
        if len(values or ()) > 1:
            raise ConfigError(
                f"{flag} took {len(values)} values and no model was named; "
                f"name the model first: octavo serve MODEL {flag} ..."
            )


def _take_vllms_ways(parsed: argparse.Namespace, is_vllm: bool) -> None:
    """Where to listen if nobody says, and whose key guards the server."""
    if not is_vllm:
        key = READ["api_key"]
        if env.text(key) and parsed.api_key is None and sources_of(parsed).find("api_key") is None:
            logger.warning("%s is not read by octavo serve: set OCTAVO_API_KEY", key)
        return
    given = (getattr(parsed, name) or sources_of(parsed).find(name) for name in ("host", "uds"))
    if not any(given):
        parsed.host = EVERY_INTERFACE
        logger.warning(
            "listening on every interface (%s), as vllm does; --host 127.0.0.1 keeps the server to "
            "this machine",
            EVERY_INTERFACE,
        )


def _with_template(config: ServerConfig) -> ServerConfig:
    """`--chat-template` as text: a file's content, or the flag's own."""
    given = config.chat_template
    if given is None or "{" in given or "\n" in given:
        return config
    try:
        return replace(config, chat_template=Path(given).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template {given}: cannot be read as a file: {error}") from None


def _warn_if_alone(scheduler: SchedulerConfig, config: ServerConfig) -> None:
    if scheduler.scheduling_policy != "fair" or config.api_keys_file is not None:
        return
    if len({*config.api_key, *config.admin_api_key}) < 2:
        logger.warning(
            "--scheduling-policy fair has no effect: it shares between keys, and there are no two; "
            "name them with --api-key or --api-keys-file"
        )


def _warn_if_open(config: ServerConfig) -> None:
    has_keys = config.api_key or config.api_keys_file is not None
    if config.host in (EVERY_INTERFACE, "::") and not has_keys:
        logger.warning("listening on every interface without --api-key: anybody may use the model")
