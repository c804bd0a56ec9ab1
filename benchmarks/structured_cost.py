"""What structured output costs per step: the same requests with a schema and without, in turns.

    python -m benchmarks.structured_cost --out benchmarks/results/FILE

One engine in this process. Each round runs N equal requests freely, then under each schema, and
keeps the time of the steps in which all of them decode; contexts have equal lengths, so steps
compare place by place. The cost is how much longer the median step of a round is than the free
one's of the same round. The free requests ignore end tokens, and schemas allow answers without end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.record import spread, write_results
from octavo import LLM, SamplingParams, StructuredOutputsParams

PROMPT = (
    "Here is a list of people with their names, ages, moods and a few words on each, as JSON:\n"
)
_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mood": {"enum": ["glad", "sad", "calm", "angry"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "place": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
            },
            "required": ["city", "zip"],
        },
    },
    "required": ["name", "age", "mood", "tags", "place"],
}
FORMS: dict[str, StructuredOutputsParams | None] = {
    "free": None,
    "people": StructuredOutputsParams(
        json=json.dumps({"type": "array", "items": _PERSON, "minItems": 40})
    ),
    "text": StructuredOutputsParams(json=json.dumps({"type": "string", "minLength": 4000})),
    "any object": StructuredOutputsParams(json_object=True),
}


class Rounds:
    """Runs of one engine."""

    def __init__(self, llm: LLM, num_tokens: int) -> None:
        self._engine = llm.llm_engine
        self._num_tokens = num_tokens
        self._numbers = count()

    def step_times(self, form: StructuredOutputsParams | None, num_requests: int) -> list[float]:
        """Seconds of each step in which all requests decode, in order."""
        for choice in range(num_requests):
            params = SamplingParams(
                temperature=1.0,
                seed=choice,
                max_tokens=self._num_tokens,
                ignore_eos=form is None,
                structured_outputs=form,
            )
            self._engine.add_request(f"{next(self._numbers)}", PROMPT, params)
        core, times = self._engine.engine.core, []
        while self._engine.has_unfinished_requests():
            self._engine.step()
            last = core.last_step
            if last is not None and last.num_rows == last.num_tokens == num_requests:
                times.append(last.python_s + last.compute_s)
        return times


def measure(llm: LLM, num_requests: int, options: argparse.Namespace) -> dict[str, Any]:
    """Median step of each form, and its cost against the free one, over all rounds."""
    rounds = Rounds(llm, options.tokens)
    steps: dict[str, list[float]] = {name: [] for name in FORMS}
    costs: dict[str, list[float]] = {name: [] for name in FORMS if name != "free"}
    for number in range(options.rounds + 1):
        order = list(FORMS) if number % 2 else list(reversed(FORMS))
        times = {name: rounds.step_times(FORMS[name], num_requests) for name in order}
        if not number:  # compiles and warms up
            continue
        for name in FORMS:
            length = min(len(times[name]), len(times["free"]))
            median = statistics.median(times[name][:length])
            steps[name].append(1e3 * median)
            if name != "free":
                free = statistics.median(times["free"][:length])
                costs[name].append(100 * (median / free - 1))
    return {
        "num_requests": num_requests,
        "step_ms": {name: spread(values) for name, values in steps.items()},
        "cost_percent": {name: spread(values) for name, values in costs.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structured_cost")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--batches", default="1,8", help="Numbers of requests.")
    parser.add_argument("--tokens", type=int, default=96, help="Of each answer.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    batches = [int(number) for number in options.batches.split(",")]
    with LLM(options.model, max_model_len=1024, max_num_seqs=max(batches)) as llm:
        found = [measure(llm, number, options) for number in batches]
        machine = llm.llm_engine.engine.core.describe()
    for row in found:
        for name, cost in row["cost_percent"].items():
            step = row["step_ms"][name]["median"]
            print(
                f"batch {row['num_requests']}, {name}: {step:.3f} ms a step, "
                f"{cost['median']:+.2f} % ({cost['min']:+.2f} to {cost['max']:+.2f})"
            )
    if options.out:
        document = {"benchmark": "structured_cost", "model": options.model, "machine": machine}
        write_results(options.out, document | {"batches": found})


if __name__ == "__main__":
    sys.exit(main())
