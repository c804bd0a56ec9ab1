"""GGUF types without kernels of their own mean the same numbers in the type that they become."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from octavo.backends.torch.dequantise import dequantise
from octavo.weights.checkpoint import TensorView
from octavo.weights.gguf_reader import read_gguf
from octavo.weights.gguf_repack import REPACKED
from tests.support.random_weights import random_repacked_rows


@pytest.mark.parametrize("number", REPACKED, ids=lambda number: REPACKED[number].name)
def test_repacked_rows_mean_the_numbers_that_the_gguf_package_reads(
    number: int, tmp_path: Path
) -> None:
    """Nothing is rounded, for random bytes of several blocks."""
    rows = random_repacked_rows(number, 3, 512, seed=number)
    kind = gguf.GGMLQuantizationType(number)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("wanted", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    view = read_gguf(tmp_path / "a.gguf").tensors["wanted"]

    assert view.type is REPACKED[number].to
    assert view.shape == (3, 512)
    expected = _numbers(number, rows)
    np.testing.assert_array_equal(expected, dequantise(view).numpy())
    np.testing.assert_array_equal(rows_of(view, 1, 3), rows_of(view, 0, 3)[1:])


def rows_of(view: TensorView, first: int, end: int) -> np.ndarray:
    """Some rows, each as its bytes."""
    return np.frombuffer(view.rows(first, end), dtype=np.uint8).reshape(end - first, -1)


def _numbers(number: int, rows: np.ndarray) -> np.ndarray:
    if REPACKED[number].name != "Q8_K":
        return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(number))
    blocks = rows.reshape(-1, 292)  # which the package does not read
    d = np.ascontiguousarray(blocks[:, :4]).view(np.float32)
    return (d * blocks[:, 4:260].view(np.int8)).astype(np.float32).reshape(3, -1)
