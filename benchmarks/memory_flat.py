"""Whether a server's memory stays where it is over thousands of mixed requests.

    python -m benchmarks.memory_flat --out benchmarks/results/FILE

A real server process; completions, chats, streams, structured output with ever new schemas, wrong
requests, and clients that go away, some at a time. The resident memory is read every hundred
requests. The first ones fill what is filled once: the KV pool, which is small here, the cache of
256 grammars, the heap; growth is what comes after `--warm` requests. The exit code is 1 when that
is more than allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import write_results
from benchmarks.stress.served import Served, end_servers_on_term

ALLOWED_MIB = 8.0  # of growth after the warm-up
READ_EVERY = 100  # requests
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_KINDS = ("plain", "chat", "stream", "form", "form", "form", "choices", "wrong", "gone")
_WORDS = ("the", "tall", "old", "tree", "by", "river", "stars", "where", "birds", "sing", "play")


class Mix:
    """Requests, the same ones each time."""

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)  # noqa: S311 - needs no secrecy

    def next(self, number: int) -> tuple[str, str, dict[str, Any], bool]:
        """(kind, path, body, whether the client leaves in the middle)."""
        draws = self._draws
        text = " ".join(draws.choices(_WORDS, k=draws.randrange(5, 120)))
        kind = draws.choice(_KINDS)
        body: dict[str, Any] = {
            "prompt": text,
            "max_tokens": draws.randrange(1, 24),
            "temperature": draws.choice((0, 1)),
        }
        if kind == "plain":
            return kind, _COMPLETIONS, body, False
        if kind == "stream":
            return kind, _COMPLETIONS, body | {"stream": True, "logprobs": 3}, False
        if kind == "choices":
            return kind, _COMPLETIONS, body | {"n": 3, "temperature": 1, "stop": ["e"]}, False
        if kind == "gone":
            return kind, _COMPLETIONS, body | {"stream": True, "max_tokens": 200}, True
        if kind == "wrong":
            wrong: dict[str, Any] = draws.choice(
                (
                    {"temperature": -1},
                    {"prompt": [10**9]},
                    {"structured_outputs": {"regex": f"({number}"}},
                    {"structured_outputs": {"json": {"not": {"const": number}}}},
                    {"max_tokens": 10**6},
                )
            )
            return kind, _COMPLETIONS, body | wrong, False
        del body["prompt"]
        body["messages"] = [{"role": "user", "content": text}]
        if kind == "form":
            schema = {"properties": {f"field {number}": {"type": "integer", "maximum": 10**6}}}
            form = {"json": {"type": "object", **schema, "required": [f"field {number}"]}}
            body |= {"structured_outputs": form, "max_tokens": 40}
        return kind, _CHAT, body, False


async def send(served: Served, mix: Mix, number: int) -> str:
    """One request; what became of it."""
    kind, path, body, leaves = mix.next(number)
    if not leaves:
        status, _, _ = await served.ask("POST", path, body)
        return f"{kind} {status}"
    async with served.sent("POST", path, body) as reader:
        await reader.readuntil(b"data: ")
    return kind


async def _main(options: argparse.Namespace) -> int:
    flags = ["--max-model-len", "1024", "--num-gpu-blocks-override", "512"]
    served = Served(options.model, [*flags, *options.flags.split()])
    mix, counts, read = Mix(options.seed), Counter[str](), [(0, served.rss_mib)]
    numbers = iter(range(1, options.requests + 1))

    async def client() -> None:
        for number in numbers:
            counts[await send(served, mix, number)] += 1
            if number % READ_EVERY == 0:
                read.append((number, round(served.rss_mib, 1)))

    try:
        await asyncio.gather(*(client() for _ in range(options.clients)))
        await served.wait_idle(30.0)
        read.append((options.requests, round(served.rss_mib, 1)))
        complaints = served.complaints
    finally:
        served.stop()
    warm = next(rss for number, rss in read if number >= options.warm)
    growth = read[-1][1] - warm
    print(f"{dict(counts)}\nMiB {read}\ngrowth after {options.warm} requests: {growth:.1f} MiB")
    print(complaints or "no complaints")
    if options.out:
        document = {
            "benchmark": "memory_flat",
            "counts": dict(sorted(counts.items())),
            "rss_mib": read,
            "growth_mib": round(growth, 1),
            "allowed_mib": ALLOWED_MIB,
            "complaints": complaints,
        }
        write_results(options.out, document)
    return 1 if growth > ALLOWED_MIB or complaints else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write."""
    end_servers_on_term()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_flat")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--warm", type=int, default=1000, help="Requests before growth counts.")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flags", default="", help="More flags of the server.")
    parser.add_argument("--out", type=Path)
    return asyncio.run(_main(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
