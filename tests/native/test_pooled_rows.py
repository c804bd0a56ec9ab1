"""Rows that are pooled, among rows of the native back end that go wrong."""

from __future__ import annotations

import pytest

from octavo.config.model_facts import PoolingFacts
from octavo.contracts.step import PoolingMethod
from octavo.runner.native_runner import NativeRunner
from tests.support.random_checkpoint import VOCAB_SIZE, RandomCheckpoint, tensor_of, tiny_facts
from tests.support.step_driver import RunnerSizes, StepDriver, start_runner

SIZES = RunnerSizes(max_model_len=64, max_num_batched_tokens=128, threads=2)
POISON = VOCAB_SIZE - 1  # a token whose embedding is too large to be scaled up
WIDTH = tiny_facts().hidden_size


def driver_of(method: PoolingMethod | None = "last") -> StepDriver:
    """A tiny Llama that makes vectors; without a method one that makes text."""
    pooling = None if method is None else PoolingFacts(method="last")
    checkpoint = RandomCheckpoint(tiny_facts(pooling=pooling, embedding_scale=2.0))
    name = "model.embed_tokens.weight"
    table = list(checkpoint.tensors[name].data.cast("f"))
    table[POISON * WIDTH :] = [3e38] * WIDTH
    changed = tensor_of(name, (VOCAB_SIZE, WIDTH), table)
    checkpoint.tensors = {**checkpoint.tensors, name: changed}
    return StepDriver(start_runner(NativeRunner, checkpoint, SIZES), SIZES)


@pytest.mark.parametrize("method", ["last", "all"])
def test_a_vector_that_is_no_number_fails_its_row_alone(method: PoolingMethod) -> None:
    """The neighbour has its vectors."""
    driver = driver_of()
    bad = driver.add([1, POISON, 2], pooling=method)
    good = driver.add([1, 2, 3], pooling=method)

    result = driver.step({bad: 3, good: 3})

    assert {bad: "the model made a vector that is not finite"} == result.errors
    assert len(result.pooled[good]) == 4 * WIDTH * (3 if method == "all" else 1)
    assert bad not in result.pooled or len(result.pooled[bad]) < len(result.pooled[good])


def test_a_model_of_vectors_refuses_a_row_that_would_sample() -> None:
    """Its numbers are no logits."""
    driver = driver_of()
    row = driver.add([1, 2, 3])

    with pytest.raises(ValueError, match="makes no logits, so its rows must be pooled"):
        driver.step({row: 3})


def test_more_vectors_than_a_slice_of_wanted_rows_come_in_order() -> None:
    """Each token's vector is the one that it has alone."""
    driver = driver_of()
    prompt = [(7 * i) % (VOCAB_SIZE - 1) for i in range(60)]
    rows = [driver.add(prompt[: 30 * n], pooling="all") for n in (1, 2)]
    result = driver.step({rows[0]: 30, rows[1]: 60})
    size = 4 * WIDTH

    assert len(result.pooled[rows[0]]) == 30 * size
    assert result.pooled[rows[1]][: 30 * size] == result.pooled[rows[0]]


def test_a_prompt_that_goes_on_is_not_pooled() -> None:
    """A row of vectors is a prompt and nothing else."""
    driver = driver_of()
    row = driver.add([1, 2, 3], num_prompt=2, pooling="last")

    with pytest.raises(ValueError, match="a row that is pooled is a prompt alone"):
        driver.step({row: 3})
