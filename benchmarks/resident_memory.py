"""What a process holds in memory beside weights and keys and values.

    python -m benchmarks.resident_memory --out benchmarks/results/FILE

Twice: a process that uses the `LLM` class, and a server. Each loads the model with a small KV pool
and computes different prompts until every block has been written, a batch of many rows among them.
The rest is what the system counts as resident, less the bytes of all weights and of the whole pool:
the interpreter and shared libraries, the tokenizer, and the workspace of a step. What the library
of grammars adds to a server with its first structured answer is told apart. The exit code is 1
where the rest is more than `--most` in one of the two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, write_results
from benchmarks.resident_process import (
    CONTEXT,
    POOL_BYTES,
    batch_prompts,
    filling_prompts,
    resident,
)
from benchmarks.stress.served import Served, end_servers_on_term

MOST_MB = 60.0  # of everything else


async def fill_server(served: Served, pool_tokens: int, vocab_size: int) -> None:
    """What `resident_process.fill` does, over HTTP."""
    short = {"max_tokens": 4, "ignore_eos": True}
    for prompt in filling_prompts(pool_tokens, vocab_size):
        await served.post("/v1/completions", {"prompt": prompt, **short})
    await served.post("/v1/completions", {"prompt": batch_prompts(vocab_size), **short})


def measure(model: str) -> dict[str, float]:
    """A process with an `LLM` that does nothing else."""
    command = [sys.executable, "-m", "benchmarks.resident_process", model]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


async def ask_for_a_form(served: Served) -> None:
    """The first structured answer: the library of grammars is loaded for it."""
    form = {"structured_outputs": {"regex": "[0-9]{3}"}}
    await served.post("/v1/completions", {"prompt": "A number:", "max_tokens": 4, **form})


def measure_server(model: str, pool_tokens: int, vocab_size: int) -> dict[str, float]:
    """A server with the same pool after the same prompts, and what grammars add to it."""
    flags = ["--max-model-len", str(CONTEXT), "--kv-cache-memory-bytes", str(POOL_BYTES)]
    served = Served(model, flags)
    try:
        asyncio.run(fill_server(served, pool_tokens, vocab_size))
        filled = sum(resident(str(served.process.pid)).values())
        asyncio.run(ask_for_a_form(served))
        with_grammars = sum(resident(str(served.process.pid)).values())
        return {"server_resident_mb": filled, "grammars_mb": with_grammars - filled}
    finally:
        served.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident_memory")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--most", type=float, default=MOST_MB, help=f"Allowed MB [{MOST_MB}].")
    parser.add_argument("--out", type=Path, help="Results file.")
    options = parser.parse_args(arguments)
    found = measure(options.model)
    found |= measure_server(options.model, int(found["pool_tokens"]), int(found["vocab_size"]))
    found["server_rest_mb"] = found["server_resident_mb"] - found["weights_mb"] - found["kv_mb"]
    sizes = {name: round(value, 1) for name, value in found.items() if name.endswith("_mb")}
    print(", ".join(f"{name.removesuffix('_mb')} {value} MB" for name, value in sizes.items()))
    is_met = max(found["rest_mb"], found["server_rest_mb"]) <= options.most
    if options.out:
        document: dict[str, Any] = {"benchmark": "resident_memory"}
        document |= {"model": Path(options.model).name, "allowed_mb": options.most}
        write_results(options.out, document | {"is_met": is_met} | sizes)
    return 0 if is_met else 1


if __name__ == "__main__":
    end_servers_on_term()
    sys.exit(main())
