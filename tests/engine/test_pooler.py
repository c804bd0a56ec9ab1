"""Which vectors a model makes, and how they are finished."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from octavo.config.engine import EngineConfig, ModelConfig
from octavo.config.model_facts import DenseFacts, PoolingFacts
from octavo.engine.model_kind import config_for, with_kind
from octavo.engine.pooler import Pooler
from octavo.errors import ConfigError, InvalidRequestError
from octavo.pooling_params import PoolingParams
from tests.support.random_checkpoint import RandomCheckpoint, tiny_facts

EMBEDS = PoolingFacts(method="mean")
CLASSIFIES = PoolingFacts(
    task="classify",
    layers=(DenseFacts(name="score", out_features=2),),
    labels=("no", "yes"),
)


def pooler_of(pooling: PoolingFacts, *, cuts_prompts: bool = False, **facts: Any) -> Pooler:
    made = Pooler.of(tiny_facts(pooling=pooling, **facts), cuts_prompts=cuts_prompts)
    assert made is not None
    return made


def finished(pooler: Pooler, numbers: list[float], **params: Any) -> Any:
    return pooler.finish(array("f", numbers).tobytes(), PoolingParams(**params)).data


def test_an_embedding_is_made_one_unit_long_after_it_was_cut() -> None:
    """Unless the model, or the request, says otherwise."""
    pooling = PoolingFacts(dimensions=None)
    pooler = pooler_of(pooling, hidden_size=4)

    assert finished(pooler, [3.0, 4.0, 0.0, 0.0]) == pytest.approx([0.6, 0.8, 0.0, 0.0])
    assert finished(pooler, [3.0, 4.0, 9.0, 9.0], dimensions=2) == pytest.approx([0.6, 0.8])
    assert finished(pooler, [3.0, 4.0, 0.0, 0.0], use_activation=False) == [3.0, 4.0, 0.0, 0.0]
    as_it_is = pooler_of(PoolingFacts(normalize=False), hidden_size=2)
    assert finished(as_it_is, [3.0, 4.0]) == [3.0, 4.0]
    assert finished(pooler, [0.0] * 4) == [0.0] * 4


def test_scores_become_probabilities() -> None:
    """Over all labels, or each for itself; scores far from zero do not overflow."""
    each = PoolingFacts(
        task="classify", layers=CLASSIFIES.layers, labels=("a", "b"), activation="sigmoid"
    )

    assert finished(pooler_of(CLASSIFIES), [1e3, -1e3]) == pytest.approx([1.0, 0.0])
    assert finished(pooler_of(CLASSIFIES), [0.5, 0.5]) == pytest.approx([0.5, 0.5])
    assert finished(pooler_of(each), [-800.0, 0.0]) == pytest.approx([0.0, 0.5])
    assert finished(pooler_of(each), [-3.0, 2.0], use_activation=False) == [-3.0, 2.0]


def test_vectors_of_tokens_come_one_for_each() -> None:
    """Each finished by itself."""
    pooler = pooler_of(EMBEDS, hidden_size=2)

    rows = finished(pooler, [3.0, 4.0, 0.0, 2.0], task="token_embed")

    assert rows == [pytest.approx([0.6, 0.8]), [0.0, 1.0]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"task": "classify"}, "^Unsupported task: 'classify' of this model; it can embed"),
        ({"task": "token_embed"}, "--no-enable-chunked-prefill"),
        ({"dimensions": 3}, "not trained to be cut"),
        ({"dimensions": 0}, "at least 1"),
        ({"task": "score"}, "must be one of embed, classify"),
    ],
)
def test_what_a_model_cannot_do_is_refused_with_what_it_can(
    params: dict[str, Any], message: str
) -> None:
    """Before anything is computed."""
    with pytest.raises(InvalidRequestError, match=message):
        pooler_of(PoolingFacts(), cuts_prompts=True).check(PoolingParams(**params))


def test_a_language_model_makes_vectors_when_told_to() -> None:
    """Of the last token by default; --pooler-config has another say."""
    checkpoint = RandomCheckpoint()
    plain = with_kind(checkpoint, ModelConfig()).facts
    told = with_kind(checkpoint, ModelConfig(runner="pooling")).facts
    mean = with_kind(
        checkpoint, ModelConfig(pooler_config='{"pooling_type": "MEAN", "use_activation": false}')
    ).facts

    assert plain.pooling is None
    assert told.pooling == PoolingFacts(method="last")
    assert mean.pooling == PoolingFacts(method="mean", normalize=False)


def test_a_task_can_be_named_as_the_usual_one() -> None:
    """Of a request that names none; others name what they want."""
    for task in ("embed", "token_embed"):
        config = ModelConfig(pooler_config=f'{{"task": "{task}"}}')
        pooling = with_kind(RandomCheckpoint(), config).facts.pooling
        assert pooling is not None
        pooler = pooler_of(pooling)
        assert pooler.task_of(PoolingParams()) == task
        assert pooler.task_of(PoolingParams(task="embed")) == "embed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runner": "pooling", "convert": "classify"}, "has no head for it"),
        ({"pooler_config": "[]"}, "must be a JSON object"),
        ({"pooler_config": "{"}, "not valid JSON"),
        ({"pooler_config": '{"pooling_type": "MAX"}'}, "one of CLS, LAST, MEAN"),
        ({"pooler_config": '{"step_tag_id": 3}'}, "step_tag_id=3 is not supported"),
        ({"pooler_config": '{"task": "classify"}'}, "task='classify' is not supported"),
        ({"runner": "both"}, "--runner must be one of"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    """With the flag's name."""
    with pytest.raises(ConfigError, match=message):
        with_kind(RandomCheckpoint(), ModelConfig(**options))


def test_an_encoder_makes_no_text() -> None:
    """Not even when told to."""
    encoder = RandomCheckpoint(tiny_facts(is_causal=False, pooling=EMBEDS))

    with pytest.raises(ConfigError, match="makes no text"):
        with_kind(encoder, ModelConfig(runner="generate"))


def test_who_needs_whole_prompts_gets_steps_as_long_as_the_context() -> None:
    """Encoders, and means; the last token of a decoder may come in chunks, from the cache."""
    plain = EngineConfig()
    encoder = config_for(plain, tiny_facts(is_causal=False, pooling=EMBEDS, max_position=3000))
    last = config_for(plain, tiny_facts(pooling=PoolingFacts(method="last")))

    assert encoder.scheduler.max_num_batched_tokens == 3000
    assert not encoder.scheduler.enable_chunked_prefill
    assert not encoder.cache.enable_prefix_caching
    assert encoder.cache.num_gpu_blocks_override == 94 + 64 + 1 + 3  # of one full step
    assert last == plain
