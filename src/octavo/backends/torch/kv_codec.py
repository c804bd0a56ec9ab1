"""Keys and values as bytes and back, in plain torch operations: the definition of each KV type."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.ops.kv_types import KvType

_DTYPES = {
    KvType.F32: torch.float32,
    KvType.F16: torch.float16,
    KvType.BF16: torch.bfloat16,
    KvType.FP8_E4M3: torch.float8_e4m3fn,
    KvType.FP8_E5M2: torch.float8_e5m2,
}
_SCALE_BYTES = 2


def encode(numbers: Tensor, type: KvType) -> Tensor:
    """[..., head_dim] of float32 -> [..., type.row_bytes(head_dim)] of uint8."""
    if type.has_scales:
        return _encode_integers(numbers, type)
    dtype = _DTYPES[type]
    if dtype.itemsize == 1:
        largest = torch.finfo(dtype).max
        numbers = numbers.clamp(-largest, largest)
    return numbers.to(dtype).contiguous().view(torch.uint8)


def decode(stored: Tensor, type: KvType) -> Tensor:
    """The inverse, but for what rounding took."""
    if type.has_scales:
        return _decode_integers(stored, type)
    return stored.contiguous().view(_DTYPES[type]).float()


def rotate(x: Tensor) -> Tensor:
    """[..., head_dim] times the orthogonal Hadamard matrix of Sylvester's order, its own inverse.

    Where head_dim is no power of two, each run of the largest one that divides it.
    """
    order = x.shape[-1] & -x.shape[-1]
    step = order // 2
    while step:  # in the order of the kernels, so that both round alike
        a, b = x.reshape(*x.shape[:-1], -1, 2, step).unbind(-2)
        x = torch.stack([a + b, a - b], dim=-2).flatten(-3)
        step //= 2
    return x * torch.tensor(order**-0.5, dtype=x.dtype, device=x.device)


def _encode_integers(numbers: Tensor, type: KvType) -> Tensor:
    highest = numbers.amax(-1, keepdim=True).clamp(min=0)
    lowest = numbers.amin(-1, keepdim=True).clamp(max=0)
    farthest = torch.where(highest >= -lowest, highest, lowest)
    exact = farthest.abs() / 127 if type is KvType.INT8 else farthest / -8
    scale = exact.half()
    inverse = torch.where(scale == 0, 0.0, 1 / scale.float())
    least, most = (-127, 127) if type is KvType.INT8 else (-8, 7)
    units = (numbers * inverse).round().clamp(least, most).nan_to_num().to(torch.int8)
    if type is KvType.INT4:  # two dimensions in a byte, the first one in the low half
        units = (units[..., 0::2] & 15) | (units[..., 1::2] << 4)
    return torch.cat([units.view(torch.uint8), scale.view(torch.uint8)], dim=-1)


def _decode_integers(stored: Tensor, type: KvType) -> Tensor:
    units = stored[..., :-_SCALE_BYTES].contiguous().view(torch.int8)
    scale = stored[..., -_SCALE_BYTES:].contiguous().view(torch.float16).float()
    if type is KvType.INT4:
        units = torch.stack([(units << 4) >> 4, units >> 4], dim=-1).flatten(-2)
    return units.float() * scale
