"""Every architecture, quantised in every way, gives the numbers that its checkpoint stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from octavo.weights.hf_folder import open_folder
from tests.models.conftest import BACKENDS, TinyModel
from tests.support.quantised_architectures import WAYS, representatives, save_quantised_folder
from tests.support.step_driver import RunnerSizes, StepDriver, all_logprobs, start_runner
from tests.support.tiny_models import PROMPT, VOCAB_SIZE, make_oracle

LARGEST_DIFFERENCE = 1e-3


@pytest.fixture(scope="module", params=representatives())
def oracle(request: pytest.FixtureRequest) -> tuple[str, PreTrainedModel]:
    """A case, and its model of floats."""
    torch.set_num_threads(1)
    return request.param, make_oracle(request.param)


@pytest.mark.parametrize("way", WAYS)
def test_logprobs_of_a_quantised_architecture_are_those_of_the_stored_numbers(
    oracle: tuple[str, PreTrainedModel],
    way: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Fused matrices, experts, states: on all back ends that compute the architecture."""
    case, floats = oracle
    numbers = save_quantised_folder(floats, case, way, tmp_path / "quantised")
    model = TinyModel(numbers, open_folder(tmp_path / "quantised"))
    facts = model.checkpoint.facts
    record_property("architecture_quantised", facts.architecture)  # for tools/model_table.py
    record_property("way", way)

    for backend, make_runner in BACKENDS.items():
        if backend == "native" and facts.state is not None:
            continue  # layers that carry a state are computed by the torch back end alone
        sizes = RunnerSizes(max_model_len=64)
        runner = start_runner(make_runner, model.checkpoint, sizes)
        ours = all_logprobs(StepDriver(runner, sizes), PROMPT, [28, 15], VOCAB_SIZE)
        runner.close()
        difference = float((model.logprobs - ours).abs().max())

        assert difference < LARGEST_DIFFERENCE, backend
        record_property(backend, difference)

    types = {view.type for view in model.checkpoint.tensors.values()}
    assert any(type.block_elements > 1 for type in types)
