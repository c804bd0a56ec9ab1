"""The process whose memory is measured: python -m benchmarks.resident_process MODEL

It imports nothing that a program with an `LLM` would not; `resident_memory.py` starts it, and takes
the prompts and the reading of `/proc` from here.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

POOL_BYTES = 32 * 2**20
CONTEXT = 1024
PROMPT_LEN = 512
BATCH = 32
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+)\s")


def fill(model: str) -> dict[str, float]:
    """Load, fill the pool, and look, in this process; MB."""
    from octavo import LLM, SamplingParams  # noqa: PLC0415 - its import is part of what is resident

    llm = LLM(model, max_model_len=CONTEXT, kv_cache_memory_bytes=POOL_BYTES)
    loaded = sum(resident("self").values())
    engine = llm.llm_engine.engine
    plan, vocab_size = engine.memory_plan, engine.facts.vocab_size
    short = SamplingParams(max_tokens=4, ignore_eos=True)
    for prompt in filling_prompts(plan.kv.num_blocks * plan.kv.block_size, vocab_size):
        llm.generate([prompt], short, use_tqdm=False)
    llm.generate(batch_prompts(vocab_size), short, use_tqdm=False)
    found = resident("self")
    weights = plan.weights_bytes / 1e6
    pool = plan.kv.num_blocks * plan.kv.bytes_per_block / 1e6
    return {
        "loaded_mb": loaded,
        "resident_mb": sum(found.values()),
        "weights_mb": weights,
        "kv_mb": pool,
        "rest_mb": sum(found.values()) - weights - pool,
        # Of the rest.
        "libraries_mb": found["files"],
        "workspace_mb": plan.workspace_bytes / 1e6,  # as planned; what no step touched is not there
        "pool_tokens": plan.kv.num_blocks * plan.kv.block_size,
        "vocab_size": vocab_size,
    }


def filling_prompts(pool_tokens: int, vocab_size: int) -> list[list[int]]:
    """Prompts that have nothing in common, more than the pool holds."""
    return [
        [(number * 131 + place * 7) % vocab_size for place in range(PROMPT_LEN)]
        for number in range(1 + 2 * pool_tokens // PROMPT_LEN)
    ]


def batch_prompts(vocab_size: int) -> list[list[int]]:
    """Short ones that are computed together."""
    return [[(row * 17 + place) % vocab_size for place in range(16)] for row in range(BATCH)]


def resident(pid: str) -> dict[str, float]:
    """MB of a process that are in memory: of `files`, such as libraries, and `own`."""
    found = {"files": 0.0, "own": 0.0}
    kind = "own"
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        mapping = _MAPPING.match(line)
        if mapping is not None:
            kind = "files" if mapping[1] != "0" else "own"
        elif line.startswith("Rss:"):
            found[kind] += 1024e-6 * int(line.split()[1])
    return found


if __name__ == "__main__":
    print(json.dumps(fill(sys.argv[1])))
