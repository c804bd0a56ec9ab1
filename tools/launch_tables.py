"""Writes the tables of docs/launch.md from the configuration and the table of vLLM's options.

    python tools/launch_tables.py

A test compares the page with what this would write.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from octavo.compat.vllm.names import MISSING, MISSING_CALLS, MODULES  # noqa: E402 - the path above
from octavo.config.field import flag_name  # noqa: E402
from octavo.config.keywords import PARTS  # noqa: E402
from octavo.config.server import ServerConfig  # noqa: E402
from octavo.config.speculative import SHORT_FORMS  # noqa: E402
from octavo.config.vllm_options import (  # noqa: E402
    BATCH_OPTIONS,
    ENGINE_OPTIONS,
    REMOVED_OPTIONS,
    SERVER_OPTIONS,
)
from octavo.config.vllm_variables import INSTEAD, READ  # noqa: E402
from octavo.config.vllm_verdicts import VllmOption  # noqa: E402

DOC = ROOT / "docs" / "launch.md"
VLLM_FLAGS = ROOT / "tools" / "vllm_flags.txt"
_BEGIN = "<!-- {} -->"
_END = "<!-- end -->"


def vllm_flags() -> set[str]:
    """The names of vLLM's flags as fields: `max_num_seqs`."""
    lines = VLLM_FLAGS.read_text(encoding="utf-8").splitlines()
    return {line[2:].replace("-", "_") for line in lines if line.startswith("--")}


def own_options() -> list[str]:
    """The names of Octavo's options, in the order of the configuration."""
    configs = (*PARTS.values(), ServerConfig)
    return [field.name for config in configs for field in dataclasses.fields(config)]


def sections() -> dict[str, str]:
    """Name of a table -> its Markdown."""
    theirs, own = vllm_flags(), own_options()
    rows = (*ENGINE_OPTIONS, *SERVER_OPTIONS, *BATCH_OPTIONS)
    return {
        "same": ", ".join(_code(name) for name in (*own, *SHORT_FORMS) if name in theirs) + ".",
        "own": ", ".join(_code(name) for name in own if name not in theirs) + ".",
        "no effect": _by_reason(row for row in rows if not row.is_refused),
        "refused": _by_reason(row for row in rows if row.is_refused),
        "removed": _by_reason(REMOVED_OPTIONS, says_verdict=True),
        "variables": _pairs(
            ("Variable", "Here"),
            {
                **{name: f"read as {_code(field)}" for field, name in READ.items()},
                **{name: f"no effect; use `{instead}`" for name, instead in INSTEAD.items()},
            },
        ),
        "names": _pairs(
            ("Module", "Names"),
            {
                module: ", ".join(f"`{name}`" for name in names)
                for module, names in MODULES.items()
                if names
            },
        ),
        "missing": _pairs(("Name", "Instead, or why"), MISSING),
        "missing calls": _pairs(("Attribute of an engine", "Instead, or why"), MISSING_CALLS),
    }


def page(before: str) -> str:
    """The page with its tables made anew. Raises ValueError for a table that has no place."""
    text = before
    for name, table in sections().items():
        begin = _BEGIN.format(name)
        start = text.index(begin) + len(begin)
        end = text.index(_END, start)
        text = f"{text[:start]}\n{table}\n{text[end:]}"
    return text


def _code(name: str) -> str:
    return f"`{flag_name(name)}`"


def _by_reason(rows: Iterable[VllmOption], *, says_verdict: bool = False) -> str:
    """One line for each reason, with all the flags that it is true of."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        passing = [f"`{value}`" for value in row.passing]
        reason = ("refused: " if row.is_refused else "no effect: ") if says_verdict else ""
        found.setdefault((reason + row.reason, ", ".join(passing)), []).append(row.name)
    return _lines(("Flags", "Why", "Passes"), _reason_lines(found))


def _reason_lines(found: Mapping[tuple[str, str], list[str]]) -> Iterator[tuple[str, ...]]:
    for (reason, passing), names in found.items():
        yield " ".join(_code(name) for name in names), reason, passing


def _pairs(head: tuple[str, str], table: Mapping[str, str]) -> str:
    return _lines(head, ((f"`{name}`", told) for name, told in table.items()))


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    found = list(rows)
    used = [place for place in range(len(head)) if any(row[place] for row in found)]
    lines = [[head[place] for place in used], ["---"] * len(used)]
    lines += [[row[place] for place in used] for row in found]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Write the page."""
    DOC.write_text(page(DOC.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{DOC.name}: {len(sections())} tables")


if __name__ == "__main__":
    main()
