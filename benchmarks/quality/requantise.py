"""The same model with its matrices stored in another type.

Owns the rounding to each weight type: nearest numbers under scales from the largest ones, without
the search that tools for publishing models add. Rows whose length a type of 256 numbers cannot take
get the type of 32 numbers that llama.cpp falls back to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from octavo.backends.torch.dequantise import dequantise
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.gguf_checkpoint import GgufCheckpoint

FALLBACK = {
    WeightType.Q4_K: WeightType.Q5_0,
    WeightType.Q5_K: WeightType.Q5_1,
    WeightType.Q6_K: WeightType.Q8_0,
}


def requantised(checkpoint: GgufCheckpoint, type: WeightType) -> GgufCheckpoint:
    """All matrices rounded to `type` from float32; vectors stay."""
    tensors = {name: as_type(view, type) for name, view in checkpoint.tensors.items()}
    return replace(checkpoint, tensors=tensors)


def as_type(view: TensorView, type: WeightType) -> TensorView:
    """One tensor, rows in Hugging Face's order."""
    if len(view.shape) == 1:
        return view
    if view.shape[-1] % type.block_elements:
        type = FALLBACK[type]
    blocks = dequantise(view).reshape(-1, type.block_elements)
    stored = ENCODERS[type](blocks)
    return TensorView(view.name, type, view.shape, memoryview(stored.numpy().tobytes()))


def _float(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: x.to(dtype).contiguous().view(torch.uint8)


def _symmetric(steps: int, bits: int) -> Callable[[Tensor], Tensor]:
    """Q4_0, Q5_0: d * (q - steps), where the number of largest magnitude is -steps * d."""

    def encode(x: Tensor) -> Tensor:
        farthest = x.gather(1, x.abs().argmax(dim=1, keepdim=True))
        d = (farthest / -steps).half()
        q = (x * _inverse(d) + steps).round().clamp(0, 2 * steps - 1)
        return torch.cat([_bytes(d), *_packed(q, bits)], dim=1)

    return encode


def _with_minimum(steps: int, bits: int) -> Callable[[Tensor], Tensor]:
    """Q4_1, Q5_1: d * q + m, from the smallest number to the largest one."""

    def encode(x: Tensor) -> Tensor:
        lowest = x.amin(dim=1, keepdim=True)
        d, m = ((x.amax(dim=1, keepdim=True) - lowest) / steps).half(), lowest.half()
        q = ((x - m.float()) * _inverse(d)).round().clamp(0, steps)
        return torch.cat([_bytes(d), _bytes(m), *_packed(q, bits)], dim=1)

    return encode


def _q8_0(x: Tensor) -> Tensor:
    d = (x.abs().amax(dim=1, keepdim=True) / 127).half()
    q = (x * _inverse(d)).round().clamp(-127, 127)
    return torch.cat([_bytes(d), q.to(torch.int8).view(torch.uint8)], dim=1)


def _k_with_minimum(steps: int) -> Callable[[Tensor], Tensor]:
    """Q4_K, Q5_K: eight groups of 32, d * scale * q - dmin * min with scales of six bits."""

    def encode(x: Tensor) -> Tensor:
        groups = x.reshape(-1, 8, 32)
        lowest = groups.amin(dim=2).clamp(max=0)
        width = (groups.amax(dim=2) - lowest) / steps
        d, dmin = (part.amax(dim=1, keepdim=True).div(63).half() for part in (width, -lowest))
        scale = (width * _inverse(d)).round().clamp(0, 63)
        minimum = (-lowest * _inverse(dmin)).round().clamp(0, 63)
        step, offset = (d.float() * scale)[:, :, None], (dmin.float() * minimum)[:, :, None]
        q = ((groups + offset) * _inverse(step)).round().clamp(0, steps).to(torch.uint8)
        parts = [_bytes(d), _bytes(dmin), _six_bits(scale, minimum)]
        if steps == 31:
            weights = (1 << torch.arange(8, dtype=torch.uint8)).reshape(1, 8, 1)
            parts.append(((q >> 4) * weights).sum(dim=1, dtype=torch.uint8))
        pairs = (q & 15).reshape(-1, 4, 2, 32)
        parts.append((pairs[:, :, 0] | pairs[:, :, 1] << 4).flatten(1))
        return torch.cat(parts, dim=1)

    return encode


def _q6_k(x: Tensor) -> Tensor:
    """Sixteen groups of 16, d * scale * (q - 32) with scales of eight bits."""
    groups = x.reshape(-1, 16, 16)
    farthest = groups.gather(2, groups.abs().argmax(dim=2, keepdim=True)).squeeze(2) / -32
    d = (farthest.abs().amax(dim=1, keepdim=True) / 127).half()
    scale = (farthest * _inverse(d)).round().clamp(-127, 127)
    step = (d.float() * scale)[:, :, None]
    q = ((groups * _inverse(step)).round().clamp(-32, 31) + 32).to(torch.uint8)
    halves = q.reshape(-1, 2, 2, 64)  # [block, half, low or high nibbles, byte]
    low = (halves[:, :, 0] & 15) | (halves[:, :, 1] & 15) << 4
    quarters = q.reshape(-1, 2, 4, 32) >> 4
    high = quarters[:, :, 0] | quarters[:, :, 1] << 2 | quarters[:, :, 2] << 4
    high = high | quarters[:, :, 3] << 6
    scales = scale.to(torch.int8).view(torch.uint8)
    return torch.cat([low.flatten(1), high.flatten(1), scales, _bytes(d)], dim=1)


def _inverse(scale: Tensor) -> Tensor:
    numbers = scale.float()
    return torch.where(numbers == 0, 0.0, 1 / numbers)


def _bytes(halves: Tensor) -> Tensor:
    return halves.contiguous().view(torch.uint8)


def _packed(q: Tensor, bits: int) -> list[Tensor]:
    """Fifth bits where there are any, then nibbles: the first 16 in the low halves."""
    numbers = q.to(torch.uint8)
    nibbles = (numbers[:, :16] & 15) | (numbers[:, 16:] & 15) << 4
    if bits == 4:
        return [nibbles]
    weights = 1 << torch.arange(8, dtype=torch.uint8)
    fifth = ((numbers >> 4).reshape(-1, 4, 8) * weights).sum(dim=2, dtype=torch.uint8)
    return [fifth, nibbles]


def _six_bits(scale: Tensor, minimum: Tensor) -> Tensor:
    """Eight scales and eight minima in twelve bytes, as `dequantise` reads them."""
    s, m = scale.to(torch.uint8), minimum.to(torch.uint8)
    first = s[:, :4] | s[:, 4:] >> 4 << 6
    second = m[:, :4] | m[:, 4:] >> 4 << 6
    third = (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4
    return torch.cat([first, second, third], dim=1)


ENCODERS: dict[WeightType, Callable[[Tensor], Tensor]] = {
    WeightType.F32: _float(torch.float32),
    WeightType.F16: _float(torch.float16),
    WeightType.BF16: _float(torch.bfloat16),
    WeightType.Q8_0: _q8_0,
    WeightType.Q6_K: _q6_k,
    WeightType.Q5_K: _k_with_minimum(31),
    WeightType.Q5_1: _with_minimum(31, 5),
    WeightType.Q5_0: _symmetric(16, 5),
    WeightType.Q4_K: _k_with_minimum(15),
    WeightType.Q4_1: _with_minimum(15, 4),
    WeightType.Q4_0: _symmetric(8, 4),
}
