"""What types of stored and multiplied numbers cost in quality, over a fixed text, against float32.

    python -m benchmarks.quality --model smollm2:135m --out FILE
    python -m benchmarks.quality --page FILE ...        # the page of results files

The base is the model with all its numbers as float32: weights dequantised from the file, keys,
values and activations as they come. Each row changes one kind of type, and rows of quantised
weights are read a second time with int8 activations, of BF16 ones with bfloat16. The text is cut
into pieces of `--piece` tokens.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.page import write_page
from benchmarks.quality.reading import Reading, Types, compare, read
from benchmarks.quality.requantise import requantised
from benchmarks.quality.text import SOURCE, play
from benchmarks.record import write_results
from octavo.weights.checkpoint import WeightType
from octavo.weights.gguf_checkpoint import GgufCheckpoint
from octavo.weights.source import open_checkpoint

FILE = "file"  # weights as the file has them
WEIGHTS = (FILE, "BF16", "F16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0")
KV_TYPES = ("bfloat16", "float16", "int8", "fp8_e4m3", "fp8_e5m2", "int4")


@dataclass(frozen=True, slots=True)
class Case:
    """One arrangement of types."""

    weights: str  # a WeightType, or FILE
    types: Types


def cases(weights: Sequence[str], kv_types: Sequence[str]) -> list[Case]:
    """All that are compared with the base."""
    found = [Case("F32", Types(kv_cache_dtype=kv_type)) for kv_type in kv_types]
    for name in weights:
        found.append(Case(name, Types()))
        if name not in ("BF16", "F16"):
            found.append(Case(name, Types(activation_dtype="int8")))
        if name == "BF16":
            found.append(Case(name, Types(activation_dtype="bfloat16")))
    return found


def main() -> None:
    """See the module."""
    options = _parser().parse_args()
    if options.page:
        write_page(options.page)
        return
    checkpoint = open_checkpoint(options.model)
    if not isinstance(checkpoint, GgufCheckpoint):
        raise SystemExit(f"--model must be a GGUF file or a short name, got {options.model}")
    pieces = cut(checkpoint, play(), options.max_tokens, options.piece)
    exact = requantised(checkpoint, WeightType.F32)
    base = read(exact, pieces, Types(), options.every)
    rows = [_row(Case("F32", Types()), base, base)]
    for case in cases(options.weights, options.kv_cache_dtype):
        model = _model(case, checkpoint, exact)
        rows.append(_row(case, base, read(model, pieces, case.types, options.every)))
        del model
        gc.collect()  # the packed weights of the case before
    if options.out:
        document = {
            "model": checkpoint.name,
            "text": SOURCE,
            "scored_tokens": len(base.losses),
            "compared_distributions": len(base.distributions),
            "rows": rows,
        }
        write_results(options.out, document)


def cut(checkpoint: GgufCheckpoint, text: str, max_tokens: int, piece: int) -> list[list[int]]:
    """The text in pieces of so many tokens, each behind what the model wants at a beginning."""
    tokenizer = checkpoint.load_tokenizer()
    begin = tokenizer.encode("")
    token_ids = tokenizer.encode(text, add_special_tokens=False)[:max_tokens]
    width = piece - len(begin)
    starts = range(0, len(token_ids), width)
    pieces = [[*begin, *token_ids[start : start + width]] for start in starts]
    return [piece for piece in pieces if len(piece) > 1]


def _model(case: Case, checkpoint: GgufCheckpoint, exact: GgufCheckpoint) -> GgufCheckpoint:
    if case.weights == FILE:
        return checkpoint
    return exact if case.weights == "F32" else requantised(exact, WeightType[case.weights])


def _row(case: Case, base: Reading, other: Reading) -> dict[str, Any]:
    found = compare(base, other)
    row = {
        "weights": case.weights,
        "activations": case.types.activation_dtype,
        "kv": case.types.kv_cache_dtype,
        **found,
    }
    print(
        f"weights {case.weights:5} activations {row['activations']:8} kv {row['kv']:9} perplexity "
        f"{found['perplexity']:8.3f} {found['growth_percent']:+8.3f} % (standard error "
        f"{found['standard_error_percent']:.3f}) divergence {found['divergence_nats']:.5f}",
        flush=True,
    )
    return row


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--max-tokens", type=int, default=20_000)
    parser.add_argument("--piece", type=int, default=1024, help="tokens of a request")
    parser.add_argument(
        "--every", type=int, default=16, help="places from one compared distribution to the next"
    )
    parser.add_argument("--weights", nargs="*", default=list(WEIGHTS))
    parser.add_argument("--kv-cache-dtype", nargs="*", default=list(KV_TYPES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path, nargs="+", help="results files, instead of a run")
    return parser


if __name__ == "__main__":
    main()
