"""What a process holds in memory beside weights and keys and values.

    python -m benchmarks.resident_memory --out benchmarks/results/FILE

A process of its own loads the model with a small KV pool and computes different prompts until every
block has been written, a batch of many rows among them. The rest is what the system counts as
resident, less the bytes of all weights and of the whole pool: the interpreter and shared libraries,
the tokenizer, and the workspace of a step, which is also shown alone. The exit code is 1 where the
rest is more than `--most`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import ROOT, write_results

MOST_MB = 60.0  # of everything else
POOL_BYTES = 32 * 2**20
BATCH = 32
_CHILD = "--child"


def child(model: str) -> dict[str, float]:
    """Load, fill the pool, and look, in this process; MB."""
    from octavo import LLM, SamplingParams  # noqa: PLC0415 - its import is part of what is resident

    llm = LLM(model, max_model_len=1024, kv_cache_memory_bytes=POOL_BYTES)
    loaded = _resident_mb()
    engine = llm.llm_engine.engine
    plan, vocab_size = engine.memory_plan, engine.facts.vocab_size
    short = SamplingParams(max_tokens=4, ignore_eos=True)
    num_prompts = 1 + 2 * plan.kv.num_blocks * plan.kv.block_size // 512
    for first in range(num_prompts):
        prompt = [(first * 131 + place * 7) % vocab_size for place in range(512)]
        llm.generate([prompt], short, use_tqdm=False)
    rows = [[(row * 17 + place) % vocab_size for place in range(16)] for row in range(BATCH)]
    llm.generate(rows, short, use_tqdm=False)
    resident = _resident_mb()
    weights = plan.weights_bytes / 1e6
    pool = plan.kv.num_blocks * plan.kv.bytes_per_block / 1e6
    return {
        "loaded_mb": loaded,
        "resident_mb": resident,
        "weights_mb": weights,
        "kv_mb": pool,
        "workspace_mb": plan.workspace_bytes / 1e6,
        "rest_mb": resident - weights - pool,
    }


def measure(model: str) -> dict[str, float]:
    """The same, in a process that does nothing else."""
    command = [sys.executable, "-m", "benchmarks.resident_memory", _CHILD, model]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _resident_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    found = next(line for line in lines if line.startswith("VmRSS:"))
    return 1024e-6 * int(found.split()[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [_CHILD]:
        print(json.dumps(child(words[1])))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident_memory")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--most", type=float, default=MOST_MB, help=f"Allowed MB [{MOST_MB}].")
    parser.add_argument("--out", type=Path, help="Results file.")
    options = parser.parse_args(words)
    found = measure(options.model)
    print(", ".join(f"{name.removesuffix('_mb')} {value:.1f} MB" for name, value in found.items()))
    if options.out:
        document = {"benchmark": "resident_memory", "model": Path(options.model).name}
        write_results(options.out, document | {"allowed_mb": options.most} | found)
    return 0 if found["rest_mb"] <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
