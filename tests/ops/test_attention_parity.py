"""Native attention sees what the reference sees: any batch, any blocks, any KV type."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo import _native
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.kv_types import KvType
from octavo.ops.ops import AttentionSpec
from octavo.weights.checkpoint import TensorView, WeightType
from tests.support.op_twins import OpTwins

ISAS = _native.available_isas()

pytestmark = pytest.mark.parametrize("isa", ISAS)


@dataclass
class Sequences:
    """Several sequences that grow from step to step, their blocks scattered over the pool."""

    block_size: int
    lengths: list[int]
    tables: list[list[int]]

    @classmethod
    def make(cls, count: int, block_size: int, longest: int) -> Sequences:
        blocks = list(range(64))
        random.Random(block_size).shuffle(blocks)
        needed = -(-longest // block_size)
        tables = [[blocks.pop() for _ in range(needed)] for _ in range(count)]
        return cls(block_size, [0] * count, tables)

    def step(self, work: Sequence[int]) -> StepBatch:
        """So many further tokens of each sequence; none of those with 0."""
        rows: list[BatchRow] = []
        positions: list[int] = []
        for index, num_tokens in enumerate(work):
            if num_tokens == 0:
                continue
            context = self.lengths[index]
            table = tuple(self.tables[index])
            rows.append(BatchRow(len(positions), num_tokens, context, table))
            positions += range(context, context + num_tokens)
            self.lengths[index] += num_tokens
        count = len(positions)
        return StepBatch((0,) * count, tuple(positions), tuple(rows), (0,), self.block_size)


def attend(spec: AttentionSpec) -> Any:
    return lambda ops, _, q, k, v: ops.attention(q, k, v, spec)


def random_qkv(spec: AttentionSpec, num_tokens: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    widths = [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads]
    return [torch.randn(num_tokens, n * spec.head_dim, generator=generator) for n in widths]


def assert_parity(
    isa: str, spec: AttentionSpec, steps: Sequence[Sequence[int]], kv_type: KvType, block: int
) -> None:
    twins = OpTwins(
        isa=isa,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        block_size=block,
        kv_type=kv_type,
    )
    longest = max(sum(work) for work in zip(*steps, strict=True))
    sequences = Sequences.make(len(steps[0]), block, longest)
    for seed, work in enumerate(steps):
        inputs = random_qkv(spec, sum(work), seed)
        twins.assert_close(attend(spec), sequences.step(work), *inputs)


MIXED_STEPS = [(9, 1, 30), (1, 17, 0), (1, 1, 5), (8, 1, 1), (0, 1, 1)]
HEADS = [(1, 1), (4, 4), (4, 2), (9, 3), (6, 1)]


@pytest.mark.parametrize("kv_type", KvType)
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), HEADS)
@pytest.mark.parametrize("head_dim", [8, 24, 64])
def test_mixed_batches_of_prefill_and_decode(
    isa: str, head_dim: int, num_heads: int, num_kv_heads: int, kv_type: KvType
) -> None:
    """Rows at any offset within a block, in every grouping of heads and every KV type."""
    spec = AttentionSpec(0, num_heads, num_kv_heads, head_dim, head_dim**-0.5)
    assert_parity(isa, spec, MIXED_STEPS, kv_type, 8)


@pytest.mark.parametrize("soft_cap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 1, 7, 8, 23, 200])
@pytest.mark.parametrize("block", [8, 16, 32])
def test_windows_and_soft_caps_over_every_block_size(
    isa: str, block: int, window: int | None, soft_cap: float | None
) -> None:
    """Windows shorter than a block, of a block, over blocks, and longer than the sequence."""
    spec = AttentionSpec(0, 4, 2, 16, 0.3, window, soft_cap)
    assert_parity(isa, spec, MIXED_STEPS, KvType.BF16, block)


@pytest.mark.parametrize("window", [None, 23])
@pytest.mark.parametrize("block", [8, 32])
def test_slopes_make_near_keys_count_more(isa: str, block: int, window: int | None) -> None:
    """Heads that prefer what is near to different degrees, one of them not at all."""
    slopes = (0.5, 0.03125, 0.0, 2.0)
    spec = AttentionSpec(0, 4, 2, 16, 0.3, window, slopes=slopes)
    assert_parity(isa, spec, [(90, 1, 30), *MIXED_STEPS], KvType.INT8, block)


@pytest.mark.parametrize("window", [1, 8, 20, 64])
@pytest.mark.parametrize("block", [8, 32])
def test_tokens_see_no_chunk_but_their_own(isa: str, block: int, window: int) -> None:
    """Chunks that begin in the middle of a block and of a prompt's piece."""
    spec = AttentionSpec(0, 4, 2, 16, 0.3, window, is_chunked=True)
    assert_parity(isa, spec, [(90, 1, 30), *MIXED_STEPS], KvType.F32, block)


@pytest.mark.parametrize("kv_type", [KvType.F32, KvType.INT8, KvType.INT4])
@pytest.mark.parametrize("work", [[(9, 30), (1, 1)], [(300,), (1,)]])
def test_sinks_take_their_share_of_every_row(
    isa: str, work: list[tuple[int, ...]], kv_type: KvType
) -> None:
    """Above all scores, among them, and so far below that they count nothing."""
    sinks = torch.tensor([9.0, 0.3, -200.0, 1.0])
    view = TensorView("s", WeightType.F32, (4,), memoryview(sinks.numpy().tobytes()))
    twins = OpTwins(
        isa=isa,
        tensors={"s.weight": view},
        ask=lambda weights: weights.vector("s", 4),
        num_kv_heads=2,
        head_dim=16,
        kv_type=kv_type,
    )
    spec = AttentionSpec(0, 4, 2, 16, 0.3)
    sequences = Sequences.make(len(work[0]), 8, sum(max(step) for step in work))
    for seed, step in enumerate(work):
        inputs = random_qkv(spec, sum(step), seed)
        twins.assert_close(
            lambda ops, sinks, q, k, v: ops.attention(q, k, v, spec, sinks),
            sequences.step(step),
            *inputs,
        )


@pytest.mark.parametrize("window", [None, 96])
@pytest.mark.parametrize("head_dim", [256, 6, 2])
def test_long_sequences_and_unusual_head_sizes(isa: str, head_dim: int, window: int | None) -> None:
    """Enough keys that the work of one sequence is divided, with heads wide and odd."""
    spec = AttentionSpec(0, 4, 1, head_dim, head_dim**-0.5, window)
    assert_parity(isa, spec, [(300, 7), (1, 1), (33, 2), (1, 250), (1, 1)], KvType.F16, 32)


@pytest.mark.parametrize("window", [None, 1, 9, 65, 300])
@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 8), (4, 32), (5, 12)])
def test_tokens_that_are_not_causal_see_to_both_sides(
    isa: str, num_heads: int, head_dim: int, window: int | None
) -> None:
    """Sequences of one token, of less and of more than a chunk of keys, side by side."""
    spec = AttentionSpec(0, num_heads, num_heads, head_dim, head_dim**-0.5, window, is_causal=False)
    assert_parity(isa, spec, [(1, 30, 290)], KvType.F32, 16)


def test_bits_of_both_sides_do_not_depend_on_neighbours_or_threads(isa: str) -> None:
    """A sequence alone, and behind another one, on one thread or three."""
    spec = AttentionSpec(0, 4, 2, 32, 0.2, 90, is_causal=False)
    q, k, v = random_qkv(spec, 140, seed=1)
    other = random_qkv(spec, 60, seed=2)

    def outputs(num_threads: int, *, has_neighbour: bool) -> Tensor:
        twins = OpTwins(isa=isa, num_threads=num_threads, num_kv_heads=2, head_dim=32)
        batch = Sequences.make(2, 8, 140).step((60, 140) if has_neighbour else (0, 140))
        inputs = [
            torch.cat([its, own]) if has_neighbour else own
            for own, its in zip((q, k, v), other, strict=True)
        ]
        return twins.native(attend(spec), batch, *inputs)[-140:]

    alone = outputs(1, has_neighbour=False)

    assert torch.equal(alone, outputs(3, has_neighbour=False))
    assert torch.equal(alone, outputs(2, has_neighbour=True))


def test_scores_far_from_zero_do_not_overflow(isa: str) -> None:
    """The softmax subtracts the largest score first, also over keys that come in several pieces."""
    spec = AttentionSpec(0, 2, 1, 16, 40.0)
    assert_parity(isa, spec, [(150,), (1,), (20,)], KvType.F32, 8)


@pytest.mark.parametrize("kv_type", KvType)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-6, 3e-3, 20.0, 500.0, 7e4])
def test_keys_and_values_of_any_size_are_rounded_as_defined(
    isa: str, size: float, kv_type: KvType
) -> None:
    """Zeros, numbers below the smallest, and numbers beyond the largest of 8-bit floats."""
    if kv_type is KvType.F16 and size > 1e4:
        pytest.skip("float16 becomes infinite")
    spec = AttentionSpec(0, 2, 1, 24, 1e-3 / max(size, 1.0))
    q, k, v = random_qkv(spec, 40, seed=7)
    k, v = size * k, size * v
    k[3], v[5] = -k[3].abs(), v[5].abs()  # the farthest number is of one sign
    twins = OpTwins(isa=isa, head_dim=24, kv_type=kv_type)
    batch = Sequences.make(1, 8, 40).step([40])

    twins.assert_close(attend(spec), batch, q, k, v, rtol=2e-5, atol=1e-6 * size)


@pytest.mark.parametrize(("kv_type", "limit"), [(KvType.INT8, 0.012), (KvType.INT4, 0.2)])
@pytest.mark.parametrize("head_dim", [64, 96])
def test_dimensions_that_stand_out_do_not_coarsen_the_others(
    isa: str, head_dim: int, kv_type: KvType, limit: float
) -> None:
    """Keys and values with two numbers twenty times as large as the rest, as models have them."""
    spec = AttentionSpec(0, 2, 1, head_dim, head_dim**-0.5)
    q, k, v = random_qkv(spec, 40, seed=3)
    q[:, 5] = q[:, head_dim + 5] = 0.0  # large keys that no query asks for
    k[:, 5] *= 20
    v[:, 7] *= 20

    def outputs(kv_type: KvType) -> Tensor:
        twins = OpTwins(isa=isa, head_dim=head_dim, kv_type=kv_type)
        return twins.native(attend(spec), Sequences.make(1, 8, 40).step([40]), q, k, v)

    difference = outputs(kv_type) - outputs(KvType.F32)
    ordinary = difference.reshape(-1, head_dim).index_select(1, torch.arange(8, head_dim))
    assert float(ordinary.square().mean().sqrt()) < limit


@pytest.mark.parametrize("kv_type", KvType)
def test_bits_do_not_depend_on_batch_chunks_or_threads(isa: str, kv_type: KvType) -> None:
    """A sequence alone in one piece, in chunks, among others, on one thread or three."""
    spec = AttentionSpec(0, 4, 2, 32, 0.2, 90)
    q, k, v = random_qkv(spec, 140, seed=1)
    other = random_qkv(spec, 140, seed=2)

    def outputs(steps: list[tuple[int, int]], num_threads: int) -> Tensor:
        twins = OpTwins(
            isa=isa, num_threads=num_threads, num_kv_heads=2, head_dim=32, kv_type=kv_type
        )
        sequences = Sequences.make(2, 8, 140)
        parts: list[Tensor] = []
        for ours, theirs in steps:
            first, second = sequences.lengths
            batch = sequences.step((ours, theirs))
            inputs = [
                torch.cat([mine[first : first + ours], its[second : second + theirs]])
                for mine, its in zip((q, k, v), other, strict=True)
            ]
            parts.append(twins.native(attend(spec), batch, *inputs)[:ours])
        return torch.cat(parts)

    alone = outputs([(140, 0)], 1)

    assert torch.equal(alone, outputs([(140, 0)], 3))
    assert torch.equal(alone, outputs([(70, 1), (1, 60), (69, 9)], 2))
    assert torch.equal(alone, outputs([(1, 1)] * 140, 2))
