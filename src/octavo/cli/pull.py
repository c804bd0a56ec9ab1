"""octavo pull MODEL: fetch a model into the cache."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.cli.progress import PhaseProgress
from octavo.config.cli_args import Parser
from octavo.weights.catalogue import DEFAULT_MODEL
from octavo.weights.download import pull
from octavo.weights.progress import PullProgress


def run(arguments: Sequence[str]) -> int:
    """Fetch one model; it is there when this returns 0."""
    parser = Parser(prog="octavo pull", description="Fetch a model into the cache.")
    parser.add_argument(
        "model", nargs="?", default=DEFAULT_MODEL, help=f"Short name or hub id [{DEFAULT_MODEL}]."
    )
    parsed = parser.parse_args(arguments)
    line = PhaseProgress()

    def show(progress: PullProgress) -> None:
        line.show(progress.phase, progress.done_bytes, progress.total_bytes)

    try:
        path = pull(parsed.model, show)
    finally:
        line.close()
    print(path)
    return 0
