"""Rounding floats to quantised types: against the gguf package, torch, and the definition."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from octavo import _native
from octavo.backends.torch.dequantise import dequantise
from octavo.weights.checkpoint import TensorView, WeightType

ROWS, COLS = 5, 512


def weights(seed: int = 1) -> np.ndarray:
    """Of rows of several sizes, with a row of zeros and one of a single number."""
    values = np.random.default_rng(seed).standard_normal((ROWS, COLS)).astype(np.float32)
    values *= np.array([[1.0], [0.01], [30.0], [0.0], [1.0]], dtype=np.float32)
    values[3], values[4, 1:] = 0.0, 0.0  # and no negative zero
    return values


def rounded(values: np.ndarray, to: WeightType) -> np.ndarray:
    """What the rounded rows mean."""
    rows = _native.quantise_rows(WeightType.F32, values.tobytes(), values.shape[1], to)
    view = TensorView("x", to, values.shape, memoryview(rows))
    return dequantise(view).numpy()


@pytest.mark.parametrize("to", [WeightType.Q8_0, WeightType.Q4_0, WeightType.Q4_1])
def test_the_types_of_ggml_get_the_bytes_of_its_reference(to: WeightType) -> None:
    """The gguf package has it in numpy."""
    values = weights()
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(to)))

    rows = _native.quantise_rows(WeightType.F32, values.tobytes(), COLS, to)

    assert expected.tobytes() == rows


def test_fp8_is_rounded_as_torch_does_with_a_scale_for_each_row() -> None:
    """The largest magnitude of a row becomes 448."""
    values = weights()
    tensor = torch.from_numpy(values)
    scales = tensor.abs().amax(1, keepdim=True) / 448
    codes = torch.nan_to_num(tensor / scales).to(torch.float8_e4m3fn)

    np.testing.assert_array_equal(
        (codes.float() * scales).numpy(), rounded(values, WeightType.FP8_128)
    )


@pytest.mark.parametrize(
    ("to", "steps"),
    [
        (WeightType.INT8_32, 254),
        (WeightType.INT8_128, 254),
        (WeightType.INT4_32, 15),
        (WeightType.INT4_128, 15),
    ],
)
def test_integers_are_off_by_no_more_than_their_step(to: WeightType, steps: int) -> None:
    """Half a step of the range of a block, and what rounding the scale and the zero point adds."""
    values = weights()
    blocks = values.reshape(-1, to.block_elements)
    if steps == 254:
        size = 2 * np.abs(blocks).max(1) / steps
    else:
        size = (blocks.max(1).clip(0) - blocks.min(1).clip(None, 0)) / steps

    error = np.abs(rounded(values, to).reshape(blocks.shape) - blocks).max(1)

    assert (error <= size * (0.51 if steps == 254 else 1.01) + 1e-12).all()


def test_q4_k_is_closer_than_groups_that_are_rounded_by_their_range() -> None:
    """Its scales have six bits only, and still the search for them pays."""
    values = weights()[:3]

    errors = {
        to: float(np.square(rounded(values, to) - values).sum())
        for to in (WeightType.Q4_K, WeightType.Q4_1, WeightType.Q4_0)
    }

    assert errors[WeightType.Q4_K] < errors[WeightType.Q4_1] < errors[WeightType.Q4_0]


@pytest.mark.parametrize(
    "to",
    [
        *(WeightType.Q8_0, WeightType.Q4_0, WeightType.Q4_1, WeightType.Q4_K),
        *(WeightType.INT4_32, WeightType.INT4_128, WeightType.INT8_32, WeightType.INT8_128),
    ],
)
def test_numbers_that_vanish_in_a_scale_are_rounded_as_zeros_are(to: WeightType) -> None:
    """The scale would be so small that nothing can be divided by it."""
    values = np.zeros((1, COLS), dtype=np.float32)
    zeros = _native.quantise_rows(WeightType.F32, values.tobytes(), COLS, to)
    values[0, ::3] = 1e-40

    assert zeros == _native.quantise_rows(WeightType.F32, values.tobytes(), COLS, to)


def test_half_precision_sources_are_read_as_what_they_mean() -> None:
    """float16 and bfloat16."""
    values = torch.from_numpy(weights())
    for dtype, kind in ((torch.float16, WeightType.F16), (torch.bfloat16, WeightType.BF16)):
        halves = values.to(dtype)
        data = halves.view(torch.uint8).numpy().tobytes()
        exact = halves.float().numpy()

        rows = _native.quantise_rows(kind, data, COLS, WeightType.Q8_0)

        assert rows == _native.quantise_rows(WeightType.F32, exact.tobytes(), COLS, WeightType.Q8_0)


def test_what_cannot_be_rounded_is_refused() -> None:
    """Numbers that are not finite, types that nothing is rounded to, rows of no whole blocks."""
    values = weights()
    values[2, 7] = np.inf

    with pytest.raises(ValueError, match="not finite"):
        _native.quantise_rows(WeightType.F32, values.tobytes(), COLS, WeightType.Q8_0)
    with pytest.raises(ValueError, match="not quantised"):
        _native.quantise_rows(WeightType.F32, bytes(4 * 256), 256, WeightType.Q6_K)
    with pytest.raises(ValueError, match="whole blocks"):
        _native.quantise_rows(WeightType.F32, bytes(4 * 48), 48, WeightType.Q8_0)
    with pytest.raises(ValueError, match="whole rows"):
        _native.quantise_rows(WeightType.F32, bytes(4 * 33), 32, WeightType.Q8_0)


def test_tables_that_do_not_fit_together_are_refused_before_they_are_read() -> None:
    """Whatever a file claims, nothing outside of its bytes is touched."""
    codes = _native.PackedInts(bytes(16 * 4), 4, 32, (4, 32), (4, 1))
    scales = _native.Scales(bytes(4 * 4), 0, (4, 1), (1, 1), (1, 32))

    def convert(to: int = WeightType.INT4_32, **changes: object) -> bytes:
        given = {"codes": codes, "scales": scales, "zeros": None, "zero_point": 8}
        given |= {"columns": [], "groups": [], "rows": (0, 4)} | changes
        return _native.convert_rows(to, **given)  # type: ignore[arg-type]

    assert len(convert()) == 4 * 24
    few = _native.Scales(bytes(4 * 3), 0, (3, 1), (1, 1), (1, 32))
    narrow = _native.Scales(bytes(4 * 4), 0, (4, 1), (1, 1), (1, 16))
    for changes, what in (
        ({"rows": (0, 5)}, "no such rows"),
        ({"scales": few}, "not enough rows of scales"),
        ({"scales": narrow}, "a group of scales is out of range"),
        ({"columns": [0] * 31}, "an index for each column"),
        ({"columns": [32] * 32}, "a column is out of range"),
        ({"groups": [-1] * 32}, "a group of scales is out of range"),
        ({"to": WeightType.Q4_0}, "no rows of that type"),
        ({"to": WeightType.INT4_128}, "no whole blocks"),
        ({"to": WeightType.MXFP4}, "scales of E8M0"),
    ):
        with pytest.raises(ValueError, match=what):
            convert(**changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="packed numbers are too few"):
        _native.PackedInts(bytes(15 * 4), 4, 32, (4, 32), (4, 1))
    with pytest.raises(ValueError, match="scales are too few"):
        _native.Scales(bytes(15), 0, (4, 1), (1, 1), (1, 32))
    with pytest.raises(ValueError, match="2, 4 or 8 bits"):
        _native.PackedInts(bytes(64), 3, 32, (4, 32), (4, 1))
    for order in (-1, 3):
        with pytest.raises(ValueError, match="no such order of numbers in a word"):
            _native.PackedInts(bytes(64), 4, 32, (4, 32), (4, 1), order=order)
