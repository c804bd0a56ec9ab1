"""The native runner comes to life: what it needs, what it refuses, what it reports."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from octavo.backends.native import weights
from octavo.backends.torch.runner import TorchRunner
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
Start = Callable[[EngineConfig, RandomCheckpoint], object]


@pytest.fixture(params=[NativeRunner, TorchRunner])
def start(request: pytest.FixtureRequest) -> Start:
    """Either runner, brought to life."""
    made: Start = request.param
    return made


def config(**changes: object) -> EngineConfig:
    return EngineConfig(model=ModelConfig(threads=1, **changes))


def test_all_missing_tensors_are_named_before_anything_is_read(start: Start) -> None:
    """One attempt tells all that a model file lacks."""
    checkpoint = RandomCheckpoint()
    missing = ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"]
    checkpoint.tensors = {
        name: view for name, view in checkpoint.tensors.items() if name not in missing
    }
    with pytest.raises(CorruptFileError, match="no tensor") as caught:
        start(config(), checkpoint)

    for name in missing:
        assert name in str(caught.value)


def test_tensors_that_have_no_place_are_refused_together(start: Start) -> None:
    """A file that has more than its architecture is of another one: its answers would be wrong."""
    checkpoint = RandomCheckpoint(tiny_facts(tie_word_embeddings=True))
    extra = ["model.layers.0.self_attn.extra.weight", "model.layers.7.mlp.up_proj.weight"]
    derived = ["model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight"]
    added = {name: tensor_of(name, (2,), [1.0, 2.0]) for name in [*extra, *derived]}
    checkpoint.tensors = {**checkpoint.tensors, **added}

    with pytest.raises(CorruptFileError, match="no place") as caught:
        start(config(), checkpoint)

    for name in extra:
        assert name in str(caught.value)
    assert "inv_freq" not in str(caught.value)
    assert "lm_head" not in str(caught.value)


def test_what_follows_from_the_rest_may_be_left_over(start: Start) -> None:
    """Rope frequencies, causal masks, and a head that is tied to the embedding."""
    checkpoint = RandomCheckpoint(tiny_facts(tie_word_embeddings=True))
    derived = ["model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight"]
    added = {name: tensor_of(name, (2,), [1.0, 2.0]) for name in derived}
    checkpoint.tensors = {**checkpoint.tensors, **added}

    start(config(), checkpoint)


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
def test_a_number_that_is_not_finite_is_found_when_the_weights_are_read(name: str) -> None:
    """It would make the logits of every request worthless, much later."""
    checkpoint = RandomCheckpoint()
    view = checkpoint.tensors[name]
    broken = bytearray(view.data)
    broken[-4:] = struct.pack("<f", math.nan)
    checkpoint.tensors = {**checkpoint.tensors, name: replace(view, data=memoryview(broken))}

    with pytest.raises(CorruptFileError, match=f"{name}.*not finite"):
        start_runner(NativeRunner, checkpoint, SIZES)


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


def test_progress_grows_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One report per batch of tensors, in shares of bytes."""
    monkeypatch.setattr(weights, "BATCH_BYTES", 1)
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
