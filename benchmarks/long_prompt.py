"""A long prompt arrives among requests that decode: how much longer do these wait for a token?

    python -m benchmarks.long_prompt --out benchmarks/results/FILE

In turns: a quiet run, in which 8 requests decode 512 tokens each, and a disturbed one, in which a
prompt of 4,000 tokens arrives as soon as the same 8 decode. The engine has its default flags and is
used as a server uses it, through `AsyncLLM`; times are taken where tokens come out. Gaps count from
the moment when all requests decode until the first of them ends, in both kinds of run, so that both
are over the same tokens: a step takes longer as contexts grow.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import quantile, spread, write_results
from octavo.config.engine import EngineConfig, ModelConfig
from octavo.engine.async_engine import AsyncLLM
from octavo.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Shape:
    """What runs. Lengths in tokens."""

    num_decoding: int = 8
    decoding_prompt_len: int = 32
    long_prompt_len: int = 4000
    decoding_len: int = 512  # tokens of each decoding request
    tokens_before: int = 16  # of each decoding request before anything counts


@dataclass(slots=True)
class _Decoding:
    """A request that decodes, and when its tokens came."""

    times_s: list[float] = field(default_factory=list)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)

    def gaps(self, begin_s: float, end_s: float) -> list[float]:
        """Times between two tokens, the second of which came within the span."""
        pairs = zip(self.times_s, self.times_s[1:], strict=False)
        return [late - early for early, late in pairs if begin_s <= late <= end_s]


@dataclass(frozen=True, slots=True)
class Run:
    """Gaps of all decoding requests, in seconds."""

    gaps: list[float]
    first_token_s: float  # of the long prompt; 0 in a quiet run


async def run(engine: AsyncLLM, shape: Shape, seed: int, *, disturbs: bool) -> Run:
    """The decoding requests to their ends; with `disturbs` the long prompt once all decode."""
    decoding = [_Decoding() for _ in range(shape.num_decoding)]
    first_token_s = 0.0
    async with asyncio.TaskGroup() as group:
        for number, one in enumerate(decoding):
            group.create_task(_decode(engine, shape, one, seed * 64 + number, shape.decoding_len))
        for one in decoding:
            await one.has_begun.wait()
        begin_s = time.perf_counter()
        if disturbs:
            await _first_token(engine, await _prompt(engine, shape.long_prompt_len, seed * 64 + 63))
            first_token_s = time.perf_counter() - begin_s
    end_s = min(one.times_s[-1] for one in decoding)
    return Run([gap for one in decoding for gap in one.gaps(begin_s, end_s)], first_token_s)


async def measure(engine: AsyncLLM, shape: Shape, num_rounds: int) -> dict[str, Any]:
    """Quiet and disturbed runs in turns, after one of each that warms up."""
    quiet, disturbed = [], []
    for number in range(num_rounds + 1):
        runs = (
            await run(engine, shape, 2 * number, disturbs=False),
            await run(engine, shape, 2 * number + 1, disturbs=True),
        )
        if number:
            quiet.append(runs[0])
            disturbed.append(runs[1])
    medians = [quantile(one.gaps, 0.5) for one in quiet]
    p99s = [quantile(one.gaps, 0.99) for one in disturbed]
    return {
        "quiet_median_ms": spread([1e3 * value for value in medians]),
        "quiet_p99_ms": spread([1e3 * quantile(one.gaps, 0.99) for one in quiet]),
        "disturbed_median_ms": spread([1e3 * quantile(one.gaps, 0.5) for one in disturbed]),
        "disturbed_p99_ms": spread([1e3 * value for value in p99s]),
        "disturbed_max_ms": spread([1e3 * max(one.gaps) for one in disturbed]),
        "p99_over_quiet_median": spread(
            [p99 / median for p99, median in zip(p99s, medians, strict=True)]
        ),
        "long_prompt_first_token_s": spread([one.first_token_s for one in disturbed]),
    }


async def _decode(
    engine: AsyncLLM, shape: Shape, one: _Decoding, seed: int, num_tokens: int
) -> None:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=num_tokens,
        ignore_eos=True,
        detokenize=False,
    )
    prompt = await _prompt(engine, shape.decoding_prompt_len, seed)
    num_seen = 0
    async for output in engine.generate(prompt, params):
        num_now = len(output.outputs[0].token_ids)
        if num_now > num_seen:
            num_seen = num_now
            one.times_s.append(time.perf_counter())
        if num_seen >= shape.tokens_before and not one.has_begun.is_set():
            one.has_begun.set()


async def _first_token(engine: AsyncLLM, prompt: list[int]) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
    async for _ in engine.generate(prompt, params):
        pass


async def _prompt(engine: AsyncLLM, length: int, seed: int) -> list[int]:
    """Token ids that no other seed begins with."""
    vocab_size = (await engine.ready()).facts.vocab_size
    return [(seed * 131 + 7 + place * 2654435761 // 977) % vocab_size for place in range(length)]


async def _main(options: argparse.Namespace) -> None:
    engine = AsyncLLM.start(EngineConfig(model=ModelConfig(model=options.model)))
    shape = Shape(num_decoding=options.decoding, long_prompt_len=options.prompt_len)
    try:
        await engine.ready()
        found = await measure(engine, shape, options.rounds)
        hardware = (await engine.ready()).hardware
    finally:
        await engine.shutdown()
    for name, value in found.items():
        print(f"{name:<28} {value}")
    if options.out:
        document = {
            "benchmark": "long_prompt",
            "model": options.model,
            "hardware": hardware,
            "num_decoding": shape.num_decoding,
            "decoding_len": shape.decoding_len,
            "long_prompt_len": shape.long_prompt_len,
        }
        write_results(options.out, document | found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_prompt")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--decoding", type=int, default=8, help="Requests that decode.")
    parser.add_argument("--prompt-len", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asyncio.run(_main(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
