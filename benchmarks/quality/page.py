"""The page of quality: tables of results files, and whether they keep the limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT

PAGE = ROOT / "docs" / "benchmarks" / "quality.md"
EIGHT_BITS = 0.5  # percent that perplexity may grow with 8 bits, against float32
INT8_ACTIVATIONS = 1.0  # percent, against float32 activations and the same weights

_HEAD = """# Quality

What types of stored and multiplied numbers cost: growth of perplexity and divergence of the next
token's distribution, against the same model with everything in float32. Written by
`python -m benchmarks.quality --page`.

The text is {text}: its first tokens, in pieces behind the model's begin token. Growth is the mean
difference of the losses of the same tokens, with its standard error. Divergence is
Kullback-Leibler's in nats, over the whole vocabulary. "File" is what the published file stores; the
base are its numbers as float32, so its own type costs nothing but what int8 activations add. The
other types are rounded from there, without the search for better scales of tools that publish
models; types of 256 numbers are mixed with those of 32 where rows are too short.
"""
_HEADS = ("Weights", "Activations", "KV", "Perplexity", "Growth %", "Divergence")
_TABLE = "| " + " | ".join(_HEADS) + " |\n" + "|---" * len(_HEADS) + "|"


def write_page(paths: Sequence[Path]) -> None:
    """Make the page from one results file for each model."""
    PAGE.write_text(page([json.loads(path.read_text(encoding="utf-8")) for path in paths]), "utf-8")
    print(f"written to {PAGE}")


def page(documents: Sequence[Mapping[str, Any]]) -> str:
    """The page as text."""
    first = documents[0]
    parts = [_HEAD.format(text=first["text"])]
    for document in documents:
        lines = [_line(row) for row in document["rows"]]
        where = (
            f"{document['scored_tokens']:,} tokens, distributions at "
            f"{document['compared_distributions']:,} places; {document['date']}, commit "
            f"{document['commit']}, {document['cpu']}."
        )
        parts.append("\n".join([f"## {document['model']}", "", _TABLE, *lines, "", where, ""]))
    limits = [line for document in documents for line in _limits(document)]
    parts.append("\n".join(["## Limits", "", *limits, ""]))
    return "\n".join(parts)


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"| {row['weights']} | {row['activations']} | {row['kv']} | {row['perplexity']:.3f} | "
        f"{row['growth_percent']:+.2f} ± {row['standard_error_percent']:.2f} | "
        f"{row['divergence_nats']:.5f} |"
    )


def _limits(document: Mapping[str, Any]) -> list[str]:
    """One line for each limit, with what was found."""
    rows = {(row["weights"], row["activations"], row["kv"]): row for row in document["rows"]}
    lines = []
    for key, row in rows.items():
        weights, activations, kv = key
        if key in (("Q8_0", "float32", "float32"), ("F32", "float32", "int8")):
            what = "Q8_0 weights" if weights == "Q8_0" else "int8 keys and values"
            lines.append(_verdict(document, what, row["growth_percent"], EIGHT_BITS))
        elif activations == "int8":
            plain = rows[(weights, "float32", kv)]["growth_percent"]
            more = 100 * ((1 + row["growth_percent"] / 100) / (1 + plain / 100) - 1)
            what = f"int8 activations with weights {weights}"
            lines.append(_verdict(document, what, more, INT8_ACTIVATIONS))
    return lines


def _verdict(document: Mapping[str, Any], what: str, growth: float, limit: float) -> str:
    word = "kept" if growth <= limit else "**broken**"
    return f"- {document['model']}, {what}: {growth:+.2f} % of {limit} %, {word}"
