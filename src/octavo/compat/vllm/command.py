"""octavo-vllm: the commands of `vllm`, under its names and with its ways. Link it as `vllm` to have
them found by scripts; in this process `import vllm` is Octavo, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from octavo.cli.main import COMMANDS, run_table

VLLM_COMMANDS = {
    "serve": ("octavo.cli.vllm_serve", COMMANDS["serve"][1]),
    "run-batch": ("octavo.cli.vllm_run_batch", COMMANDS["run-batch"][1]),
    **{name: COMMANDS[name] for name in ("chat", "complete", "bench")},
    "collect-env": COMMANDS["doctor"],
}
_VERSION = "-v"  # vLLM's spelling of -V


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == [_VERSION]:
        words = ["--version"]
    return run_table(Path(sys.argv[0]).name, VLLM_COMMANDS, words)
