"""octavo bench: offline speed of this engine on this machine, and where the time of a step goes.

Random token ids, greedy, end tokens ignored, prefix cache off. Each figure is the median of the
runs.
`--json` writes a results file with what is needed to read it later.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.llm import LLM

from octavo.cli.banner import memory_line
from octavo.cli.engine_flags import add_engine_flags, engine_config
from octavo.config.cli_args import Parser
from octavo.foundation.log import set_up_logging
from octavo.sampling_params import SamplingParams
from octavo.version import version

Workload = tuple[str, int, int, int]  # name, requests, prompt tokens, new tokens
WORKLOADS: tuple[Workload, ...] = (
    ("prefill 512", 1, 512, 1),
    ("single stream", 1, 16, 128),
    ("batch 8", 8, 128, 64),
    ("batch 32", 32, 128, 64),
)


def run(arguments: Sequence[str]) -> int:
    """Print a table."""
    parser = Parser(prog="octavo bench", description="Measure speed on this machine.")
    add_engine_flags(parser)
    parser.add_argument("--runs", type=int, default=5, help="Measured runs of each workload [5].")
    parser.add_argument("--json", metavar="FILE", help="Write a results file.")
    parsed = parser.parse_args(arguments)
    set_up_logging("warning")
    config = engine_config(parsed)
    config = replace(config, cache=replace(config.cache, enable_prefix_caching=False))
    start_s = time.perf_counter()
    with LLM.from_config(config) as llm:
        load_s = time.perf_counter() - start_s
        print(memory_line(llm.memory_plan))
        print(f"{llm.hardware.num_threads} threads, {llm.hardware.isa}; loaded in {load_s:.2f} s")
        print(f"{'workload':<14} {'in tok/s':>9} {'out tok/s':>9} {'step ms':>8} {'python ms':>9}")
        results = []
        for workload in WORKLOADS:
            result = _measure(llm, workload, parsed.runs)
            results.append(result)
            print(
                f"{result['name']:<14} {result['prompt_tokens_per_s']:>9.1f} "
                f"{result['new_tokens_per_s']:>9.1f} {result['step_ms']:>8.2f} "
                f"{result['python_step_ms']:>9.3f}"
            )
        if parsed.json:
            _write(Path(parsed.json), llm, results, load_s)
    return 0


def _measure(llm: LLM, workload: Workload, runs: int) -> dict[str, Any]:
    """Medians over the runs, after one warm-up."""
    name, num_requests, prompt_len, new_len = workload
    params = SamplingParams(temperature=0.0, max_tokens=new_len, ignore_eos=True)
    generator = random.Random(0)  # noqa: S311 - token ids of a benchmark
    times_s, step_ms, python_ms = [], [], []
    for number in range(runs + 1):
        prompts = [
            {"prompt_token_ids": [generator.randrange(100, 20000) for _ in range(prompt_len)]}
            for _ in range(num_requests)
        ]
        before = llm.stats()
        start_s = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        elapsed_s = time.perf_counter() - start_s
        after = llm.stats()
        if number == 0:
            continue
        steps = after.num_steps - before.num_steps
        times_s.append(elapsed_s)
        step_ms.append(1e3 * (after.executor_s - before.executor_s) / steps)
        python_ms.append(1e3 * (elapsed_s - after.executor_s + before.executor_s) / steps)
    median_s = statistics.median(times_s)
    return {
        "name": name,
        "num_requests": num_requests,
        "prompt_len": prompt_len,
        "new_len": new_len,
        "runs_s": [round(value, 4) for value in times_s],
        "prompt_tokens_per_s": num_requests * prompt_len / median_s,
        "new_tokens_per_s": num_requests * new_len / median_s,
        "step_ms": statistics.median(step_ms),
        "python_step_ms": statistics.median(python_ms),
    }


def _write(path: Path, llm: LLM, results: list[dict[str, Any]], load_s: float) -> None:
    hardware = llm.hardware
    document = {
        "octavo": version(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            "platform": platform.platform(),
            "threads": hardware.num_threads,
            "isa": hardware.isa,
        },
        "model": llm.model_name,
        "weights": hardware.weights,
        "kv_dtype": hardware.kv_dtype,
        "load_s": round(load_s, 3),
        "results": results,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"written to {path}")
