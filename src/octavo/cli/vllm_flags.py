"""Flags of vLLM that a launch script may carry although they mean nothing here.

Each is accepted with one line that says why it has no effect, never silently. A value that would
change the answer or the placement (`--tensor-parallel-size 2`) is refused.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from octavo.config.cli_args import warn
from octavo.config.keywords import TASKS
from octavo.errors import ConfigError

# flag -> why it has no effect
NO_EFFECT_SWITCHES: Mapping[str, str] = {
    "--enforce-eager": "nothing is compiled at start anyway",
    "--disable-log-requests": "requests are never logged",
    "--no-enable-log-requests": "requests are never logged",
    "--disable-uvicorn-access-log": "there is no access log",
    "--use-v2-block-manager": "vLLM removed it; there is one block manager",
    "--async-scheduling": "the scheduler runs between steps",
    "--trust-remote-code": "no code from a model's repository is ever run",
}
NO_EFFECT_VALUES: Mapping[str, str] = {
    "--load-format": "the format is recognised from the files",
    "--num-scheduler-steps": "vLLM removed it",
    "--max-seq-len-to-capture": "there are no graphs to capture",
    "--device": "the CPU back end is used",
    "--uvicorn-log-level": "set OCTAVO_LOG_LEVEL instead",
}
# vLLM's short forms of --speculative-config -> the key in it
SPECULATION: Mapping[str, str] = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
TASK = "--task"  # vLLM has taken it apart into --runner and --convert
ONLY_ONE = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
SHORT = {
    "--tensor-parallel-size": "-tp",
    "--pipeline-parallel-size": "-pp",
    "--data-parallel-size": "-dp",
}


def add_vllm_flags(parser: argparse.ArgumentParser) -> None:
    """Accept them, hidden from --help."""
    for flag in NO_EFFECT_SWITCHES:
        parser.add_argument(flag, dest=flag, action="store_true", help=argparse.SUPPRESS)
    for flag in NO_EFFECT_VALUES:
        parser.add_argument(flag, dest=flag, help=argparse.SUPPRESS)
    parser.add_argument(TASK, dest=TASK, choices=sorted(TASKS), help=argparse.SUPPRESS)
    for flag, key in SPECULATION.items():
        kind = int if key == "num_speculative_tokens" else str
        parser.add_argument(flag, dest=flag, type=kind, help=argparse.SUPPRESS)
    for flag in ONLY_ONE:
        parser.add_argument(flag, SHORT[flag], dest=flag, type=int, help=argparse.SUPPRESS)


def explain_vllm_flags(arguments: argparse.Namespace) -> None:
    """Say what has no effect; raise ConfigError for what cannot be done."""
    given = vars(arguments)
    for name, value in TASKS[given[TASK] or "auto"].items():
        if given[name] is None:
            setattr(arguments, name, value)
    _join_speculation(arguments)
    for flag in ONLY_ONE:
        if given[flag] not in (None, 1):
            raise ConfigError(f"{flag} {given[flag]} is not supported; only 1 is")
    for flag, reason in {**NO_EFFECT_SWITCHES, **NO_EFFECT_VALUES}.items():
        if given[flag] not in (None, False):
            warn(f"{flag} has no effect: {reason}")


def _join_speculation(arguments: argparse.Namespace) -> None:
    """The short forms make up --speculative-config. Raises ConfigError beside that flag."""
    given = vars(arguments)
    parts = {key: given[flag] for flag, key in SPECULATION.items() if given[flag] is not None}
    if not parts:
        return
    if given.get("speculative_config") is not None:
        flags = " and ".join(flag for flag in SPECULATION if given[flag] is not None)
        raise ConfigError(f"{flags}: say it in --speculative-config alone, which is given too")
    arguments.speculative_config = json.dumps(parts)
