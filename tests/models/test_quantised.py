"""Quantised checkpoints of every method, on both back ends, give the numbers that they store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from transformers import PreTrainedModel

from octavo import _native
from octavo.backends.native import weights
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.gguf_reader import KNOWN_TYPES
from octavo.weights.gguf_repack import REPACKED
from octavo.weights.hf_folder import open_folder
from octavo.weights.quant.online import ONLINE, with_quantisation
from tests.models.conftest import BACKENDS, TinyModel
from tests.support.quantised_folders import METHODS, save_gpt_oss, save_quantised
from tests.support.step_driver import RunnerSizes, StepDriver, all_logprobs, start_runner
from tests.support.tiny_gguf import all_of, oracle_of, quantise, write_gguf
from tests.support.tiny_models import PROMPT, VOCAB_SIZE, make_oracle, save_folder

LARGEST_DIFFERENCE = 1e-3
CASE = "llama_128"
GGUF_TYPES = [
    type.name
    for type in GGMLQuantizationType
    if (int(type) in KNOWN_TYPES and KNOWN_TYPES[int(type)].block_elements > 1)
    or (int(type) in REPACKED and type.name != "Q8_K")  # which the package does not read
]
Quantised = Callable[[str], TinyModel]


@pytest.fixture(scope="module")
def oracle() -> PreTrainedModel:
    torch.set_num_threads(1)
    return make_oracle(CASE)


@pytest.fixture(scope="module")
def wide() -> PreTrainedModel:
    """Of widths that blocks of 256 divide."""
    return make_oracle("llama_wide")


@pytest.fixture(scope="module")
def quantised(oracle: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    """Name of a method -> the model, quantised by it."""
    root: Path = tmp_path_factory.mktemp("quantised")
    made: dict[str, TinyModel] = {}

    def make(name: str) -> TinyModel:
        if name not in made:
            numbers = save_quantised(oracle, METHODS[name], root / name)
            made[name] = TinyModel(numbers, open_folder(root / name))
        return made[name]

    return make


def logprobs(model: TinyModel, backend: str, **sizes: str) -> torch.Tensor:
    run = RunnerSizes(max_model_len=64, **sizes)  # type: ignore[arg-type]
    runner = start_runner(BACKENDS[backend], model.checkpoint, run)
    result = all_logprobs(StepDriver(runner, run), PROMPT, [28, 15], VOCAB_SIZE)
    runner.close()
    return result


@pytest.mark.parametrize("method", METHODS)
def test_logprobs_are_those_of_the_stored_numbers(
    quantised: Quantised,
    backend: str,
    method: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Codes, scales, zero points and orders of columns are read as their format means them."""
    record(quantised(method), backend, method, record_property)


@pytest.mark.parametrize("kind", GGUF_TYPES)
def test_logprobs_are_those_of_the_numbers_in_a_gguf_file(
    backend: str,
    kind: str,
    wide: PreTrainedModel,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Of every type that a file may have, in its own width or in a wider one."""
    stored = quantise(wide, all_of(GGMLQuantizationType[kind]))
    write_gguf(wide, stored, tmp_path / "a.gguf")
    model = TinyModel(oracle_of(wide, stored), open_gguf(tmp_path / "a.gguf"))

    record(model, backend, f"GGUF {kind}", record_property)


def test_gpt_oss_as_it_is_published(
    backend: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Experts of a layer on top of each other in blocks of MXFP4, which stay as they are."""
    numbers = save_gpt_oss(make_oracle("gpt_oss"), tmp_path / "gpt-oss")
    model = TinyModel(numbers, open_folder(tmp_path / "gpt-oss"))

    record(model, backend, "mxfp4", record_property)
    assert bits_per_weight(model) < 4.5


@pytest.mark.parametrize("method", ["fp8-block", "fp8-tensor", "awq-32", "compressed-w4a16-zeros"])
def test_quantised_projections_of_latent_attention(
    backend: str, method: str, tmp_path: Path
) -> None:
    """The half of kv_b_proj that makes keys is turned, as blocks cannot be: it becomes floats."""
    numbers = save_quantised(make_oracle("deepseek_v2_128"), METHODS[method], tmp_path / method)
    model = TinyModel(numbers, open_folder(tmp_path / method))

    difference = float((model.logprobs - logprobs(model, backend)).abs().max())

    assert difference < LARGEST_DIFFERENCE
    types = {name.split(".")[4]: view.type for name, view in latent_views(model)}
    assert types["k_up"] is WeightType.F32
    assert types["v_up"].block_elements > 1


@pytest.mark.parametrize(
    "method", ["awq-128", "gptq-4-act-order", "gptq-8-zeros", "compressed-nvfp4", "llm-int8"]
)
def test_int8_activations_mean_the_same_on_both_back_ends(
    quantised: Quantised, method: str
) -> None:
    """But for activations that float32's noise rounds to the neighbouring integer."""
    model = quantised(method)

    native, torch_ = (logprobs(model, backend, activation_dtype="int8") for backend in BACKENDS)

    assert rms(native - torch_) < rms(native - model.logprobs)
    assert rms(native - model.logprobs) < 0.1 * float(model.logprobs.std())


@pytest.mark.parametrize("method", ONLINE)
def test_floats_are_quantised_while_they_are_loaded(
    oracle: PreTrainedModel, tmp_path: Path, method: str
) -> None:
    """Near the floats, as near as the type allows, and the same numbers on both back ends."""
    oracle.save_pretrained(tmp_path)
    floats = TinyModel(oracle, open_folder(tmp_path))
    model = replace(floats, checkpoint=with_quantisation(floats.checkpoint, method))

    native, torch_ = (logprobs(model, backend) for backend in BACKENDS)

    torch.testing.assert_close(native, torch_, rtol=0, atol=LARGEST_DIFFERENCE)
    error = rms(native - floats.logprobs) / float(floats.logprobs.std())
    least, most = {"int8": (0.005, 0.06), "int4": (0.1, 0.7), "fp8": (0.03, 0.3)}[method]
    assert least < error < most


@pytest.mark.parametrize("method", ONLINE)
@pytest.mark.parametrize("case", ["mixtral", "gpt_oss"])
def test_experts_are_quantised_while_they_are_loaded(
    tmp_path: Path, case: str, method: str
) -> None:
    """Whether they lie alone or on top of each other; routers stay floats."""
    floats = make_oracle(case)
    save_folder(floats, case, tmp_path)
    checkpoint = with_quantisation(open_folder(tmp_path), method)
    model = TinyModel(floats, checkpoint)

    native, torch_ = (logprobs(model, backend) for backend in BACKENDS)

    torch.testing.assert_close(native, torch_, rtol=0, atol=LARGEST_DIFFERENCE)
    experts = {
        v.type for n, v in checkpoint.tensors.items() if ".experts.0." in n and n.endswith("weight")
    }
    routers = {v.type for n, v in checkpoint.tensors.items() if n.endswith("mlp.gate.weight")}
    assert all(type.block_elements > 1 for type in experts)
    assert all(type.block_elements == 1 for type in routers)
    assert experts
    assert routers


def test_rows_that_are_made_in_many_pieces_are_the_same_rows(
    quantised: Quantised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large matrices are, by several threads; the order of pieces is that of the rows."""
    model = quantised("gptq-4-act-order")
    whole = logprobs(model, "native")

    monkeypatch.setattr(weights, "MADE_BYTES", 1)

    assert torch.equal(whole, logprobs(model, "native"))


def test_memory_is_near_the_bits_of_the_checkpoint(quantised: Quantised) -> None:
    """4 bits and their scales, not a float for each weight."""
    assert bits_per_weight(quantised("awq-128")) < 4.5
    assert bits_per_weight(quantised("gptq-8")) < 8.5
    assert bits_per_weight(quantised("fp8-block")) < 8.5
    assert bits_per_weight(quantised("compressed-mxfp4")) < 4.5


def record(
    model: TinyModel, backend: str, name: str, record_property: Callable[[str, object], None]
) -> None:
    """The model is as its numbers say; how near, for tools/model_table.py."""
    difference = float((model.logprobs - logprobs(model, backend)).abs().max())

    assert difference < LARGEST_DIFFERENCE
    record_property("quantisation", name)
    record_property("backend", backend)
    record_property("types", " ".join(sorted(types_of(model))))
    record_property("bits", f"{bits_per_weight(model):.2f}")
    record_property("largest_difference", difference)


def quantised_views(model: TinyModel) -> list[TensorView]:
    return [view for view in model.checkpoint.tensors.values() if view.type.block_elements > 1]


def latent_views(model: TinyModel) -> list[tuple[str, TensorView]]:
    views = model.checkpoint.tensors.items()
    return [(name, view) for name, view in views if "k_up" in name or "v_up" in name]


def types_of(model: TinyModel) -> set[str]:
    return {view.type.name for view in quantised_views(model)}


def bits_per_weight(model: TinyModel) -> float:
    """In memory, of quantised matrices, if their rows had 4096 columns."""
    num_bits = elements = 0
    for view in quantised_views(model):
        one = _native.Weights()
        one.add_matrix(4096, [(view.type, 8)])
        num_bits += one.num_bytes * view.shape[0] * view.shape[1] / 4096
        elements += view.shape[0] * view.shape[1]
    return num_bits / elements


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())
