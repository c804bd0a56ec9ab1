"""octavo-vllm run-batch: `octavo run-batch` with the exit code of `vllm run-batch`."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.cli import run_batch


def run(arguments: Sequence[str]) -> int:
    """Compute every line; 0 once all of them are answered, be it by an error; 1 where a line is no
    request.
    """
    return run_batch.run(arguments, is_vllm=True)
