"""The native runner comes to life: what it needs, what it refuses, what it reports."""

from __future__ import annotations

import logging

import pytest

from octavo.config.engine import EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.errors import ConfigError, CorruptFileError, UnsupportedModelError
from octavo.foundation import env
from octavo.runner.native_runner import NativeRunner
from octavo.weights.checkpoint import TensorView, WeightType
from tests.support.random_checkpoint import RandomCheckpoint, tensor_of, tiny_facts
from tests.support.step_driver import RunnerSizes, StepDriver, generate, start_runner

PROMPT = list(range(20))
SIZES = RunnerSizes()


def config(**changes: object) -> EngineConfig:
    return EngineConfig(model=ModelConfig(threads=1, **changes))


def test_a_missing_tensor_is_named_before_anything_is_read() -> None:
    """A model file that lacks one is corrupt."""
    checkpoint = RandomCheckpoint()
    name = "model.layers.1.mlp.up_proj.weight"
    checkpoint.tensors = {key: view for key, view in checkpoint.tensors.items() if key != name}

    with pytest.raises(CorruptFileError, match=f"no tensor {name}"):
        NativeRunner(config(), checkpoint)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes() -> None:
    """Reading it anyway would read beyond its end."""
    checkpoint = RandomCheckpoint()
    wrong = tensor_of("model.norm.weight", (35,), [1.0] * 35)
    checkpoint.tensors = {**checkpoint.tensors, "model.norm.weight": wrong}

    with pytest.raises(CorruptFileError, match=r"model\.norm\.weight has shape \[35\].*\[36\]"):
        NativeRunner(config(), checkpoint)


def test_a_quantised_vector_is_refused() -> None:
    """Norm weights are floats in every format that we know."""
    checkpoint = RandomCheckpoint(tiny_facts(hidden_size=32))
    view = TensorView("model.norm.weight", WeightType.Q8_0, (32,), memoryview(bytes(34)))
    checkpoint.tensors = {**checkpoint.tensors, "model.norm.weight": view}

    with pytest.raises(UnsupportedModelError, match=r"model\.norm\.weight is a quantised vector"):
        NativeRunner(config(), checkpoint)


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    """One sentence says what was asked for and what there is."""
    checkpoint = RandomCheckpoint(tiny_facts(architecture="LlamaForCausalML"))

    with pytest.raises(UnsupportedModelError, match="Did you mean LlamaForCausalLM"):
        NativeRunner(config(), checkpoint)


def test_an_instruction_set_that_is_not_here_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the ones that work on this machine."""
    monkeypatch.setenv(env.CPU_ISA.name, "mmx")

    with pytest.raises(ConfigError, match=r"OCTAVO_CPU_ISA: .*'mmx'.*scalar"):
        NativeRunner(config(), RandomCheckpoint())


def test_the_needs_are_known_without_reading_the_weights() -> None:
    """The memory plan comes first, so that what does not fit is refused at once."""
    checkpoint = RandomCheckpoint()
    unreadable = {
        name: view if len(view.shape) == 1 else _without_data(view)
        for name, view in checkpoint.tensors.items()
    }
    stored = sum(view.data.nbytes for view in checkpoint.tensors.values())
    checkpoint.tensors = unreadable
    needs = NativeRunner(config(), checkpoint).needs

    assert stored <= needs.weights_bytes <= 1.2 * stored  # rows are padded to panels of eight
    assert needs.workspace_bytes > 0
    assert needs.bytes_per_block == 2 * 2 * 2 * 32 * 12 * 2  # layers, k and v, heads, ..., bf16


def _without_data(view: TensorView) -> TensorView:
    return TensorView(view.name, view.type, view.shape, memoryview(b""))


def test_logits_of_many_rows_do_not_need_a_buffer_for_all() -> None:
    """The workspace of a large vocabulary is the same for 64 and for 512 rows."""

    def workspace(max_num_seqs: int) -> int:
        checkpoint = RandomCheckpoint(tiny_facts(vocab_size=5000, num_layers=1))
        scheduler = SchedulerConfig(max_num_batched_tokens=512, max_num_seqs=max_num_seqs)
        model = ModelConfig(threads=1)
        config = EngineConfig(model=model, scheduler=scheduler)
        return NativeRunner(config, checkpoint).needs.workspace_bytes

    assert workspace(64) < 512 * 5000 * 4


def test_tensors_that_nobody_asked_for_are_listed_once(caplog: pytest.LogCaptureFixture) -> None:
    """Except those that follow from the configuration anyway."""
    checkpoint = RandomCheckpoint()
    extra = "model.layers.0.self_attn.extra.weight"
    derived = "model.layers.0.self_attn.rotary_emb.inv_freq"
    checkpoint.tensors = {
        **checkpoint.tensors,
        extra: tensor_of(extra, (2,), [1.0, 2.0]),
        derived: tensor_of(derived, (2,), [1.0, 2.0]),
    }
    with caplog.at_level(logging.INFO, logger="octavo"):
        start_runner(NativeRunner, checkpoint, SIZES).close()

    lines = [record.getMessage() for record in caplog.records if "not used" in record.getMessage()]
    assert 1 == len(lines)
    assert extra in lines[0]
    assert derived not in lines[0]


def test_progress_grows_to_one() -> None:
    """One report per tensor, in shares of bytes."""
    shares: list[float] = []
    runner = NativeRunner(config(), RandomCheckpoint())
    kv = KVPlan(num_blocks=4, block_size=32, bytes_per_block=runner.needs.bytes_per_block)
    plan = MemoryPlan(
        limit_bytes=0,
        usable_bytes=0,
        weights_bytes=0,
        workspace_bytes=0,
        kv=kv,
        max_model_len=128,
    )
    runner.allocate(plan, lambda phase, share: shares.append(share))

    assert sorted(shares) == shares
    assert 1.0 == shares[-1]
    assert 1 + 2 * 7 + 1 == len(shares)


def test_a_closed_runner_gives_its_memory_back_and_may_be_closed_again() -> None:
    """Whoever stops twice is right both times."""
    runner = start_runner(NativeRunner, RandomCheckpoint(), SIZES)
    generate(StepDriver(runner, SIZES), PROMPT, 2)
    runner.close()
    runner.close()
