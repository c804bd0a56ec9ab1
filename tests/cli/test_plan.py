"""octavo plan, from the command line to its lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.main import main
from tests.sizing import configs
from tests.support.data import smollm2_path

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A folder that has a config.json and nothing else."""
    folder = tmp_path / "llama-3-70b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(configs.LLAMA_3_70B), encoding="utf-8")
    return folder


def record(capsys: Capture, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["plan", *words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_config_json_alone_tells_weights_tokens_and_users(llama: Path, capsys: Capture) -> None:
    """Known numbers of Llama 3 70B on two H200."""
    words = ["--gpu", "h200", "--tp", "2", "--max-model-len", "8K"]
    code, found = record(capsys, str(llama), *words)

    assert code == 0
    assert found["parameters"]["total"] == 70_553_706_496
    assert found["weights"] == {"type": "bfloat16", "bytes": 141_107_412_992}
    assert found["kv"]["bytes_per_token"] == 327_680
    assert found["device"]["kv_bytes_per_token"] == 163_840
    # (0.9 * 140.4 - 65.7) GiB / 160 KiB
    assert found["tokens"] == pytest.approx(395_000, rel=0.02)
    assert found["users"]["8192"] == found["tokens"] // 8192


def test_people_read_the_same_numbers(llama: Path, capsys: Capture) -> None:
    assert main(["plan", str(llama / "config.json"), "--gpu", "H200", "--tp", "2"]) == 0
    out = capsys.readouterr().out

    assert "llama-3-70b: LlamaForCausalLM, 70,553,706,496 parameters, 131.4 GiB" in out
    assert "80 layers x 2 x 8 KV heads x 128 in bf16 = 320.0 KiB, 160.0 KiB of it" in out
    assert "0.9 of 140.4 GiB, 2 x H200" in out
    assert "at once of 8,192 tokens" in out


def test_a_state_is_told_beside_what_tokens_take(tmp_path: Path, capsys: Capture) -> None:
    """Qwen 3 Next: 12 layers of keys and values, 36 states, which take blocks of the same pool."""
    (tmp_path / "config.json").write_text(json.dumps(configs.QWEN_3_NEXT_80B), encoding="utf-8")
    words = ["--gpu", "h200", "--tp", "2"]
    code, found = record(capsys, str(tmp_path), *words)
    assert code == 0
    assert found["kv"]["layers"] == 12
    assert found["kv"]["state_bytes_per_request"] == 79_036_416

    assert main(["plan", str(tmp_path), *words]) == 0
    # 36 blocks of 12 layers x 32 tokens x 2 x 1 KV head x 256 x 2 bytes hold a half, 37.7 MiB
    assert "state per request: 75.4 MiB in float32, 101 blocks" in capsys.readouterr().out


def test_weights_that_are_quantised_at_load_take_what_they_become(
    llama: Path, capsys: Capture
) -> None:
    """Embedding and output stay bfloat16, matrices of layers get 5 bits each."""
    both = 2 * 128_256 * 8_192
    found = record(capsys, str(llama), "--memory", "90G", "--quantization", "int4")[1]

    assert found["weights"]["type"] == "Q4_1 and bfloat16"
    in_layers = found["parameters"]["total"] - both - found["parameters"]["vectors"]
    small = found["weights"]["bytes"] - 2 * both
    assert small == pytest.approx(in_layers * 5 / 8, rel=1e-4)
    assert main(["plan", str(smollm2_path()), "--quantization", "int8"]) == 2
    assert "is quantised with gguf; leave --quantization out" in capsys.readouterr().err


def test_only_options_that_change_the_sum_are_there(llama: Path, capsys: Capture) -> None:
    """Another would be taken and ignored."""
    with pytest.raises(SystemExit):
        main(["plan", str(llama), "--swap-space", "4"])
    assert "--swap-space" in capsys.readouterr().err


def test_what_does_not_fit_says_what_would(llama: Path, capsys: Capture) -> None:
    """And the exit code is one, for scripts."""
    assert main(["plan", str(llama), "--gpu", "H100"]) == 1
    assert "--tensor-parallel-size 2 would fit" in capsys.readouterr().out
    assert record(capsys, str(llama), "--gpu", "H100")[1]["fewest_devices"] == 2


def test_the_context_that_would_fit_is_named(llama: Path, capsys: Capture) -> None:
    words = ["--memory", "45G", "--gpu-memory-utilization", "1", "--weight-type", "q4_k"]
    assert main(["plan", str(llama), *words, "--max-model-len", "8192"]) == 0
    capsys.readouterr()
    assert main(["plan", str(llama), *words[2:], "--memory", "39G"]) == 1
    assert "--max-model-len" in capsys.readouterr().out


def test_the_header_of_a_gguf_file_is_enough(capsys: Capture) -> None:
    """Its weights as they are stored; this machine's memory where no device is named."""
    code, found = record(capsys, str(smollm2_path()), "--kv-cache-dtype", "int8")

    assert (code, found["is_served"]) == (0, True)
    assert found["parameters"]["total"] == 134_515_008
    assert found["weights"]["bytes"] == pytest.approx(smollm2_path().stat().st_size, rel=0.02)
    assert found["kv"]["bytes_per_token"] == 2 * 30 * 3 * (64 + 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "H100", "--memory", "8G"], "not both"),
        (["--weight-type", "q4_k", "--quantization", "int8"], "not both"),
        (["--tp", "0"], "--tensor-parallel-size must be at least 1"),
        (["--weight-type", "q9"], "--weight-type must be one of"),
        (["--kv-cache-dtype", "int3"], "--kv-cache-dtype must be one of"),
        (["--max-model-len", "0"], "--max-model-len must be at least 1"),
        (["--memory", "0"], "--memory must be at least 1"),
    ],
)
def test_wrong_options_are_refused(
    llama: Path, words: list[str], message: str, capsys: Capture
) -> None:
    assert main(["plan", str(llama), *words]) == 2
    assert message in capsys.readouterr().err
