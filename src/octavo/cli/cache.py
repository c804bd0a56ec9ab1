"""octavo cache list|prune: what Octavo has fetched into its own cache, and its removal."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.config.cli_args import Parser
from octavo.errors import ModelFileError
from octavo.foundation.env import cache_folder
from octavo.foundation.quantities import format_bytes
from octavo.weights.model_cache import CacheEntry, cache_entries, prune


def run(arguments: Sequence[str]) -> int:
    """Print a table, or remove what is asked for; 1 when another process holds some of it."""
    parser = Parser(
        prog="octavo cache",
        description="List or remove what Octavo has fetched. Models of the Hugging Face cache, "
        "which other programs share, are left alone.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|prune")
    actions.add_parser("list", help="What is there, with its size.")
    pruning = actions.add_parser("prune", help="Remove what unfinished downloads left, and models.")
    pruning.add_argument("models", nargs="*", help="Models to remove as well, by name.")
    pruning.add_argument("--all", action="store_true", help="Remove all models.")
    parsed = parser.parse_args(arguments)
    if parsed.action == "list":
        return _list()
    return _prune(parsed.models, everything=parsed.all)


def _list() -> int:
    folder = cache_folder()
    entries = cache_entries(folder)
    for entry in entries:
        print(f"{format_bytes(entry.num_bytes):>10}  {_what(entry)}  {entry.path}")
    total = sum(entry.num_bytes for entry in entries)
    print(f"{format_bytes(total):>10}  in {folder}")
    return 0


def _prune(models: Sequence[str], *, everything: bool) -> int:
    folder = cache_folder()
    try:
        pruned = prune(folder, models, everything=everything)
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be changed: {error.strerror or error}") from error
    for entry in pruned.removed:
        print(f"removed {_what(entry)} {entry.name}, {format_bytes(entry.num_bytes)}")
    for entry in pruned.busy:
        print(f"left {_what(entry)} {entry.name}: another process is fetching or removing it")
    if not pruned.removed and not pruned.busy:
        print("nothing to remove")
    return 1 if pruned.busy else 0


def _what(entry: CacheEntry) -> str:
    return "model" if entry.is_model else "unfinished download"
