"""--speculative-config: vLLM's names and defaults, and errors that name the field."""

from __future__ import annotations

import json

import pytest

from octavo.cli.engine_flags import add_engine_flags, parse_flags
from octavo.cli.engine_flags import engine_config as parsed_config
from octavo.config.cli_args import Parser
from octavo.config.engine import SchedulerConfig
from octavo.config.keywords import engine_config
from octavo.config.speculative import LookupConfig, parse_speculative
from octavo.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "longest", "shortest"),
    [
        ({}, 5, 5),
        ({"prompt_lookup_max": 4}, 4, 4),
        ({"prompt_lookup_min": 2}, 2, 2),
        ({"prompt_lookup_max": 4, "prompt_lookup_min": 2}, 4, 2),
        ({"model": "[ngram]"}, 5, 5),
    ],
)
def test_lengths_that_are_not_given_are_vllms(
    given: dict[str, object], longest: int, shortest: int
) -> None:
    """One of the two stands for both; without any it is five."""
    text = json.dumps({"method": "ngram", "num_speculative_tokens": 3} | given)
    expected = LookupConfig(num_drafts=3, longest=longest, shortest=shortest)
    assert parse_speculative(text) == expected


def test_without_the_option_there_is_no_speculation() -> None:
    assert parse_speculative(None) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{}", ["method is missing", "ngram"]),
        ('{"method": "eagle3", "num_speculative_tokens": 3}', ["'eagle3'", "only ngram"]),
        ('{"method": "ngram"}', ["num_speculative_tokens is missing"]),
        (
            '{"method": "ngram", "num_speculative_tokens": 0}',
            ["num_speculative_tokens must be at least 1, got 0"],
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 65}',
            ["num_speculative_tokens", "must be at most 64, got 65"],
        ),
        ('{"model": "some/draft", "num_speculative_tokens": 3}', ["method is missing"]),
        (
            '{"method": "ngram", "model": "some/draft", "num_speculative_tokens": 3}',
            ["no draft model", "some/draft"],
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 6, '
            '"prompt_lookup_max": 4}',
            ["prompt_lookup_min is 6", "prompt_lookup_max, 4"],
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 3, "draft_sample_method": "greedy"}',
            ["draft_sample_method", "known: method"],
        ),
        ("ngram", ["takes JSON such as"]),
        ("[]", ["object"]),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(text: str, names: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_speculative(text)
    for name in ["--speculative-config", *names]:
        assert name in str(caught.value)


def test_python_takes_an_object_or_its_text() -> None:
    given = {"method": "ngram", "num_speculative_tokens": 2}
    for value in (given, json.dumps(given)):
        text = engine_config({"speculative_config": value}).scheduler.speculative_config
        assert parse_speculative(text) == LookupConfig(num_drafts=2, longest=5, shortest=5)
    with pytest.raises(ConfigError, match="'medusa' is not supported"):
        engine_config({"speculative_config": given | {"method": "medusa"}})


def parsed(*flags: str) -> SchedulerConfig:
    parser = Parser(prog="octavo serve")
    add_engine_flags(parser)
    return parsed_config(parse_flags(parser, flags)).scheduler


def test_vllms_short_flags_make_up_the_option() -> None:
    config = parsed("--spec-method", "ngram", "--spec-tokens", "3")
    keywords = engine_config({"spec_method": "ngram", "spec_tokens": 3}).scheduler
    dotted = parsed("-sc.method", "ngram", "--speculative-config.num_speculative_tokens", "3")
    expected = LookupConfig(num_drafts=3, longest=5, shortest=5)
    for one in (config, keywords, dotted):
        assert parse_speculative(one.speculative_config) == expected


def test_the_short_flags_do_not_go_with_the_option_itself() -> None:
    option = '{"method": "ngram", "num_speculative_tokens": 3}'
    with pytest.raises(ConfigError, match="--spec-tokens: say it in --speculative-config"):
        parsed("--speculative-config", option, "--spec-tokens", "4")
    with pytest.raises(ConfigError, match="spec_tokens: say it in speculative_config"):
        engine_config({"speculative_config": option, "spec_tokens": 4})
    with pytest.raises(ConfigError, match="uses no draft model"):
        parsed("--spec-method", "ngram", "--spec-tokens", "3", "--spec-model", "some/draft")
