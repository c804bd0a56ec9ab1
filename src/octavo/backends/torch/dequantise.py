"""Every stored number format as float32: plain PyTorch, written from the GGUF format description.

Our own types, made of the tensors of quantised checkpoints, are described in csrc/packing.hpp.
Owns the meaning of the bytes of a tensor. Does not know which tensor it is or what it is used for.
A quantised row is cut into blocks; a decoder below takes blocks as bytes,
[num_blocks, block_bytes], and gives their elements, [num_blocks, block_elements].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.quant.bitsandbytes import NF4_NUMBERS

_BLOCKS_AT_ONCE = 1 << 16  # bounds the intermediate tensors of a large table
# What a code of four bits stands for.
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)


def dequantise(view: TensorView) -> Tensor:
    """The tensor as float32 of `view.shape` on the CPU, rows in Hugging Face's order."""
    stored = torch.frombuffer(bytearray(view.rows_in_order()), dtype=torch.uint8)
    blocks = stored.reshape(-1, view.type.block_bytes)
    decode = _DECODERS[view.type]
    parts = [decode(part) for part in torch.split(blocks, _BLOCKS_AT_ONCE)]
    elements = torch.cat(parts).reshape(view.shape)
    return _halves_order(elements, view.interleaved_heads)


def _halves_order(rows: Tensor, num_heads: int) -> Tensor:
    """Rows stored pairwise per head (x0 y0 x1 y1 ...) in the order x0 x1 ... y0 y1 ..."""
    if num_heads == 0:
        return rows
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)


def _float32(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float32)


def _float16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float16).float()


def _bfloat16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.bfloat16).float()


def _q4_0(blocks: Tensor) -> Tensor:
    """`d * (q - 8)`; half d, 16 bytes of nibbles."""
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]) - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    """`d * q + m`; half d, half m, 16 bytes of nibbles."""
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    """`d * (q - 16)`; half d, 32 fifth bits, 16 bytes of nibbles."""
    return _half(blocks, 0) * (_nibbles(blocks[:, 6:]) + 16 * _bits(blocks[:, 2:6]) - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    """`d * q + m`; half d, half m, 32 fifth bits, 16 bytes of nibbles."""
    q = _nibbles(blocks[:, 8:]) + 16 * _bits(blocks[:, 4:8])
    return _half(blocks, 0) * q + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    """`d * q`; half d, 32 signed bytes."""
    return _half(blocks, 0) * _signed(blocks[:, 2:])


def _q4_k(blocks: Tensor) -> Tensor:
    """Eight groups of 32: `d * scale * q - dmin * min`; halves d and dmin, 12 bytes of scales."""
    scale, minimum = _six_bit_scales(blocks[:, 4:16])
    q = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _scaled_groups(blocks, scale, minimum, q)


def _q5_k(blocks: Tensor) -> Tensor:
    """As Q4_K with a fifth bit: bit g of byte i belongs to element i of group g."""
    scale, minimum = _six_bit_scales(blocks[:, 4:16])
    fifth = _bits(blocks[:, 16:48]).reshape(-1, 32, 8).transpose(1, 2)
    q = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) + 16 * fifth
    return _scaled_groups(blocks, scale, minimum, q)


def _q6_k(blocks: Tensor) -> Tensor:
    """Sixteen groups of 16: `d * scale * (q - 32)`.

    128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, half d. Each half of the
    block (128 elements) takes 64 bytes of nibbles and 32 bytes of bit pairs, pair p of byte i going
    to element 32 p + i.
    """
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64))
    pairs = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> _shifts((0, 2, 4, 6), blocks)
    high = (pairs & 3).reshape(-1, 2, 128)
    q = (low + 16 * high - 32).reshape(-1, 16, 16)
    scale = _half(blocks, 208) * _signed(blocks[:, 192:208])
    return (scale[:, :, None] * q).reshape(-1, 256)


def _q2_k(blocks: Tensor) -> Tensor:
    """Sixteen groups of 16: `d * scale * q - dmin * min`.

    16 bytes of scales (low halves) and minima, 64 bytes of bit pairs, halves d and dmin. Each half
    of the block takes 32 bytes, pair p of byte i going to element 32 p + i.
    """
    numbers = blocks[:, :16]
    scale = _half(blocks, 80) * (numbers & 15).float()
    minimum = _half(blocks, 82) * (numbers >> 4).float()
    q = _bit_pairs(blocks[:, 16:80]).reshape(-1, 16, 16)
    return (scale[:, :, None] * q - minimum[:, :, None]).reshape(-1, 256)


def _q3_k(blocks: Tensor) -> Tensor:
    """Sixteen groups of 16: `d * (scale - 32) * (q - 4)`.

    32 bytes of third bits as the fifth ones of Q5_K, 64 bytes of bit pairs as Q2_K, 12 bytes of
    scales of six bits, half d. The low four bits of the scales are the low, then the high halves of
    eight bytes; pair p of byte i of the last four is the upper part of scale 4 p + i.
    """
    third = _bits(blocks[:, :32]).reshape(-1, 32, 8).transpose(1, 2).reshape(-1, 256)
    q = _bit_pairs(blocks[:, 32:96]) + 4 * third - 4
    low = _nibbles(blocks[:, 96:104])
    high = (blocks[:, None, 104:108] >> _shifts((0, 2, 4, 6), blocks)[0]) & 3
    scale = _half(blocks, 108) * (low + 16 * high.reshape(-1, 16) - 32)
    return (scale[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def _iq4_nl(blocks: Tensor) -> Tensor:
    """`d * number of the code`; half d, 16 bytes of nibbles."""
    return _half(blocks, 0) * _numbers(_IQ4, _nibbles(blocks[:, 2:]))


def _iq4_xs(blocks: Tensor) -> Tensor:
    """Eight groups of 32: `d * (scale - 32) * number of the code`.

    Half d, 16 bits with the upper bit pairs of the scales, four bytes with their lower halves, 16
    bytes of nibbles for each group.
    """
    low = torch.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], dim=2).reshape(-1, 8)
    high = (blocks[:, 2:4, None] >> _shifts((0, 2, 4, 6), blocks)[0, :, :, 0]) & 3
    scale = _half(blocks, 0) * (low.float() + 16 * high.reshape(-1, 8) - 32)
    q = _numbers(_IQ4, _nibbles(blocks[:, 8:].reshape(-1, 8, 16)))
    return (scale[:, :, None] * q).reshape(-1, 256)


def _mxfp4(blocks: Tensor) -> Tensor:
    """`2^(e - 127) * number of the code`; byte e, 16 bytes of nibbles. e = 0 counts as zero."""
    exponent = blocks[:, :1].int()
    return (exponent << 23).view(torch.float32) * _numbers(_FP4, _nibbles(blocks[:, 1:]))


def _int4(blocks: Tensor) -> Tensor:
    """`d * (q - zero)`; float d, byte zero, 3 of padding, nibbles of each 32 elements."""
    q = _nibbles(blocks[:, 8:].reshape(len(blocks), -1, 16)).flatten(1)
    return _float(blocks, 0) * (q - blocks[:, 4:5].float())


def _int8(blocks: Tensor) -> Tensor:
    """`d * (q - zero)`; float d, signed byte zero, 3 of padding, signed bytes."""
    return _float(blocks, 0) * (_signed(blocks[:, 8:]) - _signed(blocks[:, 4:5]))


def _int8_k(blocks: Tensor) -> Tensor:
    """Sixteen groups of 16: `d * scale * q`; float d, 16 signed scales, signed bytes."""
    scale = _float(blocks, 0) * _signed(blocks[:, 4:20])
    return (scale[:, :, None] * _signed(blocks[:, 20:]).reshape(-1, 16, 16)).reshape(-1, 256)


def _fp8(blocks: Tensor) -> Tensor:
    """`d * number`; float d, bytes of E4M3."""
    return _float(blocks, 0) * blocks[:, 4:].contiguous().view(torch.float8_e4m3fn).float()


def _fp4_16(blocks: Tensor) -> Tensor:
    """`d * number of the code`; two floats d for 16 elements each, 16 bytes of nibbles."""
    q = _numbers(_FP4, _nibbles(blocks[:, 8:])).reshape(-1, 2, 16)
    d = torch.cat([_float(blocks, 0), _float(blocks, 4)], dim=1)
    return (d[:, :, None] * q).reshape(-1, 32)


def _nf4(blocks: Tensor) -> Tensor:
    """`d * number of the code`; float d, 16 bytes of nibbles."""
    return _float(blocks, 0) * _numbers(NF4_NUMBERS, _nibbles(blocks[:, 4:]))


def _scaled_groups(blocks: Tensor, scale: Tensor, minimum: Tensor, q: Tensor) -> Tensor:
    scale, minimum = _half(blocks, 0) * scale, _half(blocks, 2) * minimum  # [num_blocks, 8]
    return (scale[:, :, None] * q - minimum[:, :, None]).reshape(-1, 256)


def _six_bit_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of six bits each from twelve bytes.

    Bytes 0-3 and 4-7 hold the first four scales and minima in their low six bits; bytes 8-11 hold
    the low four bits of the last four (scale, then minimum), whose upper two bits are the top bits
    of bytes 0-7.
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = torch.cat([first & 63, (third & 15) | (first >> 6 << 4)], dim=1)
    minimum = torch.cat([second & 63, (third >> 4) | (second >> 6 << 4)], dim=1)
    return scale.float(), minimum.float()


def _half(blocks: Tensor, offset: int) -> Tensor:
    """The float16 at a byte offset of each block: [num_blocks, 1]."""
    return blocks[:, offset : offset + 2].contiguous().view(torch.float16).float()


def _float(blocks: Tensor, offset: int) -> Tensor:
    """The float32 at a byte offset of each block: [num_blocks, 1]."""
    return blocks[:, offset : offset + 4].contiguous().view(torch.float32)


def _numbers(table: Sequence[float], codes: Tensor) -> Tensor:
    """The number of each code."""
    return torch.tensor(table, dtype=torch.float32, device=codes.device)[codes.long()]


def _bit_pairs(packed: Tensor) -> Tensor:
    """Of each 32 bytes the lowest two bits, then the next: [num_blocks, 4 * bytes]."""
    pairs = packed.reshape(-1, packed.shape[1] // 32, 1, 32) >> _shifts((0, 2, 4, 6), packed)
    return (pairs & 3).float().flatten(1)


def _signed(packed: Tensor) -> Tensor:
    return packed.contiguous().view(torch.int8).float()


def _nibbles(packed: Tensor) -> Tensor:
    """The low halves of all bytes of the last dimension, then the high halves."""
    return torch.cat([packed & 15, packed >> 4], dim=-1).float()


def _bits(packed: Tensor) -> Tensor:
    """All bits, lowest first: [num_blocks, 8 * bytes]."""
    bits = packed[:, :, None] >> _shifts(range(8), packed).reshape(1, 1, 8)
    return (bits & 1).float().flatten(1)


def _shifts(shifts: range | tuple[int, ...], like: Tensor) -> Tensor:
    """Shift counts, shaped to follow a dimension of size one: [1, 1, len, 1]."""
    return torch.tensor(list(shifts), dtype=torch.uint8, device=like.device).reshape(1, 1, -1, 1)


_DECODERS: dict[WeightType, Callable[[Tensor], Tensor]] = {
    WeightType.F32: _float32,
    WeightType.F16: _float16,
    WeightType.BF16: _bfloat16,
    WeightType.Q4_0: _q4_0,
    WeightType.Q4_1: _q4_1,
    WeightType.Q5_0: _q5_0,
    WeightType.Q5_1: _q5_1,
    WeightType.Q8_0: _q8_0,
    WeightType.Q4_K: _q4_k,
    WeightType.Q5_K: _q5_k,
    WeightType.Q6_K: _q6_k,
    WeightType.Q2_K: _q2_k,
    WeightType.Q3_K: _q3_k,
    WeightType.IQ4_NL: _iq4_nl,
    WeightType.IQ4_XS: _iq4_xs,
    WeightType.MXFP4: _mxfp4,
    WeightType.INT4_32: _int4,
    WeightType.INT4_128: _int4,
    WeightType.INT8_32: _int8,
    WeightType.INT8_128: _int8,
    WeightType.INT8_K: _int8_k,
    WeightType.FP8_32: _fp8,
    WeightType.FP8_128: _fp8,
    WeightType.FP4_16: _fp4_16,
    WeightType.NF4_32: _nf4,
}
