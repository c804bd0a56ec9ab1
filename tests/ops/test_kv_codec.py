"""What comes back from the cache, against the definition of each type written as loops."""

from __future__ import annotations

import math

import pytest
import torch

from octavo.backends.torch.kv_codec import decode, encode, rotate
from octavo.ops.kv_types import KV_TYPES, KvType

HEAD_DIM = 16
INTEGERS = {KvType.INT8: (-127, 127), KvType.INT4: (-8, 7)}
FLOATS = {KvType.FP8_E4M3: (3, 7, 448.0), KvType.FP8_E5M2: (2, 15, 57344.0)}


def rows(size: float) -> torch.Tensor:
    return size * torch.randn(40, HEAD_DIM, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("type", KvType)
def test_a_row_takes_the_bytes_that_its_type_says(type: KvType) -> None:
    assert (40, type.row_bytes(HEAD_DIM)) == encode(rows(1.0), type).shape


def test_one_byte_types_and_their_scales_take_about_half_of_bfloat16() -> None:
    """So twice as many tokens fit, but for the scales: two bytes beside 64 or 256."""
    for head_dim, least in ((64, 1.93), (256, 1.98)):
        half = KvType.BF16.row_bytes(head_dim)
        assert half / KvType.INT8.row_bytes(head_dim) > least
        assert half / KvType.FP8_E4M3.row_bytes(head_dim) == 2
        assert half / KvType.INT4.row_bytes(head_dim) > 3.7


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("type", INTEGERS)
def test_integers_are_within_half_a_step_of_what_was_stored(type: KvType, size: float) -> None:
    """A step is that of the row alone; int4 cuts what is beyond its seventh step."""
    least, most = INTEGERS[type]
    numbers = rows(size)
    found = decode(encode(numbers, type), type)

    for row, back in zip(numbers.tolist(), found.tolist(), strict=True):
        farthest = max(row, key=abs)
        step = abs(farthest) / 127 if type is KvType.INT8 else farthest / -8
        assert len({round(x / step) for x in back} - set(range(least, most + 1))) == 0
        for before, after in zip(row, back, strict=True):
            beyond = max(0.0, before / step - most)
            assert abs(before - after) <= abs(step) * (0.51 + beyond), (before, after, step)


@pytest.mark.parametrize("type", FLOATS)
def test_8_bit_floats_are_rounded_to_the_nearest_and_saturate(type: KvType) -> None:
    mantissa, bias, largest = FLOATS[type]
    numbers = torch.cat([rows(size) for size in (1e-6, 1e-3, 1.0, 3e5)])
    found = decode(encode(numbers, type), type)

    for before, after in zip(numbers.flatten().tolist(), found.flatten().tolist(), strict=True):
        exponent = max(math.frexp(before)[1] - 1, 1 - bias)
        spacing = 2.0 ** (exponent - mantissa)
        expected = min(round(abs(before) / spacing) * spacing, largest)
        assert math.copysign(expected, before) == after


@pytest.mark.parametrize("head_dim", [1, 6, 16, 24, 64, 256])
def test_turning_is_orthogonal_and_its_own_inverse(head_dim: int) -> None:
    """So scores stay, and outputs come back."""
    x, y = torch.randn(2, 5, head_dim, generator=torch.Generator().manual_seed(2))

    torch.testing.assert_close((rotate(x) * rotate(y)).sum(-1), (x * y).sum(-1))
    torch.testing.assert_close(rotate(rotate(x)), x)


@pytest.mark.parametrize("head_dim", [8, 64, 96])
def test_a_number_that_stands_out_is_spread_over_the_whole_run(head_dim: int) -> None:
    """The largest power of two that divides the head is a run."""
    x = torch.zeros(head_dim)
    x[3] = 8.0
    order = head_dim & -head_dim

    assert rotate(x)[:order].abs().tolist() == pytest.approx([8.0 / math.sqrt(order)] * order)
    assert not rotate(x)[order:].any()


@pytest.mark.parametrize("type", KvType)
def test_a_nan_stays_one(type: KvType) -> None:
    """An answer from it is an error, not a guess."""
    numbers = rows(1.0)
    numbers[7, 3] = math.nan

    assert decode(encode(numbers, type), type)[7, 3].isnan()


def test_vllms_names_mean_what_they_mean_there() -> None:
    assert KV_TYPES["fp8"] is KvType.FP8_E4M3
    assert KV_TYPES["int8_per_token_head"] is KV_TYPES["int8"]
    assert KV_TYPES["int4_per_token_head"] is KV_TYPES["int4"]
