"""What runners say and promise about quantised weights, on both back ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.backends.torch.runner import TorchRunner
from octavo.config.model_facts import RopeFacts
from octavo.runner.native_runner import NativeRunner
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.quant.online import with_quantisation
from tests.support.random_checkpoint import RandomCheckpoint, tiny_facts
from tests.support.step_driver import MakeRunner, RunnerSizes, start_runner

BACKENDS: dict[str, MakeRunner] = {"native": NativeRunner, "torch": TorchRunner}
SIZES = RunnerSizes()


def quantised() -> Checkpoint:
    """Widths of whole blocks, rounded to int8 while they are loaded."""
    wide = tiny_facts(
        hidden_size=64, intermediate_size=96, head_dim=16, rope=RopeFacts(rotary_dim=16)
    )
    return with_quantisation(RandomCheckpoint(wide), "int8")


@pytest.mark.parametrize("backend", BACKENDS)
def test_entries_of_int8_activations_are_not_those_of_floats(backend: str) -> None:
    """One folder of offloaded blocks serves both, each with its own."""
    made = [
        start_runner(BACKENDS[backend], quantised(), replace(SIZES, activation_dtype=dtype))
        for dtype in ("float32", "int8", "int8")
    ]

    floats, int8, again = (runner.kv_fingerprint for runner in made)

    assert floats != int8
    assert int8 == again


def test_the_type_of_most_weights_is_named_first() -> None:
    """Also where rows are made when they are read, as here."""
    described = start_runner(NativeRunner, quantised(), SIZES).describe()

    assert "weights Q8_0/F32" in described
