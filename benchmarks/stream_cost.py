"""What a streamed token costs the front end: processor time of the loop's thread, and of one chunk.

    python -m benchmarks.stream_cost --out benchmarks/results/FILE

A real server process on the loopback with 64 streams at a time. The kernel keeps the processor time
of each thread; the loop is the main one, and everything between a step's tokens and the socket runs
in it. Time per token times 1,000 tokens a second is the share of one core that the front end needs
at that speed. The second part writes one chunk of text again and again in this process. The exit
code is 1 when the share is above the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import spread, write_results
from benchmarks.stress.served import Served, end_servers_on_term
from octavo.server.chunks import ChunkWriter

LIMIT_PERCENT = 15.0  # of one core, at 1,000 tokens a second


def thread_seconds(process_id: int) -> dict[str, float]:
    """Processor time of each thread by its name; the main thread is `main`."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{process_id}/task").iterdir():
        is_main = int(task.name) == process_id
        name = "main" if is_main else (task / "comm").read_text().strip()
        nanoseconds = int((task / "schedstat").read_text().split()[0])
        found[name] = found.get(name, 0.0) + nanoseconds / 1e9
    return found


async def stream(served: Served, path: str, number: int, num_tokens: int) -> int:
    """One stream read to its end; the number of its events."""
    text = f"Story number {number}: once upon a time"
    prompt: dict[str, Any] = {"prompt": text}
    if "chat" in path:
        prompt = {"messages": [{"role": "user", "content": text}]}
    body = prompt | {"max_tokens": num_tokens, "stream": True, "ignore_eos": True}
    status, _, answer = await served.ask("POST", path, body)
    if status != 200:
        raise RuntimeError(f"{path} answered {status}: {answer[:200]!r}")
    return answer.count(b"data: ") - 1


async def measure(served: Served, path: str, options: argparse.Namespace) -> dict[str, Any]:
    """One round."""
    before, begin_s = thread_seconds(served.process.pid), time.monotonic()
    events = await asyncio.gather(
        *(stream(served, path, number, options.tokens) for number in range(options.streams))
    )
    wall_s = time.monotonic() - begin_s
    after = thread_seconds(served.process.pid)
    num_tokens = options.streams * options.tokens
    loop_s = after["main"] - before["main"]
    return {
        "loop_us_per_token": 1e6 * loop_s / num_tokens,
        "loop_us_per_event": 1e6 * loop_s / sum(events),
        "percent_of_core_at_1000_tokens_per_s": 100 * 1000 * loop_s / num_tokens,
        "tokens_per_s": num_tokens / wall_s,
    }


def chunk_us(count: int = 20_000) -> dict[str, float]:
    """Microseconds to write the usual chunk of a completion and of a chat."""
    writer = ChunkWriter(
        kind="chat.completion.chunk",
        answer_id="chatcmpl-0123456789abcdef01234567",
        created=1_700_000_000,
        model="SmolLM2-135M-Instruct",
        shows_usage=False,
    )
    found = {}
    for name, write in (("completion", writer.text), ("chat", writer.content)):
        best = float("inf")
        for _ in range(5):
            begin_s = time.perf_counter()
            for _ in range(count):
                write(0, " the")
            best = min(best, time.perf_counter() - begin_s)
        found[name] = 1e6 * best / count
    return found


async def _main(options: argparse.Namespace) -> int:
    flags = ["--max-model-len", "1024", "--max-num-seqs", str(options.streams)]
    served = Served(options.model, [*flags, *options.flags.split()])
    document: dict[str, Any] = {"benchmark": "stream_cost", "streams": options.streams}
    document["chunk_us"] = chunk_us()
    worst = 0.0
    try:
        for path in ("/v1/completions", "/v1/chat/completions"):
            await measure(served, path, options)  # warms up
            rounds = [await measure(served, path, options) for _ in range(options.rounds)]
            found = {name: spread([one[name] for one in rounds]) for name in rounds[0]}
            document[path] = found
            share = found["percent_of_core_at_1000_tokens_per_s"]["median"]
            worst = max(worst, share)
            print(
                f"{path}: {found['loop_us_per_token']['median']:.1f} us per token in the loop, "
                f"{share:.1f} % of a core at 1,000 tokens/s, "
                f"{found['tokens_per_s']['median']:.0f} tokens/s here"
            )
    finally:
        served.stop()
    print(f"one chunk: {document['chunk_us']} us")
    if options.out:
        write_results(options.out, document)
    return 1 if worst > LIMIT_PERCENT else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    end_servers_on_term()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream_cost")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=100, help="Of each stream.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="", help="More flags of the server.")
    parser.add_argument("--out", type=Path)
    return asyncio.run(_main(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
