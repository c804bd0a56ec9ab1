"""Options that are JSON: what they may hold is checked by name."""

from __future__ import annotations

import pytest

from octavo.config.engine import ModelConfig
from octavo.config.json_option import generation_override
from octavo.config.keywords import engine_config
from octavo.errors import ConfigError


def test_an_override_holds_numbers_by_name() -> None:
    """Without the option it is empty."""
    assert generation_override(None) == {}
    assert generation_override('{"top_k": 5, "temperature": 1}') == {"top_k": 5, "temperature": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"temprature": 1}', "'temprature' cannot be overridden; did you mean temperature?"),
        ('{"eos_token_id": 1}', "'eos_token_id' cannot be overridden; it may hold max_new_tokens"),
        ('{"temperature": "1"}', 'temperature must be a number, got "1"'),
        ('{"temperature": true}', "temperature must be a number, got true"),
        ('{"top_k": 1.5}', "top_k must be a whole number, got 1.5"),
    ],
)
def test_what_an_override_cannot_be_is_refused(text: str, told: str) -> None:
    """By the configuration itself, before a model is loaded."""
    with pytest.raises(ConfigError) as error:
        ModelConfig(override_generation_config=text)

    assert str(error.value).startswith("--override-generation-config")
    assert told in str(error.value)


def test_a_script_gives_the_override_as_a_dict() -> None:
    """`LLM(override_generation_config={...})`, as in vLLM."""
    config = engine_config({"override_generation_config": {"temperature": 0.5}})

    assert generation_override(config.model.override_generation_config) == {"temperature": 0.5}
