"""What a model needs of the other options, and what does not go with it."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.keywords import engine_config
from octavo.engine.model_kind import config_for
from octavo.errors import ConfigError
from tests.support.random_checkpoint import tiny_facts

FACTS = tiny_facts(max_position=2048)


def step_tokens(**options: Any) -> int:
    return config_for(engine_config(options), FACTS).scheduler.max_num_batched_tokens


def test_without_chunked_prefill_a_step_of_the_default_grows_to_the_context():
    """As in vLLM: the flag alone is enough."""
    assert step_tokens() == 512
    assert step_tokens(enable_chunked_prefill=False) == 2048
    assert step_tokens(enable_chunked_prefill=False, max_model_len=1000) == 1000
    assert step_tokens(enable_chunked_prefill=False, max_model_len=100) == 512


def test_without_chunked_prefill_a_step_must_hold_the_longest_prompt():
    """Otherwise the context that the server promises could not be used."""
    with pytest.raises(ConfigError) as caught:
        step_tokens(enable_chunked_prefill=False, max_num_batched_tokens=1024)

    message = str(caught.value)
    for part in (
        "--max-num-batched-tokens 1024 is less than the context of 2048 tokens (--max-model-len)",
        "use --max-num-batched-tokens 2048 or --max-model-len 1024",
        "leave --no-enable-chunked-prefill out",
    ):
        assert part in message


@pytest.mark.parametrize(
    "options",
    [
        {"max_num_batched_tokens": 2048},
        {"max_num_batched_tokens": 1024, "max_model_len": 1024},
        {"max_num_batched_tokens": 1024, "max_model_len": "auto"},
    ],
)
def test_a_step_that_is_long_enough_stays(options: dict[str, Any]):
    expected = options["max_num_batched_tokens"]
    assert step_tokens(enable_chunked_prefill=False, **options) == expected
