"""How keys and values are stored: the types, their names, and the bytes that they take.

`int8` and `int4` keep a float16 scale for each token and head, found when the token is written:
max |x| / 127, or the number of largest magnitude / -8, and the nearest integers of x / scale. Both
are turned by a Hadamard matrix before. The 8-bit floats are those of OCP ("OCP 8-bit Floating Point
Specification", 2023) without a scale; numbers too large for them become the largest one.
"""

from __future__ import annotations

from enum import IntEnum


class KvType(IntEnum):
    """Values are GGML's type numbers where it has them."""

    F32 = 0
    F16 = 1
    INT8 = 24
    BF16 = 30
    FP8_E4M3 = 200
    FP8_E5M2 = 201
    INT4 = 202

    @property
    def has_scales(self) -> bool:
        """Whether each token and head has a scale."""
        return self in (KvType.INT8, KvType.INT4)

    @property
    def is_rotated(self) -> bool:
        """Whether keys and values are turned by a Hadamard matrix before they are rounded.

        It spreads numbers that stand out over a whole head (Ashkboos et al. 2024, "QuaRot").
        Queries are turned alike, which leaves scores as they are, and outputs are turned back.
        """
        return self.has_scales

    @property
    def layout(self) -> str:
        """What the bytes of a block depend on, for those that outlive the process."""
        return f"{self.name} turned" if self.is_rotated else self.name

    def row_bytes(self, head_dim: int) -> int:
        """Bytes of one key or value of one head, its scale included."""
        return head_dim * _BITS[self] // 8 + (2 if self.has_scales else 0)


_BITS = {
    KvType.F32: 32,
    KvType.F16: 16,
    KvType.BF16: 16,
    KvType.INT8: 8,
    KvType.FP8_E4M3: 8,
    KvType.FP8_E5M2: 8,
    KvType.INT4: 4,
}
KV_TYPES = {  # by the names that --kv-cache-dtype takes
    "auto": KvType.BF16,
    "float32": KvType.F32,
    "float16": KvType.F16,
    "bfloat16": KvType.BF16,
    "int8": KvType.INT8,
    "int8_per_token_head": KvType.INT8,
    "fp8": KvType.FP8_E4M3,
    "fp8_e4m3": KvType.FP8_E4M3,
    "fp8_e5m2": KvType.FP8_E5M2,
    "int4": KvType.INT4,
    "int4_per_token_head": KvType.INT4,
}


def kv_type(name: str, *, is_causal: bool = True) -> KvType:
    """The type that a value of --kv-cache-dtype means for a model.

    An encoder reads its entries once, in the step that wrote them: it keeps them exact unless told
    otherwise.
    """
    return KvType.F32 if name == "auto" and not is_causal else KV_TYPES[name]
