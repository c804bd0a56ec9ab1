"""Flags of vLLM that a launch script may carry although Octavo has no such option.

`config/vllm_options.py` has them all. Each is said to have no effect, in one line, or refused with
the way out; so are the same names in a file of `--config` and in the environment.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from octavo.config.cli_args import Parser, warn
from octavo.config.field import flag_name
from octavo.config.keywords import TASKS
from octavo.config.sources import sources_of
from octavo.config.speculative import SHORT_FORMS, join_short_forms
from octavo.config.texts import Shape, scalar_of
from octavo.config.vllm_options import ENGINE_OPTIONS, REMOVED_OPTIONS
from octavo.config.vllm_verdicts import VllmOption
from octavo.errors import ConfigError

ENGINE_FLAGS = (*ENGINE_OPTIONS, *REMOVED_OPTIONS)
_TASK = "task"  # vLLM has taken it apart into --runner and --convert


def add_vllm_flags(
    parser: argparse.ArgumentParser, options: Iterable[VllmOption] = ENGINE_FLAGS
) -> list[VllmOption]:
    """Accept them, hidden from --help; those that were added.

    A flag that the command has already is the command's.
    """
    taken = set(parser._option_string_actions)
    added = []
    for option in options:
        flag = flag_name(option.name)
        if flag in taken:
            continue
        spellings = (flag, *(name for name in option.short if name not in taken))
        _add(parser, option.name, option.shape, spellings)
        added.append(option)
    for name in (_TASK, *SHORT_FORMS):
        _add(parser, name, "value", (flag_name(name),))
    return added


def explain_vllm_flags(arguments: argparse.Namespace, options: Sequence[VllmOption]) -> None:
    """Say what has no effect; raise ConfigError for what cannot be done."""
    _take_task_apart(arguments)
    _join_speculation(arguments)
    for option in options:
        value, where = _given(arguments, option.name)
        if value is None:
            continue
        try:
            told = option.check(value, flag_name(option.name), " ")
        except ConfigError as error:
            raise ConfigError(f"{error}{where}") from None
        if told is not None:
            warn(f"{told}{where}")


def _add(
    parser: argparse.ArgumentParser, name: str, shape: Shape, spellings: Sequence[str]
) -> None:
    """One hidden option; its destination is its name."""
    if shape == "switch":
        parser.add_argument(
            *spellings,
            dest=name,
            action=argparse.BooleanOptionalAction,
            default=None,
            help=argparse.SUPPRESS,
        )
    else:
        nargs = "+" if shape == "list" else None
        parser.add_argument(*spellings, dest=name, nargs=nargs, help=argparse.SUPPRESS)
    if isinstance(parser, Parser):
        parser.note(name, shape, spellings)


def _given(arguments: argparse.Namespace, name: str) -> tuple[object, str]:
    """What an option was set to anywhere, None if nowhere; where, if not on the command line."""
    value = getattr(arguments, name, None)
    if value is not None:
        return value, ""
    setting = sources_of(arguments).find(name)
    return (None, "") if setting is None else (setting.value, f" ({setting.where})")


def _take_task_apart(arguments: argparse.Namespace) -> None:
    """`--task embed` is `--runner pooling --convert embed`; what is said apart counts before it."""
    task, where = _given(arguments, _TASK)
    if task is None:
        return
    if task not in TASKS:
        raise ConfigError(f"--task must be one of {', '.join(sorted(TASKS))}, got {task!r}{where}")
    for name, value in TASKS[str(task)].items():
        if _given(arguments, name)[0] is None:
            setattr(arguments, name, value)


def _join_speculation(arguments: argparse.Namespace) -> None:
    """`--spec-tokens 4` is a part of --speculative-config, which must not be given beside it."""
    given = {name: _given(arguments, name)[0] for name in SHORT_FORMS}
    if given["spec_tokens"] is not None:
        given["spec_tokens"] = scalar_of(str(given["spec_tokens"]), "spec_tokens", int)
    joined = join_short_forms(given)
    if joined is None:
        return
    if _given(arguments, "speculative_config")[0] is not None:
        flags = " and ".join(flag_name(name) for name, value in given.items() if value is not None)
        raise ConfigError(f"{flags}: say it in --speculative-config alone, which is given too")
    arguments.speculative_config = joined
