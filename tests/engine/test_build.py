"""Build: the parts of an engine fit together, and a failed start leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig
from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.engine.build import build_engine, start_core
from octavo.errors import ConfigError, DoesNotFitError, ModelFileError
from octavo.executor.scripted import ScriptedExecutor
from octavo.foundation.clock import SystemClock
from octavo.sampling_params import SamplingParams
from tests.support.builders import make_kv_plan
from tests.support.data import smollm2_path
from tests.support.hf_folders import write_json
from tests.support.scripted_engine import says, scripted_engine
from tests.support.tiny_tokenizer import tiny_library


def ignore(phase: str, share: float) -> None:
    """Nobody watches."""


def config_of(**model: Any) -> EngineConfig:
    """A small engine on the real small model."""
    return EngineConfig(
        model=ModelConfig(max_model_len=256, threads=1, **model),
        cache=CacheConfig(num_gpu_blocks_override=8),
    )


class FailingExecutor(ScriptedExecutor):
    """Cannot start, and remembers whether it was stopped."""

    is_stopped = False

    def start(self, report: ReportProgress) -> MemoryPlan:
        raise DoesNotFitError("too large")

    def stop(self) -> None:
        self.is_stopped = True


def test_an_executor_that_cannot_start_is_stopped() -> None:
    """Its threads and memory are given back before the error leaves."""
    executor = FailingExecutor(says({}), make_kv_plan())

    with pytest.raises(DoesNotFitError, match="too large"):
        start_core(EngineConfig(), executor, SystemClock(), ignore)

    assert executor.is_stopped


GENERATION_CONFIG = {
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.95,
    "max_new_tokens": 100,
    "repetition_penalty": 1.1,
}


def test_the_generation_config_gives_the_defaults() -> None:
    """`max_new_tokens` is what we call `max_tokens`."""
    engine = scripted_engine(facts={"generation_defaults": GENERATION_CONFIG})

    assert SamplingParams.from_optional(engine.default_sampling) == SamplingParams(
        temperature=0.6, top_k=20, top_p=0.95, max_tokens=100, repetition_penalty=1.1
    )


@pytest.mark.parametrize("value", ["octavo", "vllm"])
def test_the_generation_config_can_be_turned_off(value: str) -> None:
    """Then the library's own defaults hold."""
    engine = scripted_engine(
        facts={"generation_defaults": GENERATION_CONFIG}, model={"generation_config": value}
    )

    assert engine.default_sampling == {}


@pytest.mark.parametrize("source", ["auto", "vllm"])
def test_an_override_changes_the_named_defaults_alone(source: str) -> None:
    """It also holds where the model's own file is turned off; the end tokens stay."""
    engine = scripted_engine(
        facts={"generation_defaults": GENERATION_CONFIG, "eos_token_ids": (3, 4)},
        model={
            "generation_config": source,
            "override_generation_config": '{"temperature": 0.5, "max_new_tokens": 7}',
        },
    )

    own = {"top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1} if source == "auto" else {}
    assert engine.default_sampling == own | {"temperature": 0.5, "max_tokens": 7}
    assert {3, 4} <= set(engine.intake.limits.eos_token_ids)


def test_an_override_out_of_range_ends_the_start_before_the_model_is_looked_for() -> None:
    """The message names the flag and the limit."""
    config = config_of(model="/no/such/model", override_generation_config='{"temperature": 3}')

    message = "--override-generation-config: temperature must be between 0 and 2, got 3"
    with pytest.raises(ConfigError, match=message):
        build_engine(config, SystemClock(), ignore)


def test_a_wrong_value_in_the_generation_config_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A model with a strange file still serves, and the log says what was ignored."""
    defaults = {"temperature": 7.0, "top_k": 20, "unheard_of": 1}
    engine = scripted_engine(facts={"generation_defaults": defaults})

    assert engine.default_sampling == {"top_k": 20}
    assert "temperature must be between 0 and 2, got 7.0" in caplog.text
    assert "unheard_of" in caplog.text


def test_a_real_model_is_built_in_phases() -> None:
    """Progress is reported on the way, and all parts speak of the same model."""
    phases: list[tuple[str, float]] = []
    config = config_of(model=str(smollm2_path()))

    engine = build_engine(config, SystemClock(), lambda *report: phases.append(report))

    assert phases[-1][1] == 1.0
    assert engine.max_model_len == engine.memory_plan.max_model_len == 256
    assert engine.facts.vocab_size == engine.tokenizer.vocab_size == 49152
    assert engine.intake.limits.eos_token_ids == (engine.tokenizer.eos_token_id,)
    assert engine.chat_template is not None
    engine.core.stop()


def test_the_tokenizer_can_come_from_elsewhere(tmp_path: Path) -> None:
    """A folder with tokenizer.json, or another model."""
    tiny_library().save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {})
    model = str(smollm2_path())

    for tokenizer, expected in ((str(tmp_path), tiny_library().get_vocab_size()), (model, 49152)):
        engine = build_engine(config_of(model=model, tokenizer=tokenizer), SystemClock(), ignore)
        assert engine.tokenizer.vocab_size == expected
        engine.core.stop()


def test_a_tokenizer_that_does_not_exist_ends_the_start(tmp_path: Path) -> None:
    """With the error of whoever looked for it."""
    config = config_of(model=str(smollm2_path()), tokenizer=str(tmp_path / "nowhere"))

    with pytest.raises(ModelFileError, match="nowhere"):
        build_engine(config, SystemClock(), ignore)


def test_a_model_that_does_not_exist_is_an_error() -> None:
    """Nothing is started."""
    with pytest.raises(ModelFileError, match=r"/no/such/model\.gguf"):
        build_engine(config_of(model="/no/such/model.gguf"), SystemClock(), ignore)
