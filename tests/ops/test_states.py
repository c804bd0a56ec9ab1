"""Ops of layers that carry a state: against loops in double precision, however sequences are cut.

The blocks are small and of an odd size, so that a part begins inside a block and ends in another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from octavo.backends.torch.kv_cache import TorchKvCache
from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.weights import LinearHandle, Stack
from octavo.config.model_facts import StateFacts, StateKind
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.kv_types import KvType
from octavo.ops.ops import StateSpec
from octavo.ops.weights import Linear, StateSpaceWeights, Vector

CPU = torch.device("cpu")
LAYER, NUM_LAYERS = 1, 2
HEADS, COLUMNS, SIZE, GROUPS, WIDTH = 4, 3, 5, 2, 3
LENGTH = 11
# Tokens of the first and of the second sequence in each step.
CUTS = ([(11, 11)], [(1, 2), (4, 0), (1, 5), (5, 4)], [(1, 1)] * 11)


def facts(kind: StateKind = "mamba2") -> StateFacts:
    return StateFacts(
        kind=kind,
        layers=tuple(range(NUM_LAYERS)),
        num_heads=HEADS,
        head_dim=COLUMNS,
        state_size=SIZE,
        num_groups=GROUPS,
        conv_width=WIDTH,
    )


SPEC = StateSpec(LAYER, HEADS, COLUMNS, SIZE, GROUPS, (0.0, 1.0))


class Memory:
    """A cache whose blocks are full of nonsense, and two sequences in it."""

    def __init__(self, **tensors: Tensor) -> None:
        state = facts()
        self.cache = TorchKvCache(
            groups=[[0]],
            num_blocks=200,
            block_size=1,
            num_kv_heads=1,
            head_dim=21,  # blocks of 42 bytes
            type=KvType.FP8_E4M3,
            device=CPU,
            state=state,
        )
        assert self.cache.states is not None
        self.cache._blocks.random_(256)
        order = torch.randperm(200, generator=torch.Generator().manual_seed(3)).tolist()
        num_pieces = -(-state.num_bytes // 42)
        self.tables = [tuple(order[:num_pieces]), tuple(order[num_pieces : 2 * num_pieces])]
        self.tensors = {Stack((name,)): values for name, values in tensors.items()}

    def ops(self, done: Sequence[int], num_tokens: Sequence[int]) -> TorchOps:
        """A step of the sequences, which have computed so many tokens."""
        rows, first = [], 0
        for table, begin, count in zip(self.tables, done, num_tokens, strict=True):
            if count:
                rows.append(BatchRow(first, count, begin, table))
                first += count
        batch = StepBatch((0,) * first, (0,) * first, tuple(rows), (), 1)
        return TorchOps(self.tensors, self.cache, batch, CPU, [(), tuple(rows)])


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def in_steps(
    memory: Memory,
    cut: Sequence[tuple[int, int]],
    run: Callable[..., Tensor],
    inputs: Sequence[tuple[Tensor, Tensor]],
) -> list[Tensor]:
    """What both sequences get."""
    outputs: list[list[Tensor]] = [[], []]
    done = [0, 0]
    for counts in cut:
        spans = [slice(begin, begin + n) for begin, n in zip(done, counts, strict=True)]
        given = [torch.cat([one[place][spans[place]] for place in (0, 1)]) for one in inputs]
        result = run(memory.ops(done, counts), *given)
        for place, part in enumerate(result.split(counts)):
            outputs[place].append(part)
            done[place] += counts[place]
    return [torch.cat(parts) for parts in outputs]


def two(width: int, seed: int) -> tuple[Tensor, Tensor]:
    return random(LENGTH, width, seed=seed), random(LENGTH, width, seed=seed + 1)


def vector(name: str, size: int) -> Vector:
    return Vector(size, Stack((name,)))


@pytest.mark.parametrize("cut", CUTS)
def test_a_short_convolution_sees_the_tokens_before_the_step(cut: list[tuple[int, int]]) -> None:
    channels = facts().num_channels
    kernel, bias = random(channels, WIDTH, seed=1), random(channels, seed=2)
    memory = Memory(kernel=kernel, bias=bias)
    weight = Linear(
        channels, WIDTH, (channels,), LinearHandle(Stack(("kernel",)), Stack(("bias",)))
    )
    x = two(channels, 5)

    found = in_steps(memory, cut, lambda ops, x: ops.short_conv(x, weight, LAYER), [x])

    for own, result in zip(x, found, strict=True):
        for token in range(len(result)):
            expected = bias.double()
            for back in range(min(WIDTH, token + 1)):
                expected = expected + own[token - back].double() * kernel[:, WIDTH - 1 - back]
            torch.testing.assert_close(result[token].double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("per_number", [False, True])
def test_a_state_space_is_its_recurrence_however_a_sequence_is_cut(
    per_number: bool,
) -> None:
    """With one decay for a head, or one for each number that it keeps."""
    decay = 0.3 * random(HEADS * (SIZE if per_number else 1), seed=1)
    bias, skip = random(HEADS, seed=2), random(HEADS, seed=3)
    weights = StateSpaceWeights(
        vector("decay", len(decay)), vector("bias", HEADS), vector("skip", HEADS)
    )
    x, steps = two(HEADS * COLUMNS, 5), two(HEADS, 7)
    inputs, outputs = two(GROUPS * SIZE, 9), two(GROUPS * SIZE, 11)
    found = []
    for cut in CUTS:
        memory = Memory(decay=decay, bias=bias, skip=skip)
        found.append(
            in_steps(
                memory,
                cut,
                lambda ops, x, t, b, c: ops.state_space(x, t, b, c, weights, SPEC),
                [x, steps, inputs, outputs],
            )
        )

    for result in found[1:]:
        torch.testing.assert_close(result, found[0], atol=1e-5, rtol=0)
    for place, result in enumerate(found[1]):
        state = torch.zeros(HEADS, COLUMNS, SIZE, dtype=torch.float64)
        for token in range(len(result)):
            own = [one[place][token].double() for one in (x, steps, inputs, outputs)]
            heads = own[0].reshape(HEADS, COLUMNS)
            for head in range(HEADS):
                time = torch.nn.functional.softplus(own[1][head] + bias[head]).clamp(0.0, 1.0)
                rates = decay.reshape(HEADS, -1)[head].double().exp()
                group = slice(head // 2 * SIZE, (head // 2 + 1) * SIZE)
                state[head] = state[head] * (-rates * time).exp()
                state[head] += time * torch.outer(heads[head], own[2][group])
                expected = state[head] @ own[3][group] + skip[head] * heads[head]
                got = result[token].reshape(HEADS, COLUMNS)[head].double()
                torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_the_delta_rule_is_its_recurrence_however_a_sequence_is_cut() -> None:
    decay, bias = 0.3 * random(HEADS, seed=1), random(HEADS, seed=2)
    weights = StateSpaceWeights(vector("decay", HEADS), vector("bias", HEADS))
    q, k, v = two(GROUPS * SIZE, 5), two(GROUPS * SIZE, 7), two(HEADS * COLUMNS, 9)
    rates, steps = two(HEADS, 11), two(HEADS, 13)
    found = [
        in_steps(
            Memory(decay=decay, bias=bias),
            cut,
            lambda ops, q, k, v, r, t: ops.delta_rule(q, k, v, (r, t), weights, SPEC),
            [q, k, v, rates, steps],
        )
        for cut in CUTS
    ]

    for result in found[1:]:
        torch.testing.assert_close(result, found[0], atol=1e-5, rtol=0)
    for place, result in enumerate(found[1]):
        state = torch.zeros(HEADS, COLUMNS, SIZE, dtype=torch.float64)
        for token in range(len(result)):
            own = [one[place][token].double() for one in (q, k, v, rates, steps)]
            for head in range(HEADS):
                group = slice(head // 2 * SIZE, (head // 2 + 1) * SIZE)
                query, key = (one[group] / one[group].norm() for one in own[:2])
                time = torch.nn.functional.softplus(own[4][head] + bias[head])
                state[head] = state[head] * (-decay[head].double().exp() * time).exp()
                value = own[2].reshape(HEADS, COLUMNS)[head]
                missing = own[3][head].sigmoid() * (value - state[head] @ key)
                state[head] += torch.outer(missing, key)
                expected = state[head] @ query / SIZE**0.5
                got = result[token].reshape(HEADS, COLUMNS)[head].double()
                torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_a_norm_of_groups_norms_each_part_of_the_row() -> None:
    weight, x = random(12, seed=1), random(4, 12, seed=2)
    ops = Memory(weight=weight).ops([0, 0], [1, 1])

    found = ops.group_norm(x, vector("weight", 12), 3, 1e-5)

    parts = x.reshape(4, 3, 4).double()
    expected = parts / (parts.square().mean(dim=2, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(found.double(), expected.reshape(4, 12) * weight, atol=1e-6, rtol=0)
