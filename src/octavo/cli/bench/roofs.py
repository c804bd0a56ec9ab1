"""Roofs: what this machine can do at best, measured in a moment.

Owns: the probes, and the work of a step of a model, so that a speed becomes a share of a roof.
Does not know: engines or requests.

- Read bandwidth: `memchr` of the C library over memory that is too large for most caches, one
  thread for each core, without the GIL. Nothing but loads and compares.
- Products: the fastest products of our own kernels, float32 by float32, bfloat16 by bfloat16
  and int8 by 8-bit weights, on matrices that stay in the cache. A processor may be able to do
  more; ours do not.
"""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass

from octavo._native import Rounding, ThreadPool, find_kernels
from octavo.cli.bench.products import Product, product_seconds
from octavo.config.model_facts import ModelFacts
from octavo.foundation import env
from octavo.weights.checkpoint import WeightType

_READ_BYTES = 128 << 20  # of each thread
_REPEATS = 4
_PROBE_ROWS, _PROBE_COLS, _PROBE_TOKENS, _PROBE_COPIES = 1024, 1024, 128, 2


@dataclass(frozen=True, slots=True)
class Roofs:
    """Rates of the whole machine."""

    read_gb_s: float
    fp32_gop_s: float  # a multiplication and an addition are two
    bf16_gop_s: float
    int8_gop_s: float

    def line(self) -> str:
        """For people."""
        return (
            f"roofs: read {self.read_gb_s:.1f} GB/s, products float32 {self.fp32_gop_s:.0f} Gop/s, "
            f"bfloat16 {self.bf16_gop_s:.0f} Gop/s, int8 {self.int8_gop_s:.0f} Gop/s"
        )


def measure_roofs(num_threads: int) -> Roofs:
    """Takes about a second."""
    return Roofs(
        read_gb_s=read_bandwidth(num_threads),
        fp32_gop_s=_product_rate(num_threads, WeightType.F32, None),
        bf16_gop_s=_product_rate(num_threads, WeightType.BF16, Rounding.BFLOAT16),
        int8_gop_s=_product_rate(num_threads, WeightType.Q8_0, Rounding.INT8),
    )


def read_bandwidth(num_threads: int) -> float:
    """GB/s of plain loads, all threads together: the best of a few rounds."""
    find = ctypes.CDLL(None).memchr
    find.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    find.restype = ctypes.c_void_p
    buffers = [bytearray(b"\1") * _READ_BYTES for _ in range(num_threads)]
    places = [ctypes.addressof(ctypes.c_char.from_buffer(buffer)) for buffer in buffers]
    best_s = float("inf")
    for _ in range(_REPEATS):
        readers = [
            threading.Thread(target=find, args=(place, 0, _READ_BYTES)) for place in places[1:]
        ]
        begin_s = time.perf_counter()
        for reader in readers:
            reader.start()
        find(places[0], 0, _READ_BYTES)
        for reader in readers:
            reader.join()
        best_s = min(best_s, time.perf_counter() - begin_s)
    return num_threads * _READ_BYTES / best_s / 1e9


def step_ops(facts: ModelFacts, num_tokens: int, num_logit_rows: int) -> float:
    """Multiplications and additions in the products of a step. Attention is left out."""
    q_width = facts.num_heads * facts.head_dim
    kv_width = 2 * facts.num_kv_heads * facts.head_dim
    attention = facts.hidden_size * (2 * q_width + kv_width)
    num_matrices = 3 if facts.gated_mlp else 2
    layer = attention + num_matrices * facts.hidden_size * facts.intermediate_size
    head = facts.hidden_size * facts.vocab_size
    return 2.0 * (num_tokens * facts.num_layers * layer + num_logit_rows * head)


def _product_rate(num_threads: int, weight: WeightType, rounding: Rounding | None) -> float:
    product = Product(weight, _PROBE_ROWS, _PROBE_COLS, _PROBE_TOKENS, rounding)
    kernels = find_kernels(env.value(env.CPU_ISA) or "")
    threads = ThreadPool(num_threads, False)
    seconds = product_seconds(product, kernels, threads, copies=_PROBE_COPIES, num_runs=5)
    return product.num_ops / min(seconds) / 1e9
