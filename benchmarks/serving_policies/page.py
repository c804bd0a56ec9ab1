"""Results files -> the page about serving policies, with its plots. No number is typed by hand.

    python -m benchmarks.serving_policies.page benchmarks/results/serving-*.json

Each results file becomes a section; its name becomes the name of its plots.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from benchmarks.plots import Bar, Series, line_chart, stacked_bars
from benchmarks.record import ROOT
from benchmarks.serving_policies.policies import PAGED
from benchmarks.serving_policies.summary import (
    LATENCY_LIMIT,
    cases_of,
    crosses,
    curve,
    factors,
    latency_limit_s,
    policies_of,
    sustainable_rate,
    values,
)
from benchmarks.serving_policies.sweep import Case

TEMPLATE = Path(__file__).with_name("page_template.md")
PAGE = ROOT / "docs" / "benchmarks" / "serving_policies.md"
PARTS = {
    "live": "tokens",
    "reserved": "reserved",
    "never_used": "never used",
    "lost": "lost to holes",
    "free": "free",
}

Document = Mapping[str, Any]


def write_page(results: Sequence[Path], page: Path) -> list[Path]:
    """Write the page and its plots; returns the plots. Raises ValueError without results."""
    if not results:
        raise ValueError("no results files; run python -m benchmarks.serving_policies first")
    plots, sections, lines = page.parent / "plots", [], []
    plots.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for path in results:
        document = json.loads(path.read_text(encoding="utf-8"))
        section = _Section(document, path, page, written)
        sections.append(section.text())
        lines += section.summary_lines()
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        limit=f"{LATENCY_LIMIT:g}", summary="\n".join(lines), sections="\n\n".join(sections)
    )
    page.write_text(text.rstrip() + "\n", encoding="utf-8")
    return written


class _Section:
    """What one results file says."""

    def __init__(self, document: Document, path: Path, page: Path, written: list[Path]) -> None:
        self._document = document
        self._path = path
        self._page = page
        self._written = written
        self._cases = cases_of(document)
        self._policies = policies_of(document)

    def summary_lines(self) -> list[str]:
        """One line for each case."""
        lines = []
        for case in self._cases:
            if not self._can_compare(case):
                continue
            found = factors(self._document, case)
            shown = ", ".join(f"{factor} x {policy}" for policy, factor in found.items())
            waste = self._number(case, PAGED, "kv", "waste")
            lines.append(
                f"* {case.title}, {self._kind()}: paged serves {shown}; waste {waste:.1%}."
            )
        return lines

    def text(self) -> str:
        """The section in Markdown."""
        document = self._document
        pool = document["num_blocks"] * document["block_size"]
        link = os.path.relpath(self._path, self._page.parent)
        parts = [
            f"## {_sentence(self._cases[0].workload)}, {self._kind()} ({self._path.stem})",
            f"{_sentence(document['machine'])}. Pool of {pool:,} slots in blocks of "
            f"{document['block_size']}, contexts up to {document['max_model_len']:,} tokens, "
            f"{document['num_requests']} requests a point, median of "
            f"{len({point['seed'] for point in document['points']})} seeds. Commit "
            f"{document['commit']}, {document['date']}, {document['cpu']}; [results]({link}).",
            f"```\n{document['command']}\n```",
        ]
        for case in self._cases:
            parts += self._case(case)
        if any(case.n > 1 or case.beam_width or case.prefix_len for case in self._cases):
            parts += self._sharing()
        return "\n\n".join(parts)

    def _case(self, case: Case) -> list[str]:
        stem = self._stem(case)
        parts = [f"### {_sentence(case.title)}"] if len(self._cases) > 1 else []
        if self._can_compare(case):
            plot = self._write_plot(f"{stem}-latency.svg", self._latency_plot(case))
            parts.append(f"![Normalised latency against request rate, {case.title}]({plot})")
        plot = self._write_plot(f"{stem}-memory.svg", self._memory_plot(case))
        parts.append(f"![Use of the KV pool, {case.title}]({plot})")
        parts.append(self._table(case))
        return parts

    def _latency_plot(self, case: Case) -> str:
        limit_s = latency_limit_s(self._document, case)
        series = []
        # The paged policy first: its line is the solid one.
        for policy in sorted(self._policies, key=lambda policy: policy != PAGED):
            found = values(self._document, case, policy, "requests", "normalised_latency_s")
            series.append(
                Series(
                    policy,
                    list(found),
                    [value["median"] for value in found.values()],
                    [value["min"] for value in found.values()],
                    [value["max"] for value in found.values()],
                )
            )
        return line_chart(
            f"{_sentence(case.title)}, {self._kind()}",
            "request rate (requests/s)",
            "normalised latency (s/token)",
            series,
            y_limit=2 * limit_s,
            guide=("limit", limit_s),
        )

    def _memory_plot(self, case: Case) -> str:
        rate = self._highest_rate(case)
        bars = [
            Bar(policy, [self._number(case, policy, "kv", part) for part in PARTS])
            for policy in self._policies
        ]
        return stacked_bars(
            f"KV pool at {rate:g} requests/s, {case.title}",
            "share of the pool, average over time",
            list(PARTS.values()),
            bars,
        )

    def _table(self, case: Case) -> str:
        rate = self._highest_rate(case)
        lines = [
            f"| Policy | sustainable rate | paged is | requests in a step at {rate:g}/s | waste |"
            " slots that hold tokens | sharing saves |",
            "|---|---|---|---|---|---|---|",
        ]
        can_compare = self._can_compare(case)
        found = factors(self._document, case) if can_compare else {}
        for policy in self._policies:
            numbers = [
                self._number(case, policy, "kv", name)
                for name in ("num_rows", "waste", "live", "sharing")
            ]
            lines.append(
                f"| {policy} | {self._rate(case, policy) if can_compare else '-'} "
                f"| {found.get(policy, '1')} x | {numbers[0]:.1f} | {numbers[1]:.1%} "
                f"| {numbers[2]:.1%} | {numbers[3]:.1%} |"
            )
        return "\n".join(lines)

    def _sharing(self) -> list[str]:
        lines = ["| Case | rate | memory saved by sharing |", "|---|---|---|"]
        for case in self._cases:
            for rate, value in values(self._document, case, PAGED, "kv", "sharing").items():
                lines.append(
                    f"| {case.title} | {rate:g}/s | {value['median']:.1%} "
                    f"({value['min']:.1%} to {value['max']:.1%}) |"
                )
        text = (
            "Memory saved by sharing is the share of block table entries that needed no block of "
            "their own, averaged over time."
        )
        return ["### What sharing saves", text, "\n".join(lines)]

    def _rate(self, case: Case, policy: str) -> str:
        limit_s = latency_limit_s(self._document, case)
        points = curve(self._document, case, policy)
        rate = sustainable_rate(points, limit_s)
        if rate is None:
            return f"below {points[0][0]:g}/s"
        return f"{rate:.2f}/s" if crosses(points, limit_s) else f"at least {rate:g}/s"

    def _can_compare(self, case: Case) -> bool:
        """A curve needs several rates, and the paged policy as the measure."""
        return PAGED in self._policies and len(curve(self._document, case, PAGED)) > 1

    def _number(self, case: Case, policy: str, part: str, name: str) -> float:
        """At the highest rate, median over the seeds."""
        found = values(self._document, case, policy, part, name)
        return found[max(found)]["median"] if found else 0.0

    def _highest_rate(self, case: Case) -> float:
        return max(rate for rate, _ in curve(self._document, case, self._policies[0]))

    def _kind(self) -> str:
        return "virtual" if self._document["is_virtual"] else "measured"

    def _stem(self, case: Case) -> str:
        extras = [f"n{case.n}"] * (case.n > 1)
        extras += [f"beam{case.beam_width}"] * (case.beam_width > 0)
        extras += [f"prefix{case.prefix_len}"] * (case.prefix_len > 0)
        return "-".join([self._path.stem, *extras])

    def _write_plot(self, name: str, svg: str) -> str:
        path = self._page.parent / "plots" / name
        path.write_text(svg, encoding="utf-8")
        self._written.append(path)
        return f"plots/{name}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_policies.page")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    for plot in write_page([path.resolve() for path in options.results], options.page):
        print(f"written to {plot}")
    print(f"written to {options.page}")


if __name__ == "__main__":
    main()
