"""`python -m octavo.entrypoints.openai.api_server --model MODEL`: `octavo-vllm serve`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from octavo.cli.main import run_module


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal ends it; the exit code is returned."""
    return run_module("octavo.cli.vllm_serve", sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
