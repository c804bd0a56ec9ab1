"""How long `/health` takes while a server has hard work: large bodies, deep grammars, many streams,
many vectors.

    python -m benchmarks.health_under_load --out benchmarks/results/FILE

A real server process on the loopback. Every case sends its request again and again for some
seconds, while another process asks for `/health` every 10 ms, until the last request has ended.
What must not happen is that the loop or the interpreter is held by one request. The exit code is 1
when an answer took longer than the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import select
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.record import quantile, write_results
from benchmarks.stress.hostile import MEGABYTES, hostile_bodies, token_vector_bodies, vector_bodies
from benchmarks.stress.served import Served, end_servers_on_term

LIMIT_S = 0.1
PROBE_EVERY_S = 0.01
NUM_STREAMS = 64
WHOLE_PROMPTS = ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048")

Work = Callable[[Served, float], Awaitable[list[int]]]  # until a time; statuses of the answers


async def repeat(path: str, body: bytes, served: Served, end_s: float) -> list[int]:
    """One request after the other."""
    statuses = []
    while time.monotonic() < end_s:
        statuses.append((await served.ask("POST", path, body))[0])
    return statuses


async def streams(served: Served, end_s: float) -> list[int]:
    """`NUM_STREAMS` streams at a time."""

    async def one(number: int) -> list[int]:
        statuses = []
        while time.monotonic() < end_s:
            prompt = f"Story number {number}: once upon a time"
            body = {"prompt": prompt, "max_tokens": 100, "stream": True, "ignore_eos": True}
            statuses.append((await served.ask("POST", "/v1/completions", body))[0])
        return statuses

    answers = await asyncio.gather(*(one(number) for number in range(NUM_STREAMS)))
    return [status for statuses in answers for status in statuses]


def probe(host: str, port: int) -> list[float]:
    """Seconds of each `/health` on one connection, until the standard input is closed."""
    took = []
    connection = HTTPConnection(host, port, timeout=60)
    while not select.select([sys.stdin], [], [], 0)[0]:
        begin_s = time.monotonic()
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
        took.append(time.monotonic() - begin_s)
        if answer.status != 200:
            raise RuntimeError(f"/health answered {answer.status}")
        time.sleep(max(0.0, begin_s + PROBE_EVERY_S - time.monotonic()))
    return took


async def measure(served: Served, work: Work, seconds: float) -> dict[str, Any]:
    """One case, until its last request has ended.

    The probe is a process of its own, so that this one's work does not delay it.
    """
    command = [sys.executable, "-m", "benchmarks.health_under_load"]
    probing = await asyncio.create_subprocess_exec(
        *command,
        *("--probe", served.host, str(served.port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        statuses = await work(served, time.monotonic() + seconds)
    finally:
        printed, _ = await probing.communicate(b"")  # and close its input
    took: list[float] = json.loads(printed)
    return {
        "num_probes": len(took),
        "p50_ms": round(1e3 * quantile(took, 0.5), 2),
        "p99_ms": round(1e3 * quantile(took, 0.99), 2),
        "max_ms": round(1e3 * max(took), 2),
        "num_answers": len(statuses),
        "statuses": sorted(set(statuses)),
    }


async def _nothing(_served: Served, end_s: float) -> list[int]:
    await asyncio.sleep(end_s - time.monotonic())
    return []


def _sending(path: str, body: bytes) -> Work:
    return lambda served, end_s: repeat(path, body, served, end_s)


def cases(only: str) -> list[tuple[list[str], dict[str, Work]]]:
    """What is measured, by name, and the flags of the server that it is measured on."""
    of_texts: dict[str, Work] = {"idle": _nothing, f"{NUM_STREAMS} streams": streams}
    of_texts |= {name: _sending(*request) for name, request in hostile_bodies().items()}
    of_vectors = {name: _sending(*request) for name, request in vector_bodies().items()}
    of_tokens = {name: _sending(*request) for name, request in token_vector_bodies().items()}
    pooling = ["--runner", "pooling", "--convert", "embed"]
    servers = [
        ([], of_texts),
        (pooling, of_vectors),
        ([*pooling, *WHOLE_PROMPTS], of_tokens),
    ]
    return [
        (flags, chosen)
        for flags, works in servers
        if (chosen := {name: work for name, work in works.items() if only in name})
    ]


async def _main(options: argparse.Namespace) -> int:
    flags = ["--max-model-len", "2048", "--max-body-bytes", str(2 * MEGABYTES * 2**20)]
    flags += options.flags.split()
    found: dict[str, Any] = {}
    complaints: list[str] = []
    for more, works in cases(options.only):
        served = Served(options.model, [*flags, *more])
        try:
            for name, work in works.items():
                found[name] = await measure(served, work, options.seconds)
                print(f"{name}: {found[name]}", flush=True)
            complaints += served.complaints
        finally:
            served.stop()
    slow = [name for name, one in found.items() if one["max_ms"] > 1e3 * LIMIT_S]
    print(f"slower than {1e3 * LIMIT_S:.0f} ms: {slow or 'none'}; {complaints or 'no complaints'}")
    if options.out:
        document = {"benchmark": "health_under_load", "limit_ms": 1e3 * LIMIT_S, "cases": found}
        write_results(options.out, document | {"complaints": complaints})
    return 1 if slow or complaints else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write."""
    end_servers_on_term()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.health_under_load")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--seconds", type=float, default=3.0, help="Of each case.")
    parser.add_argument("--only", default="", help="Cases whose name holds this.")
    parser.add_argument("--flags", default="", help="More flags of the server.")
    parser.add_argument("--probe", nargs=2, metavar=("HOST", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.probe:
        print(json.dumps(probe(options.probe[0], int(options.probe[1]))))
        return 0
    return asyncio.run(_main(options))


if __name__ == "__main__":
    sys.exit(main())
