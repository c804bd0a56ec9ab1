"""octavo list: the models that are at hand, and those that `octavo pull` knows by a short name."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.config.cli_args import Parser
from octavo.foundation.quantities import format_bytes
from octavo.weights.download import list_models


def run(arguments: Sequence[str]) -> int:
    """Print a table."""
    Parser(prog="octavo list", description="List the models that are at hand.").parse_args(
        arguments
    )
    rows = [
        (model.name, format_bytes(model.num_bytes), model.status, str(model.path or "-"))
        for model in list_models()
    ]
    head = ("NAME", "SIZE", "STATUS", "PATH")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
    for row in (head, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join((*cells, row[3])).rstrip())
    return 0
