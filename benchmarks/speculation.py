"""What guesses of the next tokens bring, and what they cost where they are wrong.

    python -m benchmarks.speculation --out benchmarks/results/FILE

Two engines on the same model, one with speculation and one without, answer the same prompts in
turns, one request or several at a time: a *copy* asks for a text again, greedily, so that answers
repeat their input; a *chat* asks for a story at temperature 1, which repeats little. Prefix caching
is off and end tokens are ignored, so both compute the same tokens; answers are compared, and a
difference ends the command.

Besides tokens per second it gives seconds of processor time for each token, which tell more than
wall time on a machine that others use too; with `--threads 1` no thread waits for another.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import spread, write_results
from octavo.llm import LLM
from octavo.sampling_params import SamplingParams

LOOKUP = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
_FACTS = (
    *("Mira keeps a small shop at the corner of the old harbour.", "The fair opens at nine."),
    *("Boats leave the pier every second hour.", "In winter the tower is closed on Mondays."),
    *("A ticket costs four coins, and children ride for one.", "The mill has eleven wheels."),
)
_TOPICS = ("rivers", "bread", "winter", "clocks", "bridges", "bees", "maps", "tea")


def prompts(kind: str, count: int) -> list[list[dict[str, str]]]:
    """`count` different chats of one message."""
    made = []
    for number in range(count):
        facts = [*_FACTS[number % 6 :], *_FACTS[: number % 6]]
        text = "\n".join(f"{place}. {fact}" for place, fact in enumerate(facts * 2, 1))
        copy = f"Repeat the following list exactly, line by line.\n\n{text}"
        chat = f"Tell me a short story about {_TOPICS[number % len(_TOPICS)]}."
        made.append([{"role": "user", "content": copy if kind == "copy" else chat}])
    return made


def run(llm: LLM, kind: str, num_requests: int, params: SamplingParams) -> dict[str, Any]:
    """Answer the prompts at once; the tokens, both times, and what was drafted meanwhile."""
    core = llm.llm_engine.engine.core
    before = core.stats()
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    outputs = llm.chat(prompts(kind, num_requests), params, use_tqdm=False)
    wall_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    after = core.stats()
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    num_tokens = sum(map(len, tokens))
    return {
        "tokens": tokens,
        "tokens_per_s": num_tokens / wall_s,
        "cpu_ms_per_token": 1e3 * cpu_s / num_tokens,
        "num_steps": after.num_steps - before.num_steps,
        "drafted": after.num_draft_tokens - before.num_draft_tokens,
        "accepted": after.num_accepted_tokens - before.num_accepted_tokens,
    }


def compare(
    engines: dict[str, LLM], kind: str, num_requests: int, num_tokens: int, num_rounds: int
) -> dict[str, Any]:
    """Medians of the rounds after the first, engines in turns. Raises where answers differ."""
    temperature = 0.0 if kind == "copy" else 1.0
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=num_tokens, ignore_eos=True)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
    for number in range(num_rounds + 1):
        for name in sorted(engines, reverse=bool(number % 2)):
            found = run(engines[name], kind, num_requests, params)
            if number:
                rounds[name].append(found)
    answers = [one.pop("tokens") for found in rounds.values() for one in found]
    if any(one != answers[0] for one in answers):
        raise RuntimeError(f"{kind}: speculation has changed an answer")
    return {
        "kind": kind,
        "num_requests": num_requests,
        "num_tokens": num_tokens,
        **{
            name: {key: spread([one[key] for one in found]) for key in found[0]}
            for name, found in rounds.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speculation")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96, help="Of each answer.")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    common: dict[str, Any] = {
        "model": options.model,
        "threads": options.threads,
        "max_model_len": 1024,
        "enable_prefix_caching": False,
    }
    found = []
    with LLM(**common) as off, LLM(**common, speculative_config=LOOKUP) as on:
        for num_requests in options.batches:
            for kind in ("copy", "chat"):
                engines = {"off": off, "on": on}
                row = compare(engines, kind, num_requests, options.tokens, options.rounds)
                found.append(row)
                print(_line(row))
        hardware = on.llm_engine.engine.core.describe()
    if options.out:
        document = {"benchmark": "speculation", "hardware": hardware, "lookup": LOOKUP}
        write_results(options.out, document | {"results": found})


def _line(row: dict[str, Any]) -> str:
    rates = [row[name]["tokens_per_s"]["median"] for name in ("off", "on")]
    costs = [row[name]["cpu_ms_per_token"]["median"] for name in ("off", "on")]
    drafted, accepted = (row["on"][key]["median"] for key in ("drafted", "accepted"))
    return json.dumps(
        {
            "kind": row["kind"],
            "requests": row["num_requests"],
            "tokens_per_s": [round(rate, 1) for rate in rates],
            "cpu_ms_per_token": [round(cost, 2) for cost in costs],
            "steps": [row[name]["num_steps"]["median"] for name in ("off", "on")],
            "drafted": drafted,
            "accepted": accepted,
        }
    )


if __name__ == "__main__":
    main()
