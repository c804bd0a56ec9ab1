"""octavo bench latency: one batch of equal requests, again and again. Keys are vLLM's."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from octavo.cli.bench.datasets import ids
from octavo.cli.bench.metrics import percent_word, percentile
from octavo.cli.bench.offline import (
    checked,
    counter_of,
    load_engine,
    print_reached,
    reached,
    require_room,
    roofs_of,
    work_of,
    write_json,
)
from octavo.cli.engine_flags import add_engine_flags
from octavo.config.cli_args import Parser
from octavo.engine.build import Engine
from octavo.errors import ConfigError
from octavo.foundation.clock import SystemClock
from octavo.foundation.log import set_up_logging
from octavo.llm import LLM
from octavo.prompts import TokensPrompt
from octavo.sampling_params import BeamSearchParams, SamplingParams

_PERCENTS = (10.0, 25.0, 50.0, 75.0, 90.0, 99.0)


def run(arguments: Sequence[str]) -> int:
    """Print the latency of a batch, and write it if asked to."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    for name in ("input_len", "output_len", "batch_size", "n", "num_iters"):
        if getattr(parsed, name) < 1:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} must be at least 1, got {getattr(parsed, name)}")
    set_up_logging("warning")
    engine = load_engine(parsed)
    try:
        require_room(engine, parsed.input_len + parsed.output_len)
        print(f"{engine.name}: {engine.hardware}")
        roofs = roofs_of(engine)
        print(roofs.line(), flush=True)
        result = measure(engine, parsed, roofs)
    finally:
        engine.core.stop()
    print(f"Avg latency: {result['avg_latency']:.6f} seconds")
    print(f"Std latency: {result['std_latency']:.6f} seconds")
    for percent, seconds in result["percentiles"].items():
        print(f"{percent}% percentile latency: {seconds:.6f} seconds")
    print_reached(result["roofs"])
    if parsed.output_json:
        write_json(parsed.output_json, result)
    return 0


def measure(engine: Engine, parsed: Any, roofs: Any) -> dict[str, Any]:
    """The result of parsed options, roofs reached over all measured iterations together."""
    llm = LLM.from_engine(engine, SystemClock())
    generator = random.Random(0)  # noqa: S311 - token ids of a benchmark
    vocab_size = counter_of(engine).vocab_size
    prompts = [
        TokensPrompt(prompt_token_ids=ids(generator, parsed.input_len, vocab_size))
        for _ in range(parsed.batch_size)
    ]
    params = SamplingParams(
        n=parsed.n,
        temperature=1.0,
        top_p=1.0,
        ignore_eos=True,
        max_tokens=parsed.output_len,
        detokenize=not parsed.disable_detokenize,
    )
    beams = BeamSearchParams(
        beam_width=max(2, parsed.n), max_tokens=parsed.output_len, ignore_eos=True
    )
    latencies: list[float] = []
    before = work_of(engine)
    for number in range(parsed.num_iters_warmup + parsed.num_iters):
        if number == parsed.num_iters_warmup:
            before = work_of(engine)
        begin_s = time.perf_counter()
        if parsed.use_beam_search:
            llm.beam_search(prompts, beams)
        else:
            checked(llm, llm.generate(prompts, params, use_tqdm=False))
        if number >= parsed.num_iters_warmup:
            latencies.append(time.perf_counter() - begin_s)
    return {
        "avg_latency": statistics.fmean(latencies),
        "std_latency": statistics.pstdev(latencies),
        "latencies": latencies,
        "percentiles": {percent_word(p): percentile(latencies, p) for p in _PERCENTS},
        "roofs": reached(engine, roofs, before, sum(latencies)),
    }


def _parser() -> Parser:
    parser = Parser(prog="octavo bench latency", description="Measure the latency of a batch.")
    add_engine_flags(parser)
    add = parser.add_argument
    add("--input-len", type=int, default=32, help="Tokens of a prompt [32].")
    add("--output-len", type=int, default=128, help="Tokens of an answer [128].")
    add("--batch-size", type=int, default=8, help="Requests of the batch [8].")
    add("--n", type=int, default=1, help="Answers to each prompt, or beams [1].")
    add("--use-beam-search", action="store_true", help="Search instead of sampling.")
    add("--num-iters-warmup", type=int, default=3, help="Iterations that do not count [3].")
    add("--num-iters", type=int, default=10, help="Measured iterations [10].")
    add("--disable-detokenize", action="store_true", help="Leave the text out.")
    add("--output-json", metavar="FILE", help="Write a results file.")
    return parser
