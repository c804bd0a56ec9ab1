"""Rows that decode behind a common prefix: how long a step takes in one source tree and in others.

    python -m benchmarks.shared_prefix --tree OTHER/src --out benchmarks/results/FILE

Each tree, this one first, has a process of its own with the model in it; a round goes through all
of them, workload by workload, so that what else the machine does falls on all alike. A step's time
is the gap between two tokens of a request while all requests of the workload decode. Answers of
all trees are compared, for they must not differ.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, quantile, spread, write_results
from octavo.config.engine import EngineConfig, ModelConfig
from octavo.engine.async_engine import AsyncLLM
from octavo.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths in tokens. Requests of a group have the prefix in common, the suffix is their own."""

    groups: int
    requests: int  # of each group
    prefix_len: int
    suffix_len: int
    output_len: int
    choices: int = 1  # of each request


WORKLOADS = {
    "8 rows behind 2048": Workload(1, 8, 2048, 32, 48),
    "2 rows behind 2048": Workload(1, 2, 2048, 32, 48),
    "8 rows behind 512": Workload(1, 8, 512, 32, 48),
    "32 rows behind 2048": Workload(1, 32, 2048, 32, 24),
    "W3, 8 x 8 behind 512": Workload(8, 8, 512, 32, 24),
    "W6, n = 8 of 256": Workload(1, 1, 0, 256, 64, choices=8),
    "8 rows that share nothing": Workload(8, 1, 512, 32, 48),
}


async def step_times(engine: AsyncLLM, work: Workload) -> tuple[list[float], list[list[int]]]:
    """Gaps between tokens while all requests decode, in seconds; the tokens of every choice."""
    vocab_size = (await engine.ready()).facts.vocab_size
    prompts = []
    for group in range(work.groups):
        prefix = _tokens(work.prefix_len, group, vocab_size)
        await _finish(engine, prefix or [1], 1)
        prompts += [
            prefix + _tokens(work.suffix_len, 1000 + group * work.requests + number, vocab_size)
            for number in range(work.requests)
        ]
    params = SamplingParams(
        n=work.choices,
        temperature=0.8 if work.choices > 1 else 0.0,
        seed=1,
        max_tokens=work.output_len,
        ignore_eos=True,
        detokenize=False,
    )
    times: list[list[float]] = [[] for _ in prompts]
    found = await asyncio.gather(
        *(_stream(engine, p, params, t) for p, t in zip(prompts, times, strict=True))
    )
    begin, end = max(one[0] for one in times), min(one[-1] for one in times)
    gaps = [
        late - early
        for one in times
        for early, late in itertools.pairwise(one)
        if begin <= early and late <= end
    ]
    return gaps, [tokens for choices in found for tokens in choices]


async def _stream(
    engine: AsyncLLM, prompt: list[int], params: SamplingParams, times: list[float]
) -> list[list[int]]:
    tokens: dict[int, list[int]] = {}
    num_seen = 0
    async for output in engine.generate(prompt, params):
        for choice in output.outputs:
            tokens[choice.index] = list(choice.token_ids)
        num_now = min((len(ids) for ids in tokens.values()), default=0)
        if len(tokens) == params.n and num_now > num_seen:
            num_seen = num_now
            times.append(time.perf_counter())
    return [tokens[index] for index in sorted(tokens)]


async def _finish(engine: AsyncLLM, prompt: list[int], max_tokens: int) -> None:
    async for _ in engine.generate(prompt, SamplingParams(temperature=0.0, max_tokens=max_tokens)):
        pass


def _tokens(length: int, seed: int, vocab_size: int) -> list[int]:
    return [(seed * 131 + 7 + place * 2654435761 // 977) % vocab_size for place in range(length)]


async def _work(model: str) -> None:
    """Take names of workloads from standard input, answer each with a line of JSON."""
    engine = AsyncLLM.start(EngineConfig(model=ModelConfig(model=model)))
    try:
        await engine.ready()
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            gaps, tokens = await step_times(engine, WORKLOADS[name])
            answer = {"step_ms": 1e3 * quantile(gaps, 0.5), "tokens": tokens}
            print(json.dumps(answer), flush=True)
    finally:
        await engine.shutdown()


class _Worker:
    def __init__(self, source: Path, model: str) -> None:
        path = os.pathsep.join([str(source), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shared_prefix", "--worker", "--model", model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
            cwd=ROOT,
        )

    def run(self, name: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


def measure(trees: Sequence[Path], model: str, names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Step times of each tree for each workload, and how this tree's compare with the others'."""
    workers = [_Worker(tree, model) for tree in trees]
    times: dict[str, list[list[float]]] = {name: [[] for _ in trees] for name in names}
    try:
        for number in range(rounds + 1):
            for name in names:
                order = workers[:: 1 if number % 2 else -1]
                answers = [worker.run(name) for worker in order][:: 1 if number % 2 else -1]
                if any(one["tokens"] != answers[0]["tokens"] for one in answers):
                    raise RuntimeError(f"{name}: the trees give different tokens")
                if number == 0:
                    continue
                for one, answer in zip(times[name], answers, strict=True):
                    one.append(answer["step_ms"])
    finally:
        for worker in workers:
            worker.close()
    return {name: _compared(found) for name, found in times.items()}


def _compared(found: list[list[float]]) -> dict[str, Any]:
    own, *others = found
    return {
        "step_ms": spread(own),
        "others_step_ms": [spread(other) for other in others],
        "others_over_own": [
            spread([b / a for a, b in zip(own, other, strict=True)]) for other in others
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write a results file if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--tree", type=Path, action="append", default=[])
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        asyncio.run(_work(options.model))
        return
    names = options.workload or list(WORKLOADS)
    trees = [ROOT / "src", *options.tree]
    load = os.getloadavg()[0]
    found = measure(trees, options.model, names, options.rounds)
    for name, value in found.items():
        print(f"{name:<28} {value}")
    if options.out:
        document = {"benchmark": "shared_prefix", "model": options.model, "load_before": load}
        write_results(options.out, document | {"rounds": options.rounds, "workloads": found})


if __name__ == "__main__":
    main()
