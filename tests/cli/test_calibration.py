"""octavo quantize --calibration: the same model, with less lost where activations are large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from octavo.cli.main import main
from octavo.runner.native_runner import NativeRunner
from octavo.weights.hf_folder import open_folder
from tests.support.step_driver import RunnerSizes, StepDriver, all_logprobs, start_runner
from tests.support.tiny_models import VOCAB_SIZE, make_oracle, save_folder

TEXT = Path(__file__).parents[1] / "golden" / "alice.txt"
Capture = pytest.CaptureFixture[str]


def uneven(case: str) -> PreTrainedModel:
    """Norms let a few columns through much stronger, as trained models do."""
    oracle = make_oracle(case)
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            if name.endswith("layernorm.weight"):
                parameter[::23] += 12.0
    return oracle


def logprobs(folder: Path) -> torch.Tensor:
    checkpoint = open_folder(folder)
    ids = checkpoint.load_tokenizer().encode(TEXT.read_text(encoding="utf-8")[3000:])[:120]
    sizes = RunnerSizes(max_model_len=128)
    runner = start_runner(NativeRunner, checkpoint, sizes)
    result = all_logprobs(StepDriver(runner, sizes), ids, [60, 60], VOCAB_SIZE)
    runner.close()
    return result


def quantised(folder: Path, name: str, *words: str) -> torch.Tensor:
    out = folder.with_name(name)
    assert main(["quantize", str(folder), str(out), *words]) == 0
    return logprobs(out)


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


@pytest.mark.parametrize(("kind", "most"), [("int8", 0.75), ("int4", 0.92)])
@pytest.mark.parametrize("case", ["llama_wide", "gemma3_wide"])
def test_columns_that_see_large_activations_lose_less(
    case: str, kind: str, most: float, tmp_path: Path
) -> None:
    """The function stays, and is nearer than without a text. Gemma adds one to its norms."""
    save_folder(uneven(case), case, tmp_path / "floats")
    exact = logprobs(tmp_path / "floats")
    words = ("--type", kind, "--group-size", "32")

    plain = quantised(tmp_path / "floats", "plain", *words)
    scaled = quantised(tmp_path / "floats", "scaled", *words, "--calibration", str(TEXT))

    assert rms(scaled - exact) < most * rms(plain - exact)
    if kind == "int8":
        assert rms(scaled - exact) < 0.07 * float(exact.std())


def uneven_values(case: str) -> PreTrainedModel:
    """A few columns of what attention gives are much stronger, through weights and biases."""
    oracle = make_oracle(case)
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            if ".v_proj." in name:
                parameter[::11] *= 30.0
    return oracle


@pytest.mark.parametrize(
    ("case", "kind", "most"),
    [("llama_128", "int8", 0.91), ("llama_wide", "int4", 0.97), ("qwen2", "int4", 0.88)],
)
def test_columns_of_what_attention_gives_are_scaled_too(
    case: str, kind: str, most: float, tmp_path: Path
) -> None:
    """Those of `o_proj`: two heads share a head of values here, and Qwen's values have a bias."""
    save_folder(uneven_values(case), case, tmp_path / "floats")
    exact = logprobs(tmp_path / "floats")
    words = ("--type", kind, "--group-size", "32")

    plain = quantised(tmp_path / "floats", "plain", *words)
    scaled = quantised(tmp_path / "floats", "scaled", *words, "--calibration", str(TEXT))

    assert rms(scaled - exact) < most * rms(plain - exact)


@pytest.mark.parametrize("group", [32, 64, 128])
def test_groups_are_as_large_as_they_are_asked_for(group: int, tmp_path: Path) -> None:
    """Smaller ones lose less; groups of 64 are two of 32 in memory."""
    save_folder(make_oracle("llama_wide"), "llama_wide", tmp_path / "floats")
    exact = logprobs(tmp_path / "floats")

    words = ("--type", "int4", "--group-size")
    found = quantised(tmp_path / "floats", "found", *words, str(group))
    finer = quantised(tmp_path / "floats", "finer", *words, "32")

    assert group == 32 or rms(finer - exact) < rms(found - exact)
    tensors = open_folder(tmp_path / "found").tensors
    kind = tensors["model.layers.0.mlp.up_proj.weight"].type
    assert kind.name == ("INT4_128" if group == 128 else "INT4_32")


def words_for(tmp_path: Path) -> dict[str, Any]:
    short = tmp_path / "short.txt"
    short.write_text("Hello", encoding="utf-8")
    return {"short": short, "none": tmp_path / "none.txt", "text": TEXT}


@pytest.mark.parametrize(
    ("case", "words", "code", "message"),
    [
        ("llama_wide", ("--calibration", "{short}"), 2, r"at least 64 are needed"),
        ("llama_wide", ("--calibration", "{none}"), 2, r"none.txt cannot be read"),
        ("llama", ("--group-size", "128"), 1, r"they must be multiples of 128"),
        ("gpt_neox", ("--calibration", "{text}"), 1, r"this is GPTNeoXForCausalLM"),
        ("mixtral", ("--calibration", "{text}"), 1, r"without experts, this is Mixtral"),
    ],
)
def test_what_cannot_be_done_is_said(
    case: str,
    words: tuple[str, ...],
    code: int,
    message: str,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """And nothing is written."""
    save_folder(make_oracle(case), case, tmp_path / "floats")
    given = [word.format(**words_for(tmp_path)) for word in words]

    out = tmp_path / "out"
    assert main(["quantize", str(tmp_path / "floats"), str(out), "--type", "int4", *given]) == code
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_gguf_file_takes_neither_groups_nor_a_text(tmp_path: Path, capsys: Capture) -> None:
    """Its types have groups of their own."""
    (tmp_path / "a.gguf").touch()
    words = [str(tmp_path / "a.gguf"), str(tmp_path / "b.gguf"), "--type", "q4_k"]

    assert main(["quantize", *words, "--group-size", "32"]) == 2
    assert "--type q4_k has groups of its own" in capsys.readouterr().err
