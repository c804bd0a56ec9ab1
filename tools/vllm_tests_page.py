"""Writes the tables of docs/vllm-tests.md from the results file and the table of reasons.

    python tools/vllm_tests_page.py

A test compares the page with what this would write.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.vllm_reasons import KINDS, NOT_RUN, reason_of  # noqa: E402 - the path above

DOC = ROOT / "docs" / "vllm-tests.md"
RESULTS = ROOT / "benchmarks" / "results" / "vllm-http-tests.json"
_BEGIN, _END = "<!-- {} -->", "<!-- end -->"
_FOLDER = "tests/entrypoints/"


def results() -> dict[str, Any]:
    """The results file."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def failures(files: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(file, test) of every test that failed; files as they are called below `_FOLDER`."""
    for file in files:
        for case in file["not_passed"]:
            if case["outcome"] == "failed":
                yield file["file"].removeprefix(_FOLDER), case["test"]


def page(before: str) -> str:
    """The page with its tables made anew. Raises ValueError for a table that has no place."""
    text, files = before, results()["files"]
    tables = {
        "totals": _totals(files),
        "files": _lines(("File", "Passed", "Failed", "Skipped", "Why others failed"), _rows(files)),
        "not run": _lines(
            ("File", "Why not"), [(f"`{name}`", why) for name, why in NOT_RUN.items()]
        ),
    }
    for name, table in tables.items():
        begin = _BEGIN.format(name)
        start = text.index(begin) + len(begin)
        end = text.index(_END, start)
        text = f"{text[:start]}\n{table}\n{text[end:]}"
    return text


def _totals(files: list[Mapping[str, Any]]) -> str:
    sums = {key: sum(file[key] for file in files) for key in ("passed", "failed", "skipped")}
    kinds = Counter(reason_of(file, test).kind for file, test in failures(files))
    told = "; ".join(f"{kinds[kind]} {words}" for kind, words in KINDS.items() if kinds[kind])
    return (
        f"{len(files)} files: {sums['passed']} passed, {sums['failed']} failed, "
        f"{sums['skipped']} skipped. Of those that failed: {told}."
    )


def _rows(files: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for file in files:
        name = file["file"].removeprefix(_FOLDER)
        whys = Counter(reason_of(*case).why for case in failures([file]))
        why = "; ".join(
            f"{count} of them: {why}" if count > 1 else why for why, count in whys.items()
        )
        counts = (str(file[key]) for key in ("passed", "failed", "skipped"))
        yield f"`{name.removesuffix('.py')}`", *counts, why


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Write the page."""
    DOC.write_text(page(DOC.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{DOC.name} written")


if __name__ == "__main__":
    main()
