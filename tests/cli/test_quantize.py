"""octavo quantize: what it writes is read back, by Octavo and by others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file

from octavo.backends.torch.dequantise import dequantise
from octavo.cli.main import main
from octavo.weights.checkpoint import Checkpoint, WeightType
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.hf_folder import open_folder
from tests.support.tiny_gguf import all_of, quantise, write_gguf
from tests.support.tiny_models import make_oracle, save_folder

CASE = "llama_wide"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A GGUF file and a folder of one model of floats."""
    root: Path = tmp_path_factory.mktemp("sources")
    oracle = make_oracle(CASE)
    write_gguf(oracle, quantise(oracle, all_of(gguf.GGMLQuantizationType.BF16)), root / "a.gguf")
    save_folder(oracle, CASE, root / "a")
    return root / "a.gguf", root / "a"


def error_of(quantised: Checkpoint, floats: Checkpoint) -> tuple[float, set[str]]:
    """Root mean square error over all matrices, in units of the floats, and the types."""
    error = size = 0.0
    types = set()
    for name, view in floats.tensors.items():
        exact, found = dequantise(view), quantised.tensors[name]
        assert found.shape == view.shape
        if len(view.shape) == 2 and found.type is not view.type:
            types.add(found.type.name)
            error += float((dequantise(found) - exact).square().sum())
            size += float(exact.square().sum())
        else:
            assert torch.equal(dequantise(found), exact)
    return (error / size) ** 0.5, types


@pytest.mark.parametrize(
    ("kind", "types", "most"),
    [
        ("q8_0", {"Q8_0"}, 0.01),
        ("q4_0", {"Q4_0", "Q8_0"}, 0.12),
        ("q4_k", {"Q4_K", "Q8_0"}, 0.08),
    ],
)
def test_a_gguf_file_gets_matrices_of_the_type(
    sources: tuple[Path, Path], tmp_path: Path, kind: str, types: set[str], most: float
) -> None:
    """Keys and small tensors are copied; embeddings and output stay at eight bits."""
    out = tmp_path / "out.gguf"

    assert main(["quantize", str(sources[0]), str(out), "--type", kind]) == 0

    floats, written = open_gguf(sources[0]), open_gguf(out)
    error, found = error_of(written, floats)
    assert found == types
    assert replace(written.facts, dtype="") == replace(floats.facts, dtype="")
    assert 0 < error < most
    reader = gguf.GGUFReader(out)  # the package reads it too
    assert len(reader.tensors) == len(gguf.GGUFReader(sources[0]).tensors)
    assert reader.get_field("general.file_type").contents() in (2, 7, 14)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(("kind", "most"), [("int8", 0.012), ("int4", 0.13)])
def test_a_folder_becomes_a_compressed_tensors_checkpoint(
    sources: tuple[Path, Path], tmp_path: Path, kind: str, most: float
) -> None:
    """With its tokenizer, and the settings that vLLM and transformers look for."""
    out = tmp_path / "out"

    assert main(["quantize", str(sources[1]), str(out), "--type", kind]) == 0

    floats, written = open_folder(sources[1]), open_folder(out)
    error, found = error_of(written, floats)
    assert (found, written.facts) == ({f"{kind.upper()}_128"}, floats.facts)
    assert written.quantisation == "compressed-tensors"
    assert 0 < error < most
    assert (out / "tokenizer.json").read_bytes() == (sources[1] / "tokenizer.json").read_bytes()
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config["config_groups"]["group_0"]["weights"]["num_bits"] == int(kind[3:])


def test_what_stays_float_in_a_folder_is_named_for_other_readers(tmp_path: Path) -> None:
    """vLLM and transformers expect packed words of every linear module that is not listed."""
    oracle, folder, out = make_oracle("qwen2_moe_mixed"), tmp_path / "floats", tmp_path / "out"
    save_folder(oracle, "qwen2_moe_mixed", folder)

    assert main(["quantize", str(folder), str(out), "--type", "int4"]) == 0

    ignored = set(json.loads((out / "config.json").read_text())["quantization_config"]["ignore"])
    written = load_file(out / "model.safetensors")
    packed = {name.removesuffix(".weight_packed") for name in written if "_packed" in name}
    linear = {
        name for name, module in oracle.named_modules() if isinstance(module, torch.nn.Linear)
    }
    assert {f"model.layers.3.mlp.{gate}" for gate in ("gate", "shared_expert_gate")} <= ignored
    assert linear <= packed | ignored
    assert not packed & ignored


@pytest.mark.parametrize("case", ["gpt_oss", "granitemoe", "llama4"])
def test_experts_in_one_tensor_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """Copied as floats they would be most of the folder, and nothing would say so."""
    folder, out = tmp_path / "floats", tmp_path / "out"
    save_folder(make_oracle(case), case, folder)

    assert main(["quantize", str(folder), str(out), "--type", "int4"]) == 1

    err = capsys.readouterr().err
    assert re.search(r"model\.layers\.[01]\.\S+ holds all experts of a layer in one tensor", err)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a.gguf", "out", "--type", "int8"), "use --type q8_0 or q4_0 or q4_k"),
        (("a", "out.gguf", "--type", "q4_k"), "use --type int8 or int4"),
        (("a.gguf", "a", "--type", "q8_0"), "a exists already"),
        (
            ("a.gguf", "no/where.gguf", "--type", "q8_0"),
            "there is no folder no to write where.gguf",
        ),
        (("b.gguf", "out.gguf", "--type", "q8_0"), "b.gguf is not"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(
    sources: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    """With what could be done instead."""
    folder = sources[0].parent
    monkeypatch.chdir(folder)
    before = set(folder.iterdir())

    assert main(["quantize", *words]) == 2
    assert message in capsys.readouterr().err
    assert set(folder.iterdir()) == before


def test_what_is_quantised_already_is_left_alone(
    sources: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounding twice would lose twice; and no half a file stays behind."""
    small, again = tmp_path / "small.gguf", tmp_path / "again.gguf"
    folder, folder_again = tmp_path / "small", tmp_path / "again"
    main(["quantize", str(sources[0]), str(small), "--type", "q8_0"])
    main(["quantize", str(sources[1]), str(folder), "--type", "int8"])

    assert main(["quantize", str(small), str(again), "--type", "q4_0"]) == 1
    assert main(["quantize", str(folder), str(folder_again), "--type", "int4"]) == 1

    err = capsys.readouterr().err
    assert "is quantised already (Q8_0); give a file of F32, F16, BF16" in err
    assert "is quantised already; give a folder of floats" in err
    assert set(tmp_path.iterdir()) == {small, folder}
    assert open_gguf(small).tensors["model.embed_tokens.weight"].type is WeightType.Q8_0
