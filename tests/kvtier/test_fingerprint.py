"""The fingerprint of weights: equal for the same tensors, different for any others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from octavo.errors import OctavoError
from octavo.kvtier.fingerprint import weights_fingerprint
from octavo.weights.checkpoint import Checkpoint, TensorView, WeightType
from octavo.weights.gguf_repack import repacked_view, scaled
from octavo.weights.hf_folder import open_folder
from octavo.weights.quant.online import ONLINE, quantised
from octavo.weights.views import matrix_of, rows_of, transposed, turned_floats
from tests.support.hf_folders import CONFIG, write_json
from tests.support.quantised_folders import METHODS

STEM = "model.layers.0.mlp.down_proj"


def tensor(data: bytes = b"abcdefgh", **changes: object) -> TensorView:
    made = TensorView("a", WeightType.F32, (2,), memoryview(data))
    return replace(made, **changes)  # type: ignore[arg-type]


def floats(*values: float) -> TensorView:
    """[2, 256], the given numbers and then 1."""
    numbers = torch.ones(2, 256)
    numbers.view(-1)[: len(values)] = torch.tensor(values)
    return TensorView("a", WeightType.F32, (2, 256), memoryview(numbers.numpy().tobytes()))


def is_each_different(*views: TensorView) -> bool:
    """Whether no two of them could be taken for one another."""
    return len({weights_fingerprint({"a": view}) for view in views}) == len(views)


def test_the_order_of_tensors_does_not_matter():
    a, b = tensor(), tensor(b"ijklmnop")
    assert weights_fingerprint({"a": a, "b": b}) == weights_fingerprint({"b": b, "a": a})
    assert weights_fingerprint({"a": a, "b": b}) != weights_fingerprint({"a": b, "b": a})


def test_every_change_of_a_tensor_shows():
    fingerprints = {
        weights_fingerprint(tensors)
        for tensors in (
            {"a": tensor()},
            {"b": tensor()},
            {"a": tensor(b"abcdefgi")},
            {"a": tensor(shape=(1, 2))},
            {"a": tensor(shape=(4,), type=WeightType.F16)},
            {"a": tensor(interleaved_heads=2)},
            {"a": tensor(row_order=[0, 1])},
            {"a": tensor(row_order=[1, 0])},
            {"a": tensor(row_order=[1, 0], transposed=True)},
            {"a": tensor(columns=(1, 0))},
            {"a": tensor(), "b": tensor()},
            {},
        )
    }
    assert len(fingerprints) == 12
    assert {len(fingerprint) for fingerprint in fingerprints} == {32}


def test_the_same_bytes_in_another_place_are_the_same_tensor():
    """Two processes, or two copies of one file, share blocks."""
    made = [repacked_view("a", 35, (2, 256), memoryview(bytes(2 * 66))) for _ in range(2)]

    assert not is_each_different(*made)
    assert not is_each_different(floats(), floats())


def stored_tensors(folder: Path, method: str) -> dict[str, Tensor]:
    """Of one quantised matrix [16, 128], whose configuration goes to the folder."""
    used = METHODS[method]
    matrix = torch.randn(16, 128, generator=torch.Generator().manual_seed(1))
    stored = used.quantise(matrix).tensors
    beside = used.file_name != "config.json"
    inside = {} if beside else {"quantization_config": used.config}
    write_json(folder / "config.json", CONFIG | inside)
    if beside:
        write_json(folder / used.file_name, used.config)
    return {f"{STEM}.{ending}": tensor.contiguous() for ending, tensor in stored.items()}


def open_changed(folder: Path, tensors: dict[str, Tensor], changed: str) -> Checkpoint | None:
    """The folder with one bit of one tensor flipped; None where that is refused."""
    other = {name: tensor.clone() for name, tensor in tensors.items()}
    if changed:
        other[changed].reshape(-1).view(torch.uint8)[0] ^= 1
    save_file(other, folder / "model.safetensors")
    assert load_file(folder / "model.safetensors").keys() == tensors.keys()
    try:
        return open_folder(folder)
    except OctavoError:
        return None


@pytest.mark.parametrize("method", METHODS)
def test_whatever_changes_a_quantised_weight_changes_the_fingerprint(method: str, tmp_path: Path):
    """Codes, scales, scales of scales, zero points: all of which lie in tensors of their own."""
    tensors = stored_tensors(tmp_path, method)
    plain = open_changed(tmp_path, tensors, "")
    assert plain is not None
    rows = bytes(plain.tensors[f"{STEM}.weight"].rows_in_order())
    fingerprints = {weights_fingerprint(plain.tensors)}

    changes = [""]
    for name in tensors:
        checkpoint = open_changed(tmp_path, tensors, name)
        if checkpoint is None:
            continue
        if bytes(checkpoint.tensors[f"{STEM}.weight"].rows_in_order()) != rows:
            changes.append(name)
            fingerprints.add(weights_fingerprint(checkpoint.tensors))

    assert len(changes) >= 3  # codes and scales at least
    assert len(fingerprints) == len(changes), changes


def test_rows_that_are_made_otherwise_of_the_same_bytes_show():
    """Factors of a repacked type, the type that floats are rounded to, one matrix of a stack."""
    factors = [
        TensorView("s", WeightType.F32, (1,), memoryview(torch.tensor([x]).numpy().tobytes()))
        for x in (1.0, 2.0)
    ]
    repacked = repacked_view("a", 40, (2, 64), memoryview(bytes(2 * 36)))
    stack = repacked_view("a", 35, (2, 2, 256), memoryview(bytes(2 * 2 * 66)))
    rounded = [quantised(floats(), types) for types in ONLINE.values()]

    assert is_each_different(*(scaled(repacked, factor) for factor in factors))
    assert is_each_different(matrix_of(stack, "a", 0), matrix_of(stack, "a", 1))
    assert is_each_different(*rounded, floats(), *map(turned_floats, rounded))
    assert is_each_different(rounded[0], quantised(floats(3.0), ONLINE["int8"]))
    turned = transposed(floats())
    assert is_each_different(turned, rows_of(turned, "a", range(0, 256, 2)), floats())
