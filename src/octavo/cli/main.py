"""octavo: the table of commands, and errors turned into exit codes.

Exit codes: 0 done, 1 it failed, 2 the command line was wrong, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from octavo.errors import ConfigError, InvalidRequestError, OctavoError

COMMANDS = {
    "serve": ("octavo.cli.serve", "Serve a model over an OpenAI-compatible HTTP API."),
    "run": ("octavo.cli.run", "Answer one prompt here and now, without a server."),
    "run-batch": ("octavo.cli.run_batch", "Answer a file of requests, without a server."),
    "chat": ("octavo.cli.chat", "Talk to a running server."),
    "complete": ("octavo.cli.complete", "Let a running server continue texts."),
    "keys": ("octavo.cli.keys", "Make, list and remove the keys of a server."),
    "top": ("octavo.cli.top", "Watch the requests and KV blocks of a running server."),
    "metrics": ("octavo.cli.metrics", "Print a dashboard or alert rules for its metrics."),
    "pull": ("octavo.cli.pull", "Fetch a model into the cache."),
    "quantize": ("octavo.cli.quantize", "Write a checkpoint with fewer bits."),
    "list": ("octavo.cli.list_models", "List the models that are at hand."),
    "cache": ("octavo.cli.cache", "List or remove what has been fetched."),
    "plan": ("octavo.cli.plan", "Tell what a model takes and how many users fit, from its header."),
    "bench": ("octavo.cli.bench", "Measure speed on this machine."),
    "doctor": ("octavo.cli.doctor", "Report what Octavo sees of this machine."),
}

Command = Callable[[Sequence[str]], int]
Table = Mapping[str, tuple[str, str]]
"""Command -> (its module, what it does)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    return run_table("octavo", COMMANDS, sys.argv[1:] if arguments is None else arguments)


def run_table(program: str, commands: Table, words: Sequence[str]) -> int:
    """Run the command that the first word names; the exit code is returned."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage(program, commands))
        return 0 if words else 2
    if words[0] in ("-V", "--version", "version"):
        from octavo.version import version  # noqa: PLC0415 - keeps --help instant

        print(f"octavo {version()}")
        return 0
    if words[0] not in commands:
        near = _nearest(words[0], commands)
        return _fail(f"unknown command {words[0]!r}. {near}See {program} --help", code=2)
    return run_module(commands[words[0]][0], words[1:])


def usage(program: str, commands: Table) -> str:
    """The text of `octavo --help`."""
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in commands.items()]
    return "\n".join(
        [
            f"usage: {program} COMMAND [OPTIONS]",
            "",
            "LLM inference and serving.",
            "",
            "commands:",
            *lines,
            "",
            f"{program} COMMAND --help tells the options of a command; {program} --version the "
            "version.",
        ]
    )


def run_module(module: str, arguments: Sequence[str]) -> int:
    """Run the command that a module holds; errors become exit codes."""
    from octavo.foundation.garbage import without_collections  # noqa: PLC0415 - keeps --help instant

    try:
        with without_collections():
            command: Command = import_module(module).run
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see octavo.__main__
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command(arguments)
    except (ConfigError, InvalidRequestError) as error:
        return _fail(str(error), code=2)
    except OctavoError as error:
        return _fail(str(error), code=1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; nothing more to say
        return 1
    except KeyboardInterrupt:
        return 130


def _fail(message: str, *, code: int) -> int:
    print(f"octavo: {message}", file=sys.stderr)
    return code


def _nearest(word: str, commands: Table) -> str:
    from octavo.foundation.nearest import nearest  # noqa: PLC0415 - keeps --help instant

    near = nearest(word, commands)
    return f"Did you mean {near[0]!r}? " if near else ""


if __name__ == "__main__":
    sys.exit(main())
