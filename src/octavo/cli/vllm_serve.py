"""octavo-vllm serve [MODEL]: `octavo serve` with what people who type `vllm serve` rely on.

It listens on every interface unless told otherwise, and says so; VLLM_API_KEY guards it.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.cli import serve


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal ends it."""
    return serve.run(arguments, is_vllm=True)
