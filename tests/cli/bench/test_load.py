"""Arrivals and data sets of octavo bench serve."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.bench.datasets import Sample, add_dataset_options, make_samples
from octavo.cli.bench.load import Arrivals, Target
from octavo.errors import ConfigError


class Words:
    """A tokenizer whose tokens are words."""

    vocab_size = 1000

    def encode(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def decode(self, token_ids: list[int]) -> str:
        return " ".join(map(str, token_ids))


def options(*words: str) -> argparse.Namespace:
    """Parsed options of the data sets."""
    parser = argparse.ArgumentParser()
    add_dataset_options(parser, num_prompts=4)
    return parser.parse_args(words)


def samples(*words: Any) -> list[Sample]:
    """What the options ask for."""
    return make_samples(options(*map(str, words)), Words())  # type: ignore[arg-type]


def test_without_a_rate_all_come_at_once() -> None:
    """An infinite one."""
    assert [0.0, 0.0] == Arrivals().times_s(2)


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 5.0])
def test_the_rate_is_met_exactly(burstiness: float) -> None:
    """However the gaps are distributed, the last request comes at count / rate."""
    times = Arrivals(4.0, burstiness).times_s(200)

    assert times[-1] == pytest.approx(50.0)
    assert times == sorted(times)


def test_burstiness_is_the_inverse_of_the_squared_variation() -> None:
    """Gaps are gamma distributed: 1 is a Poisson process."""
    for burstiness in (0.25, 1.0, 4.0):
        times = Arrivals(1.0, burstiness, seed=3).times_s(20_000)
        gaps = [late - early for early, late in itertools.pairwise(times)]
        mean = sum(gaps) / len(gaps)
        variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
        assert variance / mean**2 == pytest.approx(1 / burstiness, rel=0.15)


def test_endless_burstiness_is_a_metronome() -> None:
    """Equal gaps."""
    assert [0.5, 1.0, 1.5] == Arrivals(2.0, math.inf).times_s(3)


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"rate": 0.0}, "--request-rate"),
        ({"burstiness": -1.0}, "--burstiness"),
        ({"max_concurrency": 0}, "--max-concurrency"),
    ],
)
def test_impossible_arrivals_are_refused(fields: dict[str, Any], flag: str) -> None:
    """The message names the flag."""
    with pytest.raises(ConfigError, match=flag):
        Arrivals(**fields)


def test_random_requests_have_the_lengths_that_were_asked_for() -> None:
    """And share the prefix that was asked for."""
    found = samples("--random-input-len", 20, "--random-output-len", 5, "--random-prefix-len", 3)

    assert {(23, 5)} == {(one.prompt_len, one.output_len) for one in found}
    assert 1 == len({tuple(one.prompt[:3]) for one in found})
    assert 4 == len({tuple(one.prompt) for one in found})


def test_lengths_spread_by_the_range_ratio() -> None:
    """From L (1 - r) to L (1 + r)."""
    lengths = {
        one.prompt_len
        for one in samples("--input-len", 100, "--random-range-ratio", 0.5, "--num-prompts", 300)
    }

    assert 50 <= min(lengths) < 60
    assert 140 < max(lengths) <= 150


def test_the_same_seed_draws_the_same_requests() -> None:
    """Another one others."""
    assert samples("--input-len", 9) == samples("--input-len", 9)
    assert samples("--input-len", 9) != samples("--input-len", 9, "--seed", 1)


def test_prefix_repetition_makes_groups() -> None:
    """Two beginnings, each of them twice."""
    words = "--prefix-repetition-num-prefixes 2 --prefix-repetition-prefix-len 6"
    found = samples("--dataset-name", "prefix_repetition", *words.split())

    beginnings = [tuple(one.prompt[:6]) for one in found]
    assert [2, 2] == sorted(map(beginnings.count, set(beginnings)))


def test_sharegpt_takes_the_first_question_and_the_length_of_its_answer(tmp_path: Path) -> None:
    """Conversations that are too short or too long are left out, the rest is used again."""
    path = tmp_path / "talks.json"
    talks = [
        [{"value": "one two three four"}, {"value": "a b c d e"}],
        [{"value": "short"}, {"value": "a b c d e"}],
        [{"value": "word " * 2000}, {"value": "a b c d e"}],
        [{"value": "alone"}],
    ]
    path.write_text(json.dumps([{"conversations": talk} for talk in talks]))

    found = samples("--dataset-name", "sharegpt", "--dataset-path", path)

    assert [Sample("one two three four", 4, 5)] * 4 == found


def test_a_custom_file_has_a_prompt_in_each_line(tmp_path: Path) -> None:
    """With -1 it has the lengths of the answers too."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a b", "output_tokens": 7}\n\n{"prompt": "c"}\n')
    words = ("--dataset-name", "custom", "--dataset-path", path)

    assert [256, 256] == [one.output_len for one in samples(*words, "--num-prompts", 2)]
    assert 7 == samples(*words, "--custom-output-len", -1, "--num-prompts", 1)[0].output_len
    with pytest.raises(ConfigError, match="line 2"):
        samples(*words, "--custom-output-len", -1)


@pytest.mark.parametrize("content", ["no json", "[1]", '[{"conversations": [{"value": 1}, 2]}]'])
def test_a_file_of_another_form_is_refused(content: str, tmp_path: Path) -> None:
    """The message names the file."""
    path = tmp_path / "talks.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"--dataset-path .*talks\.json"):
        samples("--dataset-name", "sharegpt", "--dataset-path", path)


def test_a_chat_is_asked_in_messages() -> None:
    """And a completion by token ids."""
    sample = Sample([1, 2], 2, 3)
    completion = json.loads(Target("http://x", "/v1/completions", "m").body(sample))
    chat = json.loads(Target("http://x", "/", "m", is_chat=True).body(Sample("hi", 1, 3)))

    assert ([1, 2], 3) == (completion["prompt"], completion["max_tokens"])
    assert "hi" == chat["messages"][0]["content"]
    assert 3 == chat["max_completion_tokens"]
