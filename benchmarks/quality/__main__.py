"""Perplexity of a text for each type of keys and values, against float32.

    python -m benchmarks.quality --model MODEL --text FILE --kv-cache-dtype int8 fp8 int4 --out FILE

The text is cut into pieces of `--piece` tokens, each a request of its own; the engine scores every
token but the first of each. Growth is the mean difference of the losses of the same token, as a
share of the perplexity; its standard error says how much the text matters.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, write_results
from octavo import LLM, SamplingParams
from octavo.prompts import TokensPrompt

BASE = "float32"
TYPES = ("bfloat16", "float16", "int8", "fp8_e4m3", "fp8_e5m2", "int4")
TEXT = ROOT / "tests/golden/alice.txt"


@dataclass(frozen=True, slots=True)
class Reading:
    """One run over the text."""

    losses: list[float]  # of each scored token, in nats
    bytes_per_token: float  # of keys and values


def read(model: str, pieces: Sequence[Sequence[int]], **options: Any) -> Reading:
    """Losses of all tokens of all pieces but the first of each."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    longest = max(map(len, pieces)) + 1
    with LLM(model=model, max_model_len=longest, enable_prefix_caching=False, **options) as llm:
        kv = llm.llm_engine.engine.memory_plan.kv
        given = [TokensPrompt(prompt_token_ids=list(piece)) for piece in pieces]
        outputs = llm.generate(given, params, use_tqdm=False)
    losses: list[float] = []
    for piece, output in zip(pieces, outputs, strict=True):
        assert output.prompt_logprobs is not None
        for token_id, entry in zip(piece[1:], output.prompt_logprobs[1:], strict=True):
            assert entry is not None
            losses.append(-entry[token_id].logprob)
    return Reading(losses, kv.bytes_per_block * len(kv.groups) / kv.block_size)


def compare(base: Reading, other: Reading) -> dict[str, float]:
    """Perplexity, its growth in percent, the standard error of that, and bytes."""
    growth = [new - old for old, new in zip(base.losses, other.losses, strict=True)]
    doubt = statistics.stdev(growth) / math.sqrt(len(growth))
    return {
        "perplexity": math.exp(statistics.fmean(other.losses)),
        "growth_percent": 100 * math.expm1(statistics.fmean(growth)),
        "standard_error_percent": 100 * doubt,
        "kv_bytes_per_token": other.bytes_per_token,
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--text", type=Path, nargs="+", default=[TEXT])
    parser.add_argument("--max-tokens", type=int, default=20_000)
    parser.add_argument("--piece", type=int, default=1024, help="tokens of a request")
    parser.add_argument("--kv-cache-dtype", nargs="+", default=list(TYPES))
    parser.add_argument("--activation-dtype", default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    with LLM(model=options.model, max_model_len=64) as llm:
        tokenizer = llm.get_tokenizer()
    text = "\n".join(path.read_text(encoding="utf-8") for path in options.text)
    token_ids = tokenizer.encode(text)[: options.max_tokens]
    starts = range(0, len(token_ids) - 1, options.piece)
    pieces = [token_ids[start : start + options.piece] for start in starts]
    activation = {"activation_dtype": options.activation_dtype}
    base = read(options.model, pieces, kv_cache_dtype=BASE, **activation)
    rows = {BASE: compare(base, base)}
    _print(BASE, rows[BASE])
    for kv_cache_dtype in options.kv_cache_dtype:
        other = read(options.model, pieces, kv_cache_dtype=kv_cache_dtype, **activation)
        rows[kv_cache_dtype] = compare(base, other)
        _print(kv_cache_dtype, rows[kv_cache_dtype])
    if options.out:
        document = {"model": options.model, "scored_tokens": len(base.losses), "types": rows}
        write_results(options.out, document)


def _print(name: str, row: dict[str, float]) -> None:
    print(
        f"{name:10} perplexity {row['perplexity']:8.3f}  growth {row['growth_percent']:+.3f} % "
        f"(standard error {row['standard_error_percent']:.3f})  "
        f"{row['kv_bytes_per_token']:.0f} bytes per token",
        flush=True,
    )


if __name__ == "__main__":
    main()
