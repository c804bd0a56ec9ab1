"""The table and the plot of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.peers.workloads import COLUMNS
from benchmarks.plots import MAX_COLOURS, BarGroup, grouped_bars

_SHORT = {
    "prefill_512": "prefill 512",
    "single_stream": "single stream",
    "decode": "decode",
    "b8": "batch 8",
    "b32": "batch 32",
    "start_s": "start s",
}
_PLOTTED = ("prefill_512", "single_stream", "b8", "b32")
Engines = Mapping[str, Mapping[str, Any]]


def table(engines: Engines) -> str:
    """Medians, one row an engine; then by how much ours lead the best of the peers."""
    width = max(map(len, engines), default=6)
    head = f"{'engine':<{width}}" + "".join(f" {name:>14}" for name in _SHORT.values())
    lines = [f"{head} {'agrees':>7} {'turns':>6}"]
    for name, entry in engines.items():
        cells = "".join(f" {_cell(entry['columns'].get(column)):>14}" for column in COLUMNS)
        agreement = f"{entry['agreement']:.0%}" if "agreement" in entry else "-"
        turns = f"{entry['num_counted']}/{entry['num_turns']}"
        lines.append(f"{name:<{width}}{cells} {agreement:>7} {turns:>6}")
        if "failure" in entry:
            lines.append(f"{'':<{width}} {entry['failure']}")
    return "\n".join([*lines, *_leads(engines)])


def leads(engines: Engines, *, exact_only: bool) -> dict[str, float]:
    """For each column: the best of ours over the best of the peers, above 1 where ours is better.

    With `exact_only` among engines that compute with 32-bit accuracy.
    """
    found: dict[str, float] = {}
    for column in COLUMNS:
        best: dict[bool, float] = {}
        for entry in engines.values():
            value = entry["columns"].get(column, {}).get("median")
            if value is None or (exact_only and not entry["is_exact"]):
                continue
            rate = 1 / value if column == "start_s" else value
            best[entry["is_ours"]] = max(best.get(entry["is_ours"], 0.0), rate)
        if len(best) == 2:
            found[column] = best[True] / best[False]
    return found


def plot(engines: Engines, model: str) -> str:
    """Bars of four columns, each as a share of the best in its column.

    As many engines as there are colours: of ours the default and the best exact one, then the
    peers with the best batches.
    """
    names = _plotted(engines)
    groups = []
    for column in _PLOTTED:
        medians = [engines[name]["columns"].get(column, {}).get("median", 0.0) for name in names]
        groups.append(BarGroup(_SHORT[column], medians))
    return grouped_bars(f"{model}: tokens per second", names, groups)


def _plotted(engines: Engines) -> list[str]:
    measured = {name: entry for name, entry in engines.items() if entry["columns"]}
    ours = [name for name, entry in measured.items() if entry["is_ours"]]
    rounded = [name for name in ours if not measured[name]["is_exact"]][:1]
    exact = [name for name in ours if measured[name]["is_exact"]]
    exact.sort(key=lambda name: _batch_rate(measured[name]), reverse=True)
    peers = [name for name in measured if not measured[name]["is_ours"]]
    peers.sort(key=lambda name: _batch_rate(measured[name]), reverse=True)
    return [*rounded, *exact[:1], *peers][:MAX_COLOURS]


def _batch_rate(entry: Mapping[str, Any]) -> float:
    return float(entry["columns"].get("b32", {}).get("median", 0.0))


def _cell(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "-"
    value = spread["median"]
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _leads(engines: Engines) -> list[str]:
    lines = []
    for title, exact_only in (("ours over the best peer", False), ("the same, exact", True)):
        found = leads(engines, exact_only=exact_only)
        if found:
            shown = ", ".join(f"{_SHORT[name]} {value:.2f}x" for name, value in found.items())
            lines.append(f"{title}: {shown}")
    return lines
