"""Writes docs/models.md from the results of the model tests.

    pytest -o junit_family=xunit1 --junitxml=models.xml -k "of_trans or those_of" tests/models
    python tools/model_table.py models.xml

A cell is the largest difference to transformers' numbers that any test of that architecture, kind
of file and back end measured; the same for ways to quantise and for transformers' own code. What no
test runs has no cell.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

DOC = Path(__file__).resolve().parent.parent / "docs" / "models.md"
COLUMNS = (("native", "folder"), ("native", "GGUF"), ("torch", "folder"), ("torch", "GGUF"))
HEAD = """# Architectures

Names are the ones in `architectures` of a config.json. The number is the largest difference to
Hugging Face transformers in float32, measured on small random models of that architecture: of a
log-probability by `tests/models/test_models.py`, over whole prompts and prompts in chunks; of a
vector's number or a label's score by `tests/models/test_encoders.py`, for models that make those
([embeddings](embeddings.md)). GGUF files are of several types, compared with the numbers that they
store. A dash: no such test, so no such promise; Mistral's GGUF files call themselves Llama.
With a dash in both native columns it needs `--backend torch`.
`tools/model_table.py` writes this page.

| Architecture | native, folder | native, GGUF | torch, folder | torch, GGUF |
|---|---|---|---|---|
"""

QUANTISED_HEAD = """
# Quantisation

Checkpoints that `tests/models/test_quantised.py` makes and runs, and the largest difference of a
log-probability to transformers with the numbers that they store. Bits are those of a quantised
weight in memory, scales included; the type is how the native back end holds it
([quantisation](quantisation.md) says what the names mean).

| Checkpoint | type in memory | bits | native | torch |
|---|---|---|---|---|
"""
WAYS_HEAD = """
# Architectures, quantised

The same comparison where the matrices of a folder's layers are quantised, fused ones and experts
included, by `tests/models/test_quantised_architectures.py`: the largest difference of any back end
that runs the architecture by the first table. `int4`, `int8`, `FP8` and `NVFP4` are
compressed-tensors; `FP8 blocks` have a scale for 128 x 128 numbers.

"""
FOREIGN_HEAD = """
# Transformers' code

A decoder that Octavo lacks runs with the code that Hugging Face transformers has for it, on the
torch back end (`--backend torch`, after `pip install 'octavo[transformers]'`), with Octavo's paged
attention inside; `--model-impl transformers` runs any model so. Continuous batching, chunked
prefill, prefix caching, preemption, speculation, KV types and sampling are the same as for Octavo's
own models. `--dtype auto` computes in the checkpoint's type. Python code that a checkpoint brings
runs only with `--trust-remote-code`.

At start one pass without numbers finds what the code asks attention for: heads, scale, windows,
soft caps, sinks. Refused, with the reason, is what would not give transformers' numbers in a batch:
code without `_supports_attention_backend`, layers that keep a state (Mamba, convolutions), masks of
another shape, code that numbers tokens itself, quantised checkpoints, models that make vectors. Two
small passes after loading show that sequences do not see each other.

Tested by `tests/models/test_foreign_models.py` (the largest difference of a log-probability, over
whole prompts and prompts in chunks) and by `tests/e2e/test_foreign_equality.py`. A model of your
own, for both back ends: [adding a model](adding-a-model.md).

| Architecture | transformers' code | Octavo's own model |
|---|---|---|
"""
BACKENDS = ("native", "torch")

Cells = dict[tuple[str, str], float]


@dataclass
class Quantised:
    """One way to quantise, as the tests found it."""

    types: str
    bits: str
    differences: dict[str, float] = field(default_factory=dict)  # by back end


def measured(report: Path) -> dict[str, Cells]:
    """Architecture -> (back end, kind of file) -> largest difference, of the tests that passed."""
    table: dict[str, Cells] = defaultdict(dict)
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  our own test run wrote it
        if any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped")):
            continue
        found = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        if "architecture" not in found:
            continue
        column = (found["backend"], found["file"])
        cells = table[found["architecture"]]
        cells[column] = max(cells.get(column, 0.0), float(found["largest_difference"]))
    return table


def quantised(report: Path) -> dict[str, Quantised]:
    """Way to quantise -> what its tests measured, in their order."""
    table: dict[str, Quantised] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  our own test run wrote it
        found = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        if "quantisation" not in found or case.find("failure") is not None:
            continue
        new = Quantised(found["types"], found["bits"])
        entry = table.setdefault(found["quantisation"], new)
        entry.differences[found["backend"]] = float(found["largest_difference"])
    return table


def quantised_architectures(report: Path) -> dict[str, dict[str, float]]:
    """Architecture -> way to quantise -> largest difference on any back end."""
    table: dict[str, dict[str, float]] = defaultdict(dict)
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  our own test run wrote it
        found = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        if "architecture_quantised" in found and case.find("failure") is None:
            measured_on = [float(found[backend]) for backend in BACKENDS if backend in found]
            table[found["architecture_quantised"]][found["way"]] = max(measured_on)
    return table


def way_lines(table: dict[str, dict[str, float]]) -> list[str]:
    """A row for each architecture, a column for each way."""
    ways = list(dict.fromkeys(way for cells in table.values() for way in cells))
    lines = [f"| Architecture | {' | '.join(ways)} |\n", f"|{'---|' * (len(ways) + 1)}\n"]
    for name in sorted(table):
        cells = [f"{table[name][way]:.1e}" if way in table[name] else "-" for way in ways]
        lines.append(f"| {name} | {' | '.join(cells)} |\n")
    return lines


def foreign(report: Path) -> dict[str, float]:
    """Architecture -> largest difference with transformers' code."""
    table: dict[str, float] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  our own test run wrote it
        found = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        if "foreign" in found and case.find("failure") is None:
            name, difference = found["foreign"], float(found["largest_difference"])
            table[name] = max(table.get(name, 0.0), difference)
    return table


def foreign_lines(table: dict[str, float], own: Iterable[str]) -> list[str]:
    """The rows of transformers' code, in order of their names."""
    return [
        f"| {name} | {table[name]:.1e} | {'yes' if name in own else 'no'} |\n"
        for name in sorted(table)
    ]


def page(report: Path) -> str:
    """The page, architectures in order of their names."""
    table, ways = measured(report), quantised(report)
    lines = []
    for architecture in sorted(table):
        cells = table[architecture]
        shown = [f"{cells[column]:.1e}" if column in cells else "-" for column in COLUMNS]
        lines.append(f"| {architecture} | {' | '.join(shown)} |\n")
    quantised_lines = []
    for name, entry in ways.items():
        differences = entry.differences
        shown = [f"{differences[b]:.1e}" if b in differences else "-" for b in BACKENDS]
        row = " | ".join([name, entry.types, entry.bits, *shown])
        quantised_lines.append(f"| {row} |\n")
    parts = [HEAD, *lines, QUANTISED_HEAD, *quantised_lines, WAYS_HEAD]
    parts += way_lines(quantised_architectures(report))
    return "".join([*parts, FOREIGN_HEAD, *foreign_lines(foreign(report), table)])


def main() -> None:
    """Reads the report named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: model_table.py REPORT.xml")
    report = Path(sys.argv[1])
    table = measured(report)
    if not table:
        sys.exit(f"{sys.argv[1]} has no measured differences; run the model tests with --junitxml")
    DOC.write_text(page(report), encoding="utf-8")
    print(f"{DOC.name}: {len(table)} architectures")


if __name__ == "__main__":
    main()
