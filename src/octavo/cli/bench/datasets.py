"""The requests of a benchmark: synthetic ones, or those of a file. Names are vLLM's.

    random              token ids without meaning, of given lengths
    prefix_repetition   groups of prompts with a common beginning
    sharegpt            a JSON file of conversations: first message and length of the first answer
    custom              a JSONL file: {"prompt": "...", "output_tokens": 64}

Owns: options, lengths, ids. Does not know who will answer: `TokenCounter` stands for a tokenizer
here or behind a server.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from octavo.errors import ConfigError

DATASETS = ("random", "prefix_repetition", "sharegpt", "custom")
FIRST_ORDINARY_ID = 256  # ids below are special tokens or single bytes in many vocabularies
# Conversations that vLLM leaves out: too short to mean anything, too long for its comparison.
_MIN_LEN, _MAX_PROMPT_LEN, _MAX_TOTAL_LEN = 4, 1024, 2048


class TokenCounter(Protocol):
    """A tokenizer, wherever it is."""

    vocab_size: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. `arrival_s` of None: as the request rate says."""

    prompt: str | list[int]
    prompt_len: int
    output_len: int
    arrival_s: float | None = None
    group: str = ""
    n: int = 1
    temperature: float | None = None
    seed: int | None = None


def add_dataset_options(
    parser: argparse.ArgumentParser, *, num_prompts: int, has_seed: bool = False
) -> None:
    """The options of all data sets; `has_seed`: the parser has `--seed` already."""
    group = parser.add_argument_group("Requests")
    add = group.add_argument
    add("--dataset-name", choices=DATASETS, default="random", help="Kind of requests [random].")
    add("--dataset-path", type=Path, help="The file of sharegpt and custom.")
    add("--num-prompts", type=int, default=num_prompts, help=f"Requests [{num_prompts}].")
    if not has_seed:
        add("--seed", type=int, default=0, help="Of everything that is drawn [0].")
    add("--input-len", type=int, help="Prompt length of any data set that has one.")
    add("--output-len", type=int, help="Answer length of any data set that has one.")
    add("--random-input-len", type=int, default=1024, help="Tokens of a prompt [1024].")
    add("--random-output-len", type=int, default=128, help="Tokens of an answer [128].")
    add(
        "--random-range-ratio",
        type=float,
        default=0.0,
        help="Lengths are drawn from L (1 - r) to L (1 + r) [0].",
    )
    add("--random-prefix-len", type=int, default=0, help="Tokens that all prompts share [0].")
    add("--prefix-repetition-prefix-len", type=int, default=256, help="Of a group [256].")
    add("--prefix-repetition-suffix-len", type=int, default=256, help="Of one prompt [256].")
    add("--prefix-repetition-num-prefixes", type=int, default=10, help="Groups [10].")
    add("--prefix-repetition-output-len", type=int, default=128, help="Tokens [128].")
    add("--sharegpt-output-len", type=int, help="Instead of the lengths of the file's answers.")
    add(
        "--custom-output-len",
        type=int,
        default=256,
        help="Tokens of an answer; -1: output_tokens of each line [256].",
    )


def make_samples(options: argparse.Namespace, counter: TokenCounter) -> list[Sample]:
    """The requests that the options ask for. Raises ConfigError."""
    if options.num_prompts < 1:
        raise ConfigError(f"--num-prompts must be at least 1, got {options.num_prompts}")
    generator = random.Random(options.seed or 0)  # noqa: S311 - made-up prompts
    if options.dataset_name == "random":
        return list(_random(options, counter.vocab_size, generator))
    if options.dataset_name == "prefix_repetition":
        return _prefix_repetition(options, counter.vocab_size, generator)
    if options.dataset_path is None:
        raise ConfigError(f"--dataset-name {options.dataset_name} needs --dataset-path FILE")
    reader = _sharegpt if options.dataset_name == "sharegpt" else _custom
    samples = reader(options, counter, generator)
    if not samples:
        raise ConfigError(f"--dataset-path {options.dataset_path}: no request could be made of it")
    return _repeated(samples, options.num_prompts)


def ids(generator: random.Random, count: int, vocab_size: int) -> list[int]:
    """Ordinary token ids, drawn anew each time."""
    first = FIRST_ORDINARY_ID if vocab_size > 2 * FIRST_ORDINARY_ID else min(8, vocab_size - 1)
    return [generator.randrange(first, vocab_size) for _ in range(count)]


def _random(
    options: argparse.Namespace, vocab_size: int, generator: random.Random
) -> Iterator[Sample]:
    ratio = options.random_range_ratio
    if not 0 <= ratio < 1:
        raise ConfigError(f"--random-range-ratio must be from 0 to below 1, got {ratio}")
    prompt_len = _length(options.input_len, options.random_input_len, "--random-input-len")
    output_len = _length(options.output_len, options.random_output_len, "--random-output-len")
    prefix = ids(generator, options.random_prefix_len, vocab_size)
    for _ in range(options.num_prompts):
        prompt = prefix + ids(generator, _drawn(generator, prompt_len, ratio), vocab_size)
        yield Sample(prompt, len(prompt), _drawn(generator, output_len, ratio))


def _prefix_repetition(
    options: argparse.Namespace, vocab_size: int, generator: random.Random
) -> list[Sample]:
    num_prefixes = options.prefix_repetition_num_prefixes
    per_prefix = options.num_prompts // max(1, num_prefixes)
    if num_prefixes < 1 or per_prefix < 1:
        raise ConfigError(
            f"--num-prompts {options.num_prompts} must be at least "
            f"--prefix-repetition-num-prefixes {num_prefixes}, which must be at least 1"
        )
    return prefix_groups(
        generator,
        vocab_size,
        num_groups=num_prefixes,
        per_group=per_prefix,
        prefix_len=options.prefix_repetition_prefix_len,
        suffix_len=options.prefix_repetition_suffix_len,
        output_len=_length(
            options.output_len,
            options.prefix_repetition_output_len,
            "--prefix-repetition-output-len",
        ),
    )


def prefix_groups(
    generator: random.Random,
    vocab_size: int,
    *,
    num_groups: int,
    per_group: int,
    prefix_len: int,
    suffix_len: int,
    output_len: int,
) -> list[Sample]:
    """Groups of prompts that begin equally, in random order."""
    samples = []
    for _ in range(num_groups):
        prefix = ids(generator, prefix_len, vocab_size)
        for _ in range(per_group):
            prompt = prefix + ids(generator, suffix_len, vocab_size)
            samples.append(Sample(prompt, len(prompt), output_len))
    generator.shuffle(samples)
    return samples


def _sharegpt(
    options: argparse.Namespace, counter: TokenCounter, generator: random.Random
) -> list[Sample]:
    path = options.dataset_path
    try:
        entries = json.loads(_text(path))
        conversations = [entry["conversations"] for entry in entries if "conversations" in entry]
        pairs = [(talk[0]["value"], talk[1]["value"]) for talk in conversations if len(talk) >= 2]
    except (ValueError, TypeError, LookupError) as error:
        raise ConfigError(
            f"--dataset-path {path} is no list of conversations as ShareGPT has them: {error}"
        ) from None
    generator.shuffle(pairs)
    fixed = options.sharegpt_output_len or options.output_len
    samples: list[Sample] = []
    for prompt, answer in pairs:
        if len(samples) == options.num_prompts:
            break
        prompt_len = len(counter.encode(prompt))
        output_len = fixed or len(counter.encode(answer))
        if (
            prompt_len >= _MIN_LEN
            and (fixed or output_len >= _MIN_LEN)
            and prompt_len <= _MAX_PROMPT_LEN
            and prompt_len + output_len <= _MAX_TOTAL_LEN
        ):
            samples.append(Sample(prompt, prompt_len, output_len))
    return samples


def _custom(
    options: argparse.Namespace, counter: TokenCounter, generator: random.Random
) -> list[Sample]:
    samples: list[Sample] = []
    fixed = options.output_len or options.custom_output_len
    lines = [line for line in _text(options.dataset_path).splitlines() if line.strip()]
    for number, line in enumerate(lines[: options.num_prompts], 1):
        where = f"--dataset-path {options.dataset_path}, line {number}"
        try:
            entry: dict[str, Any] = json.loads(line)
            prompt = entry["prompt"]
            output_len = int(entry["output_tokens"]) if fixed == -1 else fixed
        except (ValueError, TypeError, LookupError) as error:
            raise ConfigError(
                f'{where}: must be {{"prompt": "...", "output_tokens": 64}}: {error!r}'
            ) from None
        if not isinstance(prompt, str) or output_len < 1:
            raise ConfigError(f"{where}: prompt must be a text and output_tokens at least 1")
        samples.append(Sample(prompt, len(counter.encode(prompt)), output_len))
    return samples


def _repeated(samples: list[Sample], count: int) -> list[Sample]:
    """A file with fewer requests than asked for is used again from its begin."""
    return (samples * -(-count // len(samples)))[:count]


def _drawn(generator: random.Random, length: int, ratio: float) -> int:
    low, high = int(length * (1 - ratio)), int(length * (1 + ratio))
    return max(1, generator.randint(low, high))


def _length(general: int | None, own: int, flag: str) -> int:
    length = own if general is None else general
    if length < 1:
        raise ConfigError(f"{flag} must be at least 1, got {length}")
    return length


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--dataset-path {path} cannot be read: {error}") from None
