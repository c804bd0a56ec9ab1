"""Writes tests/golden/data/tokens.json: ids of hard strings by the tokenizers' own libraries.

    python tools/golden_tokens.py

Of the first hundred strings the ids themselves, of all 1,500 a digest of each string's ids.
Needs `tiktoken` and `sentencepiece`, which nothing else here needs: the libraries of those who made
the vocabularies, which share no code with `tokenizers` or with Octavo. Vocabularies come from the
packages that tests/support/vocabularies.py pins.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path

import sentencepiece  # type: ignore[import-not-found, unused-ignore]
import tiktoken  # type: ignore[import-not-found, unused-ignore]

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.support.hard_strings import hard_strings, ids_digest  # noqa: E402
from tests.support.vocabularies import VOCABULARIES, vocabulary  # noqa: E402

# The expressions that the makers publish beside their ranks.
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
NUM_SHOWN = 100


def main() -> None:
    """Write the file."""
    lines = []
    for name, encode in encoders():
        ids = [encode(text) for text in hard_strings()]
        shown = json.dumps(ids[:NUM_SHOWN], separators=(",", ":"))
        digests = json.dumps([ids_digest(one) for one in ids], separators=(",", ":"))
        lines.append(f'"{name}": {{"ids": {shown},\n"digests": {digests}}}')
    path = ROOT / "tests/golden/data/tokens.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"written to {path}")


def encoders() -> list[tuple[str, Callable[[str], list[int]]]]:
    """Family -> ids of a text, without special tokens."""
    found: list[tuple[str, Callable[[str], list[int]]]] = []
    for name in VOCABULARIES:
        path = vocabulary(name)
        if path.suffix == ".json" and "tekken" not in path.name:
            continue  # its library is `tokenizers`
        if "tekken" in path.name:
            found.append((name, _tekken(path)))
        elif name.startswith("mistral"):
            found.append((name, sentencepiece.SentencePieceProcessor(str(path)).encode))
        else:
            pattern = {"gpt2": GPT2, "gpt-oss": O200K, "llama3": LLAMA3, "qwen": QWEN}[name]
            found.append((name, _ranked(_ranks(path), pattern)))
    return found


def _ranks(path: Path) -> dict[bytes, int]:
    pairs = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def _ranked(ranks: dict[bytes, int], pattern: str) -> Callable[[str], list[int]]:
    encoding = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    encode: Callable[[str], list[int]] = encoding.encode_ordinary
    return encode


def _tekken(path: Path) -> Callable[[str], list[int]]:
    document = json.loads(path.read_bytes())
    config = document["config"]
    count = config["default_num_special_tokens"]
    entries = document["vocab"][: config["default_vocab_size"] - count]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in entries}
    encode = _ranked(ranks, config["pattern"])
    return lambda text: [count + rank for rank in encode(text)]


if __name__ == "__main__":
    main()
