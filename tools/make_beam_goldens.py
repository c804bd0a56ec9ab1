"""Writes tests/golden/data/beams-*.json: what transformers' beam search answers on the two models.

Run as `python -m tools.make_beam_goldens [model ...]` from the root, with the test extra installed.
A search whose beams change when every log-probability moves by NOISE hangs on rounding: it is left
out, and said so.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from octavo.weights.gguf_checkpoint import open_gguf
from tests.support.data import gemma3_path, smollm2_path
from tests.support.gguf_oracle import BeamCase, load_oracle, oracle_beams

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "golden" / "data"
NOISE = 1e-4
MODELS = {"smollm2-135m-instruct-q4_1": smollm2_path, "gemma-3-270m-q4_k_m": gemma3_path}
# (beam width, length penalty, early stopping, most new tokens, goes on after the end token)
WAYS: list[tuple[int, float, bool | str, int, bool]] = [
    (2, 1.0, False, 24, False),
    (2, 2.0, "never", 12, True),
    (4, 0.0, True, 16, False),
    (4, 1.0, "never", 16, False),
    (4, 2.0, False, 12, False),
]
WAYS_OF_LONG = [(2, 1.0, False, 16, False), (4, 1.0, "never", 6, False)]  # prompts over 500 tokens
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def prompts(model: str) -> list[str]:
    """Texts to go on from; the second may end soon, the last of Gemma 3 is longer than a window."""
    capital = "The capital of France is"
    if model.startswith("smollm2"):
        return [capital, CHAT.format("What is the capital of France?"), "def add(a, b):\n"]
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    return [capital, "}\n\nint main() {\n  return 0;\n}\n", licence[:3000]]


def cases(model: str) -> Iterator[BeamCase]:
    """Every prompt in every way."""
    tokenizer = open_gguf(MODELS[model]()).load_tokenizer()
    for text in prompts(model):
        token_ids = tokenizer.encode(text)
        print(f"{model}: {len(token_ids)} tokens, {text[:40]!r}")
        for way in WAYS if len(token_ids) < 500 else WAYS_OF_LONG:
            yield BeamCase(token_ids, *way)


def make(model: str) -> None:
    """Search, twice each, and write what held."""
    oracle = load_oracle(MODELS[model]())
    entries = []
    for case in cases(model):
        beams, shaken = oracle_beams(oracle, case), oracle_beams(oracle, case, NOISE)
        holds = [one.token_ids for one in beams] == [one.token_ids for one in shaken]
        num_ended = sum(oracle.config.eos_token_id in one.token_ids for one in beams)
        print(f"  {dataclasses.astuple(case)[1:]}: {num_ended} ended, {'kept' if holds else 'TIE'}")
        if holds:
            found = [dataclasses.asdict(one) for one in beams]
            entries.append(dataclasses.asdict(case) | {"beams": found})
    source = f"transformers {version('transformers')}, float32"
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    text = f'{{"model": "{model}", "source": "{source}", "entries": [\n{lines}\n]}}\n'
    (TARGET / f"beams-{model}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        make(name)
