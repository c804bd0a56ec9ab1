"""Models of transformers' code on the torch back end: its numbers, and whom it refuses."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from octavo.backends.torch.foreign.attention import Sight, sight_of
from octavo.backends.torch.foreign.checkpoint import ForeignCheckpoint, open_foreign
from octavo.backends.torch.foreign.runner import TransformersRunner
from octavo.config.engine import EngineConfig, ModelConfig
from octavo.config.model_facts import PoolingFacts
from octavo.contracts.step import SamplingSpec
from octavo.errors import ConfigError, CorruptFileError, UnsupportedModelError
from octavo.models.registry import ARCHITECTURES
from tests.models.conftest import TinyModel
from tests.support.fresh_python import run_fresh
from tests.support.hf_folders import tiny_folder, write_json
from tests.support.step_driver import (
    RunnerSizes,
    StepDriver,
    all_logprobs,
    by_id,
    generate,
    start_runner,
)
from tests.support.tiny_models import PROMPT, VOCAB_SIZE, make_oracle, save_folder

# Architectures that Octavo lacks, then some that it has.
LACKING = (
    *("apertus", "diffllama", "dots1", "exaone4", "gemma4", "gptj"),
    *("hunyuan_dense", "hunyuan_dense_alpha", "persimmon", "vaultgemma"),
)
OWN = ("deepseek_v3", "gemma2", "gemma3", "gpt2", "gpt_oss", "llama", "mixtral", "phi3_longrope")
CHUNKS = ([43], [7, 16, 1, 19], [28, *[1] * 15])
LARGEST_DIFFERENCE = 1e-4
FLOAT32 = RunnerSizes(dtype="float32")
MakeModel = Callable[[str], TinyModel]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Name of a case -> the model, read for transformers' code."""
    root: Path = tmp_path_factory.mktemp("foreign")
    made: dict[str, TinyModel] = {}
    torch.set_num_threads(1)

    def make(case: str) -> TinyModel:
        if case not in made:
            oracle = make_oracle(case)
            save_folder(oracle, case, root / case)
            made[case] = TinyModel(oracle, open_foreign(root / case))
        return made[case]

    return make


def drive(model: TinyModel, sizes: RunnerSizes = FLOAT32) -> StepDriver:
    return StepDriver(start_runner(TransformersRunner, model.checkpoint, sizes), sizes)


def folder_of(model: TinyModel) -> Path:
    assert isinstance(model.checkpoint, ForeignCheckpoint)
    return model.checkpoint.folder


def change_config(folder: Path, **keys: Any) -> Path:
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", values | keys)
    return folder


@pytest.mark.parametrize("case", [*LACKING, *OWN])
def test_logprobs_are_those_of_transformers_however_a_prompt_is_cut(
    foreign: MakeModel, case: str, record_property: Callable[[str, object], None]
) -> None:
    """In one go, in uneven chunks, token by token."""
    model = foreign(case)
    driver = drive(model)
    differences = []

    for chunks in CHUNKS:
        ours = all_logprobs(driver, PROMPT, chunks, VOCAB_SIZE)
        differences.append(float((model.logprobs - ours).abs().max()))
        assert differences[-1] < LARGEST_DIFFERENCE, chunks

    record_property("foreign", model.checkpoint.facts.architecture)  # for tools/model_table.py
    record_property("largest_difference", max(differences))


@pytest.mark.parametrize("case", [*LACKING, *OWN])
def test_greedy_tokens_are_those_of_transformers(foreign: MakeModel, case: str) -> None:
    """Each from the cache, where transformers computes everything anew."""
    model = foreign(case)
    prompt = PROMPT[:19]
    expected = model.oracle_greedy(prompt, 16)
    driver = drive(model)

    assert expected == generate(driver, prompt, 16)
    assert expected == generate(driver, prompt, 16, chunk=3)


@pytest.mark.parametrize("case", ["exaone4", "vaultgemma", "dots1", "gpt_oss"])
def test_rows_of_a_mixed_batch_do_not_see_each_other(foreign: MakeModel, case: str) -> None:
    """Prompts of several lengths, some still in prefill while others decode."""
    model = foreign(case)
    driver = drive(model)
    everything = SamplingSpec(num_logprobs=VOCAB_SIZE)
    rows = [driver.add(part, everything) for part in (PROMPT[:3], PROMPT[5:40], PROMPT[20:29])]
    drawn: dict[int, list[Tensor]] = {row: [] for row in rows}

    for _ in range(14):
        result = driver.step({row: min(4, driver.remaining(row)) for row in rows})
        for row, entries in result.logprobs.items():
            drawn[row] += [by_id(entry, VOCAB_SIZE) for entry in entries]

    for row in rows:
        expected = model.oracle_logits(driver.tokens(row)[:-1]).log_softmax(dim=-1)
        ours = torch.stack(drawn[row])
        assert (expected[-len(ours) :] - ours).abs().max() < LARGEST_DIFFERENCE


def test_layers_of_one_window_share_blocks(foreign: MakeModel) -> None:
    """What a window has passed is given back, as for our own models."""
    driver = drive(foreign("exaone4"))

    assert [(group.layers, group.window) for group in driver.runner.needs.kv_groups] == [
        ((3,), 0),
        ((0,), 9),
        ((1,), 9),
        ((2,), 9),
    ]


def test_frequencies_do_not_follow_the_neighbours(foreign: MakeModel) -> None:
    """Beyond its first context this model rotates by others: those of the longest that may come."""
    model = foreign("phi3_longrope")
    alone = generate(drive(model), PROMPT[:5], 8)
    driver = drive(model)
    long, short = driver.add(PROMPT[:40]), driver.add(PROMPT[:5])

    driver.step({long: 40, short: 5})
    while len(driver.tokens(short)) < 13:
        driver.step({long: 1, short: 1})

    assert alone == driver.tokens(short)[5:]


def test_numbers_are_of_the_type_of_the_checkpoint_or_of_the_one_that_is_asked_for(
    foreign: MakeModel,
) -> None:
    """Weights and activations alike; memory is counted for it."""
    model = foreign("persimmon")
    half, whole = drive(model, RunnerSizes()), drive(model)

    assert "activations bfloat16" in half.runner.describe()
    assert "activations float32" in whole.runner.describe()
    assert 2 * half.runner.needs.weights_bytes == whole.runner.needs.weights_bytes
    ours = all_logprobs(half, PROMPT, [43], VOCAB_SIZE)
    assert 1e-3 < (ours - model.logprobs).abs().max() < 1.0


def test_a_tied_head_is_counted_and_kept_once(foreign: MakeModel) -> None:
    """The table of embeddings is the output matrix."""
    model = foreign("hunyuan_dense_alpha")
    parameters = sum(p.numel() for p in model.oracle.parameters())

    assert drive(model).runner.needs.weights_bytes == 4 * parameters


def test_the_look_at_a_model_leaves_its_configuration_alone(foreign: MakeModel) -> None:
    """What computes experts without numbers is slow with them."""
    checkpoint = foreign("dots1").checkpoint
    assert isinstance(checkpoint, ForeignCheckpoint)

    fresh = transformers.AutoConfig.from_pretrained(checkpoint.folder)

    assert vars(open_foreign(checkpoint.folder).config) == vars(fresh)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("bloom", r"BloomForCausalLM takes no attention from outside \(_supports_attention"),
        ("llama4", r"numbers tokens itself instead of taking their positions \(modeling_llama4"),
    ],
)
def test_a_model_that_does_not_let_us_is_refused(tmp_path: Path, case: str, message: str) -> None:
    """The error says what is missing."""
    save_folder(make_oracle(case), case, tmp_path)

    with pytest.raises(UnsupportedModelError, match=message):
        open_foreign(tmp_path)


SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (transformers.BertConfig(**SMALL), r"a mask of another shape than all, a window or chunks"),
        (
            transformers.Lfm2Config(**SMALL, layer_types=["conv", "full_attention"]),
            r"layers of the kind conv, which keep a state of their own",
        ),
        (transformers.MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1), r"Mamba"),
        (
            transformers.DogeConfig(**SMALL),
            r"its code computes with its mask \(dtype\)",
        ),
        (transformers.T5Config(vocab_size=64, d_model=32, num_layers=1), r"makes no decoder of it"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_tokens_that_reach_each_other_otherwise_are_refused(
    tmp_path: Path, config: Any, message: str
) -> None:
    """Encoders, states, masks that depend on numbers, models that are no decoders."""
    config.save_pretrained(tmp_path)
    change_config(tmp_path, architectures=[f"{type(config).__name__[:-6]}ForCausalLM"])
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")

    with pytest.raises(UnsupportedModelError, match=message):
        open_foreign(tmp_path)


def test_what_transformers_does_not_know_is_refused(tmp_path: Path) -> None:
    """Nobody has it."""
    tiny_folder(tmp_path, model_type="made_up", architectures=["MadeUpForCausalLM"])

    with pytest.raises(UnsupportedModelError, match=r"MadeUpForCausalLM: transformers .* not read"):
        open_foreign(tmp_path)


def test_an_architecture_that_transformers_runs_as_another_one_is_told(
    foreign: MakeModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """transformers chooses by model_type alone."""
    folder = tmp_path / "m"
    shutil.copytree(folder_of(foreign("exaone4")), folder)

    open_foreign(change_config(folder, architectures=["ForkForCausalLM"]))

    assert "ForkForCausalLM: transformers runs it as Exaone4ForCausalLM" in caplog.text


def test_a_quantised_checkpoint_is_refused(tmp_path: Path) -> None:
    """Its codes are read for models of Octavo's only."""
    tiny_folder(tmp_path, model_type="llama", quantization_config={"quant_method": "awq"})

    with pytest.raises(UnsupportedModelError, match="quantised checkpoints need a model of Octavo"):
        open_foreign(tmp_path)


def test_a_missing_tensor_is_named(foreign: MakeModel, tmp_path: Path) -> None:
    """transformers would go on with random numbers."""
    folder = tmp_path / "m"
    shutil.copytree(folder_of(foreign("exaone4")), folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.self_attn.q_norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(CorruptFileError, match=r"have no tensor model.layers.1.self_attn.q_norm"):
        start_runner(TransformersRunner, open_foreign(folder), FLOAT32)


def test_a_surplus_tensor_is_told(
    foreign: MakeModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a warning: some checkpoints carry what transformers has no use for."""
    folder = tmp_path / "m"
    shutil.copytree(folder_of(foreign("exaone4")), folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"extra.weight": torch.zeros(3)}, folder / "model.safetensors")

    with caplog.at_level(logging.WARNING):
        start_runner(TransformersRunner, open_foreign(folder), FLOAT32)

    assert "transformers' code has no use for extra.weight" in caplog.text


REMOTE_CODE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


class MineConfig(LlamaConfig):
    model_type = "mine"


class MineForCausalLM(LlamaForCausalLM):
    config_class = MineConfig

    def __init__(self, config):
        super().__init__(config)
        inner = self.model.layers[0].mlp
        inner.register_forward_hook(lambda module, given, out: MIXES)
"""


def remote_folder(foreign: MakeModel, folder: Path, mixes: str) -> Path:
    """A checkpoint that brings its code; `mixes` is what one MLP gives, computed of `out`."""
    shutil.copytree(folder_of(foreign("llama")), folder)
    code = REMOTE_CODE.replace("MIXES", mixes)
    (folder / "modeling_mine.py").write_text(code, encoding="utf-8")
    names = {"AutoConfig": "MineConfig", "AutoModelForCausalLM": "MineForCausalLM"}
    auto_map = {name: f"modeling_mine.{kind}" for name, kind in names.items()}
    return change_config(
        folder, model_type="mine", architectures=["MineForCausalLM"], auto_map=auto_map
    )


@pytest.fixture
def modules_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where transformers copies code to."""
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )


def test_code_of_a_folder_runs_only_where_it_is_trusted(
    foreign: MakeModel, tmp_path: Path, modules_folder: None
) -> None:
    """Without the flag nothing of it is even imported."""
    folder = remote_folder(foreign, tmp_path / "m", "2 * out")

    with pytest.raises(UnsupportedModelError, match="--trust-remote-code lets it run"):
        open_foreign(folder)

    sizes = RunnerSizes(dtype="float32")
    runner = start_runner(TransformersRunner, open_foreign(folder, trusts_code=True), sizes)
    ours = all_logprobs(StepDriver(runner, sizes), PROMPT, [20, 23], VOCAB_SIZE)
    assert (ours - foreign("llama").logprobs).abs().max() > 0.1  # the hook counts


def test_code_that_nobody_needs_is_not_run(foreign: MakeModel, tmp_path: Path) -> None:
    """Many folders bring code for models that transformers has since."""
    folder = tmp_path / "m"
    shutil.copytree(folder_of(foreign("exaone4")), folder)
    (folder / "modeling_mine.py").write_text("raise RuntimeError('run')", encoding="utf-8")
    auto_map = {"AutoConfig": "modeling_mine.C", "AutoModelForCausalLM": "modeling_mine.M"}

    checkpoint = open_foreign(change_config(folder, auto_map=auto_map))

    assert checkpoint.facts.architecture == "Exaone4ForCausalLM"


def test_a_model_whose_sequences_touch_is_refused_when_it_is_loaded(
    foreign: MakeModel, tmp_path: Path, modules_folder: None
) -> None:
    """Here every token gets a part of the one before it, past attention."""
    folder = remote_folder(foreign, tmp_path / "m", "out + out.roll(1, dims=1)")
    checkpoint = open_foreign(folder, trusts_code=True)

    with pytest.raises(UnsupportedModelError, match="a sequence depends on others beside it"):
        start_runner(TransformersRunner, checkpoint, FLOAT32)


def test_masks_are_told_by_what_they_let_a_token_see() -> None:
    """All before it, a window, a chunk; anything else is none of them."""

    def causal(batch: int, head: int, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    assert sight_of(causal, None, None) == Sight()
    window = sight_of(lambda b, h, q, k: causal(b, h, q, k) & (k > q - 5), 5, None)
    assert window == Sight(5)
    chunk = sight_of(lambda b, h, q, k: causal(b, h, q, k) & (k // 5 == q // 5), 5, None)
    assert chunk == Sight(5, is_chunked=True)
    assert sight_of(lambda b, h, q, k: causal(b, h, q, k) & (k > q - 6), 5, None) is None
    assert sight_of(lambda b, h, q, k: (k <= q) | (k < 3), None, None) is None


def test_models_of_vectors_are_refused(foreign: MakeModel) -> None:
    """The error names the options to leave out."""
    checkpoint = foreign("exaone4").checkpoint
    assert isinstance(checkpoint, ForeignCheckpoint)
    pooled = replace(checkpoint, facts=replace(checkpoint.facts, pooling=PoolingFacts()))

    with pytest.raises(ConfigError, match="makes text, not vectors; leave --runner"):
        TransformersRunner(EngineConfig(model=ModelConfig()), pooled)


def test_transformers_is_imported_for_its_own_models_only() -> None:
    """Neither back end loads it for a model of Octavo's."""
    code = (
        "import sys; import octavo.backends.torch.runner, octavo.runner.native_runner, octavo.llm;"
        "import octavo.engine.reading; print('torch' in sys.modules, 'transformers' in sys.modules)"
    )

    out, _ = run_fresh(code)

    assert out.split() == ["True", "False"]


def test_the_cases_are_of_architectures_that_octavo_lacks_and_has(foreign: MakeModel) -> None:
    """So that both kinds stay covered."""
    lacking = {foreign(case).checkpoint.facts.architecture for case in LACKING}
    own = {foreign(case).checkpoint.facts.architecture for case in OWN}

    assert not lacking & set(ARCHITECTURES)
    assert own <= set(ARCHITECTURES)
