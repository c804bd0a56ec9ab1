"""What a worker says and hears: JSON objects, one a line.

    in   {"prompts": [[1, 2], [3]], "new_len": 4}
    out  {"about": {...}}                           once, when the model is loaded
         {"seconds": 0.5, "token_ids": [[...]]}     for every line that came in
         {"error": "..."}                           instead of either; the worker then ends

The engine may print what it likes: file descriptor 1 is turned to stderr before it is imported.
Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine must be ready for. Everybody gets the same."""

    threads: int
    max_len: int  # tokens of a sequence, prompt and answer
    max_batch: int
    kv_bytes: int  # room for keys and values


class Model(Protocol):
    """A loaded engine."""

    about: dict[str, str]  # version, types of weights and KV cache, for people

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """Greedy, `new_len` tokens for each prompt whatever they are; returns the new ones."""


Load = Callable[[str, dict[str, Any], Limits], Model]
"""(path of the model, options of this engine, limits) -> the loaded engine."""


def serve(load: Load) -> None:
    """Load the model, then answer lines until stdin ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        _serve(load, channel)
    except Exception as error:
        _say(channel, {"error": f"{type(error).__name__}: {error}"})
        raise


def _serve(load: Load, channel: Any) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-len", type=int, required=True)
    parser.add_argument("--max-batch", type=int, required=True)
    parser.add_argument("--kv-bytes", type=int, required=True)
    given = parser.parse_args()
    limits = Limits(given.threads, given.max_len, given.max_batch, given.kv_bytes)
    model = load(given.model, given.options, limits)
    _say(channel, {"about": model.about})
    for line in sys.stdin:
        asked = json.loads(line)
        begin_s = time.perf_counter()
        token_ids = model.generate(asked["prompts"], asked["new_len"])
        seconds = time.perf_counter() - begin_s
        lengths = {len(ids) for ids in token_ids}
        if len(token_ids) != len(asked["prompts"]) or lengths != {asked["new_len"]}:
            raise RuntimeError(
                f"{len(token_ids)} answers of {sorted(lengths)} tokens to {len(asked['prompts'])} "
                f"prompts, {asked['new_len']} wanted"
            )
        _say(channel, {"seconds": seconds, "token_ids": token_ids})


def package_version(name: str) -> str:
    """Of an installed package."""
    return f"{name} {metadata.version(name)}"


def _say(channel: Any, message: dict[str, Any]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()
