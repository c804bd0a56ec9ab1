"""octavo bench: speed on this machine.

    octavo bench               four fixed workloads on the engine core, and where a step's time goes
    octavo bench latency       one batch, again and again
    octavo bench throughput    many requests at once, no server
    octavo bench serve         requests to a running server, with their times as a client sees them

Names of options and of results are those of `vllm bench`. Each module here owns one command; what
they share is in `datasets.py`, `metrics.py` and `roofs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

_COMMANDS = {
    "latency": "octavo.cli.bench.latency",
    "throughput": "octavo.cli.bench.throughput",
    "serve": "octavo.cli.bench.serve",
}
_FIXED = "octavo.cli.bench.workloads"


def run(arguments: Sequence[str]) -> int:
    """Hand over to one of the commands; without its name the fixed workloads are measured."""
    is_named = bool(arguments) and arguments[0] in _COMMANDS
    module = import_module(_COMMANDS[arguments[0]] if is_named else _FIXED)
    code: int = module.run(arguments[1:] if is_named else arguments)
    return code
