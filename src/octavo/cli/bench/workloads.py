"""octavo bench without a command: four fixed workloads, and where the time of a step goes.

Random token ids, greedy, end tokens ignored, prefix cache off; time from the first submit to the
last token. Figures are medians over the runs, step times medians over all steps of a full batch.
`--json` writes a results file with what is needed to read it later.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.cli.banner import memory_line
from octavo.cli.bench.offline import reached, roofs_of, work_of
from octavo.cli.bench.roofs import Roofs
from octavo.cli.engine_flags import add_engine_flags, engine_config, parse_flags
from octavo.config.cli_args import Parser
from octavo.engine.build import Engine, build_engine
from octavo.engine.stats import StepStats
from octavo.errors import RequestFailedError
from octavo.foundation.clock import SystemClock
from octavo.foundation.log import set_up_logging
from octavo.sampling_params import SamplingParams
from octavo.version import version


@dataclass(frozen=True, slots=True)
class Workload:
    """Equal requests, all submitted at once."""

    name: str
    num_requests: int
    prompt_len: int  # tokens
    new_len: int  # tokens


WORKLOADS = (
    Workload("prefill 512", 1, 512, 1),
    Workload("single stream", 1, 16, 128),
    Workload("batch 8", 8, 128, 64),
    Workload("batch 32", 32, 128, 64),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What one workload gave. Rates in tokens per second over the whole run."""

    name: str
    num_requests: int
    prompt_len: int
    new_len: int
    prompt_tokens_per_s: float
    new_tokens_per_s: float
    step_ms: float  # median of a step, everything included
    python_step_ms: float  # median of its part outside the native call
    runs_s: tuple[float, ...]
    read_share: float  # of the read bandwidth, by the weights alone; see `offline.reached`
    gop_share: float  # of the products' rate


def run(arguments: Sequence[str]) -> int:
    """Print a table."""
    parser = Parser(prog="octavo bench", description="Measure speed on this machine.")
    add_engine_flags(parser)
    parser.add_argument("--runs", type=int, default=5, help="Measured runs of each workload [5].")
    parser.add_argument("--json", metavar="FILE", help="Write a results file.")
    parsed = parse_flags(parser, arguments)
    set_up_logging("warning")
    config = engine_config(parsed)
    config = replace(config, cache=replace(config.cache, enable_prefix_caching=False))
    start_s = time.perf_counter()
    engine = build_engine(config, SystemClock(), lambda phase, share: None)
    load_s = time.perf_counter() - start_s
    try:
        print(f"{engine.name}: {engine.hardware}; loaded in {load_s:.2f} s")
        print(memory_line(engine.memory_plan))
        roofs = roofs_of(engine)
        print(roofs.line())
        print(
            f"{'workload':<14} {'in tok/s':>9} {'out tok/s':>9} {'step ms':>8} {'python ms':>9} "
            f"{'read':>6} {'ops':>6}"
        )
        results = []
        for workload in WORKLOADS:
            results.append(measure(engine, workload, max(1, parsed.runs), roofs))
            print(_row(results[-1]))
        if parsed.json:
            _write(Path(parsed.json), engine, results, load_s, roofs)
    finally:
        engine.core.stop()
    return 0


def measure(engine: Engine, workload: Workload, num_runs: int, roofs: Roofs) -> Result:
    """Medians over the runs, after one run that warms up."""
    generator = random.Random(0)  # noqa: S311 - token ids of a benchmark
    runs_s: list[float] = []
    steps: list[StepStats] = []
    before = work_of(engine)
    for number in range(num_runs + 1):
        if number == 1:
            before = work_of(engine)
        run_s, run_steps = _run_once(engine, workload, generator)
        if number > 0:
            runs_s.append(run_s)
            # A batch is as large as --max-num-seqs and the KV pool allow.
            full = max(step.num_rows for step in run_steps)
            steps += [step for step in run_steps if step.num_rows == full]
    median_s = statistics.median(runs_s)
    shares = reached(engine, roofs, before, sum(runs_s))
    num_tokens = workload.num_requests * workload.new_len
    return Result(
        name=workload.name,
        num_requests=workload.num_requests,
        prompt_len=workload.prompt_len,
        new_len=workload.new_len,
        prompt_tokens_per_s=workload.num_requests * workload.prompt_len / median_s,
        new_tokens_per_s=num_tokens / median_s,
        step_ms=1e3 * statistics.median(step.python_s + step.compute_s for step in steps),
        python_step_ms=1e3 * statistics.median(step.python_s for step in steps),
        runs_s=tuple(round(value, 4) for value in runs_s),
        read_share=shares["read_share"],
        gop_share=shares["gop_share"],
    )


def _run_once(
    engine: Engine, workload: Workload, generator: random.Random
) -> tuple[float, list[StepStats]]:
    """Seconds of one run, and its steps."""
    params = SamplingParams(temperature=0.0, max_tokens=workload.new_len, ignore_eos=True)
    vocab_size = engine.facts.vocab_size
    requests = []
    for number in range(workload.num_requests):
        ids = [generator.randrange(vocab_size) for _ in range(workload.prompt_len)]
        prompt = engine.intake.encode(ids)
        requests += engine.intake.requests(f"bench-{number}", prompt, params)
    steps = []
    start_s = time.perf_counter()
    for request in requests:
        engine.core.add_request(request)
    while engine.core.has_work():
        for delta in engine.core.step():
            if delta.finish_reason == "error":
                raise RequestFailedError(f"a request of the benchmark failed: {delta.error}")
        last = engine.core.last_step
        if last is not None:
            steps.append(last)
    return time.perf_counter() - start_s, steps


def _row(result: Result) -> str:
    return (
        f"{result.name:<14} {result.prompt_tokens_per_s:>9.1f} {result.new_tokens_per_s:>9.1f} "
        f"{result.step_ms:>8.2f} {result.python_step_ms:>9.3f} "
        f"{result.read_share:>6.0%} {result.gop_share:>6.0%}"
    )


def _write(
    path: Path, engine: Engine, results: Sequence[Result], load_s: float, roofs: Roofs
) -> None:
    document = {
        "octavo": version(),
        "date": time.strftime("%Y-%m-%d"),
        "platform": platform.platform(),
        "model": engine.name,
        "hardware": engine.hardware,
        "load_s": round(load_s, 3),
        "roofs": {name: getattr(roofs, name) for name in Roofs.__slots__},
        "results": [
            {name: getattr(result, name) for name in Result.__slots__} for result in results
        ],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"written to {path}")
