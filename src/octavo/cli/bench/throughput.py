"""octavo bench throughput: many requests at once in this process. Keys are vLLM's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from octavo.cli.bench.datasets import Sample, add_dataset_options, make_samples
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
from octavo.cli.bench.roofs import Roofs
from octavo.cli.engine_flags import add_engine_flags
from octavo.config.cli_args import Parser
from octavo.engine.build import Engine
from octavo.errors import ConfigError
from octavo.foundation.clock import SystemClock
from octavo.foundation.log import set_up_logging
from octavo.llm import LLM
from octavo.prompts import PromptType, TokensPrompt
from octavo.sampling_params import SamplingParams


def run(arguments: Sequence[str]) -> int:
    """Print requests and tokens per second, and write them if asked to."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.n < 1:
        raise ConfigError(f"--n must be at least 1, got {parsed.n}")
    set_up_logging("warning")
    engine = load_engine(parsed)
    try:
        samples = make_samples(parsed, counter_of(engine))
        require_room(engine, max(sample.prompt_len + sample.output_len for sample in samples))
        print(f"{engine.name}: {engine.hardware}")
        roofs = roofs_of(engine)
        print(roofs.line(), flush=True)
        result = measure(engine, samples, roofs, n=parsed.n, detokenize=not parsed.no_text)
    finally:
        engine.core.stop()
    print(
        f"Throughput: {result['requests_per_second']:.2f} requests/s, "
        f"{result['tokens_per_second']:.2f} total tokens/s, "
        f"{result['output_throughput']:.2f} output tokens/s"
    )
    print(f"Total num prompt tokens:  {result['total_input_tokens']}")
    print(f"Total num output tokens:  {result['total_output_tokens']}")
    print_reached(result["roofs"])
    if parsed.output_json:
        write_json(parsed.output_json, result)
    return 0


def measure(
    engine: Engine,
    samples: Sequence[Sample],
    roofs: Roofs,
    *,
    n: int = 1,
    detokenize: bool = True,
) -> dict[str, Any]:
    """All requests from the first submit to the last token."""
    llm = LLM.from_engine(engine, SystemClock())
    params = [
        SamplingParams(
            n=n,
            temperature=1.0,
            ignore_eos=True,
            max_tokens=sample.output_len,
            detokenize=detokenize,
        )
        for sample in samples
    ]
    prompts = [_prompt(sample) for sample in samples]
    before, begin_s = work_of(engine), time.perf_counter()
    outputs = checked(llm, llm.generate(prompts, params, use_tqdm=False))
    elapsed_s = time.perf_counter() - begin_s
    num_in = sum(len(output.prompt_token_ids) for output in outputs)
    num_out = sum(len(choice.token_ids) for output in outputs for choice in output.outputs)
    return {
        "elapsed_time": elapsed_s,
        "num_requests": len(samples),
        "total_num_tokens": num_in + num_out,
        "requests_per_second": len(samples) / elapsed_s,
        "tokens_per_second": (num_in + num_out) / elapsed_s,
        "total_input_tokens": num_in,
        "total_output_tokens": num_out,
        "output_throughput": num_out / elapsed_s,
        "roofs": reached(engine, roofs, before, elapsed_s),
    }


def _prompt(sample: Sample) -> PromptType:
    if isinstance(sample.prompt, str):
        return sample.prompt
    return TokensPrompt(prompt_token_ids=sample.prompt)


def _parser() -> Parser:
    parser = Parser(prog="octavo bench throughput", description="Measure many requests at once.")
    add_engine_flags(parser)
    add_dataset_options(parser, num_prompts=100, has_seed=True)
    parser.add_argument("--n", type=int, default=1, help="Answers to each prompt [1].")
    parser.add_argument(
        "--disable-detokenize", dest="no_text", action="store_true", help="Leave the text out."
    )
    parser.add_argument("--output-json", metavar="FILE", help="Write a results file.")
    return parser
