"""Workloads of `octavo bench serve --preset`: what real traffic is made of, each with one command.

    w1  chat lengths, 64 requests at once
    w3  8 groups of 8 prompts with a shared beginning, and the same lengths without one
    w4  8 requests that decode, and a prompt of 1,536 tokens every 8 s
    w5  one request at a time: prefill of 512 and 2,048 tokens, decoding at depth 0, 512 and 2,048
    w6  8 prompts with n = 8 sampled answers, and the same as 64 requests
    w8  chat lengths at 0.25 to 1.5 of the measured capacity, with goodput

Owns: lengths, phases and what each phase reports. Lengths of chats are lognormal, with the mean of
vLLM's sample of ShareGPT: 202 tokens in, 179 out. Random parts depend on `--seed` alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from octavo.cli.bench.datasets import Sample, ids, prefix_groups
from octavo.cli.bench.load import Arrivals, Target, run_load
from octavo.cli.bench.metrics import RequestTimes, summarise
from octavo.cli.bench.serve import (
    BenchmarkFailedError,
    counter_of,
    print_errors,
    print_result,
    print_roofs,
)
from octavo.errors import ConfigError

_PERCENTILES = (50.0, 90.0, 99.0)
_SWEEP = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # of the capacity
_SWEEP_S = 120.0  # length of a phase of the sweep
_OBJECTIVES: tuple[dict[str, float], ...] = (
    {"ttft": 3000.0, "tpot": 200.0},
    {"ttft": 1000.0, "tpot": 100.0},
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Requests that are sent together, and how."""

    name: str
    samples: Sequence[Sample]
    arrivals: Arrivals = field(default_factory=Arrivals)
    objectives: tuple[dict[str, float], ...] = ()


Outcome = dict[str, Any]
Phases = Iterator[Phase]


def run_preset(parsed: argparse.Namespace, target: Target) -> int:
    """All phases of a preset, one after another; 1 when a request failed."""
    if parsed.preset not in PRESETS:
        raise ConfigError(f"--preset must be one of {', '.join(PRESETS)}, got {parsed.preset!r}")
    if target.is_chat:
        raise ConfigError("--preset sends token ids, which --backend openai-chat cannot take")
    generator = random.Random(parsed.seed)  # noqa: S311 - made-up requests
    print_roofs(target.base_url)
    outcomes: dict[str, Outcome] = {}
    for phase in PRESETS[parsed.preset](generator, counter_of(parsed, target).vocab_size, outcomes):
        outcomes[phase.name] = run_phase(target, phase)
    if parsed.save_result:
        name = parsed.result_filename or f"{parsed.preset}-{target.model.replace('/', '-')}.json"
        path = Path(parsed.result_dir or ".") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"preset": parsed.preset, "model_id": target.model, "phases": outcomes}
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"written to {path}")
    return 1 if any(outcome["failed"] for outcome in outcomes.values()) else 0


def run_phase(target: Target, phase: Phase) -> Outcome:
    """Send, print, and sum up: over all requests, and over each group of a mixture.

    Raises BenchmarkFailedError when no request succeeded.
    """
    requests, duration_s = asyncio.run(run_load(target, phase.samples, phase.arrivals))
    print_errors(requests)
    if all(request.error for request in requests):
        raise BenchmarkFailedError(f"phase {phase.name}: every request failed")
    outcome = _summary(requests, duration_s, phase.objectives)
    if not math.isinf(phase.arrivals.rate):
        outcome["request_rate"] = phase.arrivals.rate
    print_result(outcome, phase.name)
    groups = sorted({sample.group for sample in phase.samples} - {""})
    for group in groups:
        inside = [request for request in requests if request.group == group]
        outcome.setdefault("groups", {})[group] = _summary(inside, duration_s, ())
        print_result(outcome["groups"][group], f"{phase.name}: {group}")
    return outcome


def chat_samples(generator: random.Random, vocab_size: int, count: int) -> list[Sample]:
    """Prompts of 202 and answers of 179 tokens on average, widely spread."""
    samples = []
    for _ in range(count):
        prompt_len = _lognormal(generator, 4.70, 1.1, 4, 1024)
        output_len = _lognormal(generator, 4.78, 0.9, 4, 512)
        samples.append(Sample(ids(generator, prompt_len, vocab_size), prompt_len, output_len))
    return samples


def _summary(
    requests: Sequence[RequestTimes], duration_s: float, objectives: Sequence[dict[str, float]]
) -> Outcome:
    outcome = summarise(requests, duration_s, percentiles=_PERCENTILES)
    for limits in objectives:
        found = summarise(requests, duration_s, metrics=(), objectives=limits)
        name = "_".join(f"{key}{value:.0f}" for key, value in limits.items())
        outcome[f"request_goodput_{name}"] = found["request_goodput"]
        print(f"goodput within {name}: {found['request_goodput']:.2f} req/s")
    return outcome


def _chat(generator: random.Random, vocab_size: int, outcomes: dict[str, Outcome]) -> Phases:
    yield Phase("chat", chat_samples(generator, vocab_size, 64))


def _shared_prefix(
    generator: random.Random, vocab_size: int, outcomes: dict[str, Outcome]
) -> Phases:
    shape = {"prefix_len": 512, "suffix_len": 32, "output_len": 64}
    groups = prefix_groups(generator, vocab_size, num_groups=8, per_group=8, **shape)
    alone = prefix_groups(generator, vocab_size, num_groups=64, per_group=1, **shape)
    yield Phase("shared prefix", groups)
    yield Phase("nothing shared", alone)


def _long_among_decoding(
    generator: random.Random, vocab_size: int, outcomes: dict[str, Outcome]
) -> Phases:
    """Decoding requests follow one another in 8 lanes, for as long as long prompts arrive."""
    num_prompts, every_s, prompt_len, num_lanes, output_len = 6, 8.0, 1536, 8, 256
    lanes = [Sample(ids(generator, 32, vocab_size), 32, output_len, 0.0) for _ in range(num_lanes)]
    quiet = [replace(sample, group="decoding") for sample in lanes]
    yield Phase("decoding alone", quiet)
    span_s = num_prompts * every_s
    one_s = max(outcomes["decoding alone"]["duration"], 0.1)
    mixed = [
        Sample(ids(generator, 32, vocab_size), 32, output_len, round_number * one_s, "decoding")
        for round_number in range(max(1, math.ceil(span_s / one_s)))
        for _ in range(num_lanes)
    ]
    mixed += [
        Sample(
            ids(generator, prompt_len, vocab_size), prompt_len, 1, (number + 0.5) * every_s, "long"
        )
        for number in range(num_prompts)
    ]
    yield Phase("long prompts among them", mixed)


def _single_stream(
    generator: random.Random, vocab_size: int, outcomes: dict[str, Outcome]
) -> Phases:
    one_at_a_time = Arrivals(max_concurrency=1)
    for prompt_len in (512, 2048):
        prompts = [ids(generator, prompt_len, vocab_size) for _ in range(5)]
        samples = [Sample(prompt, prompt_len, 1) for prompt in prompts]
        yield Phase(f"pp{prompt_len}", samples, one_at_a_time)
    for depth in (0, 512, 2048):
        prompts = [ids(generator, max(1, depth), vocab_size) for _ in range(3)]
        samples = [Sample(prompt, len(prompt), 128) for prompt in prompts]
        yield Phase(f"tg128 at depth {depth}", samples, one_at_a_time)


def _many_answers(
    generator: random.Random, vocab_size: int, outcomes: dict[str, Outcome]
) -> Phases:
    prompts = [ids(generator, 256, vocab_size) for _ in range(8)]
    families = [
        Sample(prompt, 256, 128, n=8, temperature=0.8, seed=number)
        for number, prompt in enumerate(prompts)
    ]
    fresh = [ids(generator, 256, vocab_size) for _ in range(8)]
    single = [
        Sample(prompt, 256, 128, temperature=0.8, seed=64 * number + choice)
        for number, prompt in enumerate(fresh)
        for choice in range(8)
    ]
    yield Phase("n = 8", families)
    yield Phase("64 requests", single)


def _sweep(generator: random.Random, vocab_size: int, outcomes: dict[str, Outcome]) -> Phases:
    yield Phase("capacity", chat_samples(generator, vocab_size, 64))
    capacity = outcomes["capacity"]["request_throughput"]
    for share in _SWEEP:
        rate = share * capacity
        samples = chat_samples(generator, vocab_size, max(8, math.ceil(rate * _SWEEP_S)))
        yield Phase(f"{share:g} of capacity", samples, Arrivals(rate), _OBJECTIVES)


def _lognormal(
    generator: random.Random, mu: float, sigma: float, shortest: int, longest: int
) -> int:
    return min(max(round(generator.lognormvariate(mu, sigma)), shortest), longest)


PRESETS: dict[str, Callable[[random.Random, int, dict[str, Outcome]], Phases]] = {
    "w1": _chat,
    "w3": _shared_prefix,
    "w4": _long_among_decoding,
    "w5": _single_stream,
    "w6": _many_answers,
    "w8": _sweep,
}
