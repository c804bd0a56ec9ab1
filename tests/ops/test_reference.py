"""The reference ops, against their sentences written as loops in double precision."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from octavo.backends.torch.kv_cache import TorchKvCache
from octavo.backends.torch.kv_codec import decode, encode, rotate
from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.weights import LinearHandle, Stack
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.kv_types import KvType
from octavo.ops.ops import AttentionSpec
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Linear, Vector

CPU = torch.device("cpu")
BLOCK_SIZE = 4
TABLE = Stack(("table.weight",))
BIAS = Stack(("table.bias",))


def make_cache(type: KvType = KvType.F32, *, num_kv_heads: int = 2) -> TorchKvCache:
    return TorchKvCache(
        groups=[[0]],
        num_blocks=16,
        block_size=BLOCK_SIZE,
        num_kv_heads=num_kv_heads,
        head_dim=8,
        type=type,
        device=CPU,
    )


def make_ops(batch: StepBatch, cache: TorchKvCache | None = None, **tensors: Tensor) -> TorchOps:
    stacks = {
        TABLE: tensors.get("matrix", torch.empty(0)),
        BIAS: tensors.get("bias", torch.empty(0)),
    }
    return TorchOps(stacks, cache or make_cache(), batch, CPU)


def one_row(
    num_tokens: int, context_len: int = 0, blocks: tuple[int, ...] = (5, 3, 9, 0)
) -> StepBatch:
    positions = tuple(range(context_len, context_len + num_tokens))
    row = BatchRow(0, num_tokens, context_len, blocks)
    return StepBatch((0,) * num_tokens, positions, (row,), (num_tokens - 1,), BLOCK_SIZE)


def attend_by_loops(
    q: Tensor, keys: Tensor, values: Tensor, first: int, spec: AttentionSpec
) -> Tensor:
    """q: [queries, heads, head_dim], at places first, first + 1 and so on.

    keys, values: [places, kv_heads, head_dim].
    """
    group = spec.num_heads // spec.num_kv_heads
    outputs = torch.zeros(q.shape, dtype=torch.float64)
    for query in range(q.shape[0]):
        place = first + query
        oldest = 0 if spec.window is None else max(0, place - spec.window + 1)
        visible = range(oldest, place + 1)
        for head in range(spec.num_heads):
            vector = q[query, head].double()
            scores = [float(vector @ keys[k, head // group].double()) * spec.scale for k in visible]
            if spec.soft_cap is not None:
                scores = [spec.soft_cap * math.tanh(s / spec.soft_cap) for s in scores]
            total = sum(math.exp(score) for score in scores)
            for key, score in zip(visible, scores, strict=True):
                share = math.exp(score) / total
                outputs[query, head] += share * values[key, head // group].double()
    return outputs


@pytest.mark.parametrize("chunks", [[13], [1] * 13, [5, 6, 2]])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("window", "soft_cap"), [(None, None), (1, None), (4, None), (100, 3.0)])
def test_attention_sees_each_earlier_key_of_its_window_once(
    window: int | None, soft_cap: float | None, num_kv_heads: int, chunks: list[int]
) -> None:
    """However the sequence was cut into steps, and wherever its blocks lie."""
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(13, 4, 8, generator=generator)
    k, v = torch.randn(2, 13, num_kv_heads, 8, generator=generator)
    spec = AttentionSpec(0, 4, num_kv_heads, 8, 0.4, window, soft_cap)
    cache = make_cache(num_kv_heads=num_kv_heads)

    outputs: list[Tensor] = []
    for chunk in chunks:
        done = sum(len(output) for output in outputs)
        part = slice(done, done + chunk)
        ops = make_ops(one_row(chunk, done), cache)
        outputs.append(
            ops.attention(q[part].flatten(1), k[part].flatten(1), v[part].flatten(1), spec)
        )

    expected = attend_by_loops(q, k, v, 0, spec).flatten(1)
    torch.testing.assert_close(expected.float(), torch.cat(outputs), rtol=1e-5, atol=1e-6)


def test_a_row_reads_what_another_row_of_the_same_step_writes_into_a_shared_block() -> None:
    """Two identical prompts admitted in one step share the blocks that the first of them fills."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = torch.randn(3, 6, 16, generator=generator)
    spec = AttentionSpec(0, 2, 2, 8, 0.3)
    later = BatchRow(0, 1, 4, (7, 8))  # token 4 of a sequence whose first block is the other row's
    first = BatchRow(1, 5, 0, (7, 2))
    batch = StepBatch((0,) * 6, (4, 0, 1, 2, 3, 4), (later, first), (0,), BLOCK_SIZE)

    out = make_ops(batch).attention(q, k, v, spec)

    keys = torch.cat([k[1:5], k[:1]]).reshape(5, 2, 8)
    values = torch.cat([v[1:5], v[:1]]).reshape(5, 2, 8)
    expected = attend_by_loops(q[:1].reshape(1, 2, 8), keys, values, 4, spec).flatten(1)
    torch.testing.assert_close(expected.float(), out[:1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type", [type for type in KvType if type is not KvType.F32])
def test_keys_and_values_are_rounded_to_the_type_of_the_cache_before_anyone_reads_them(
    type: KvType,
) -> None:
    """Also those of this very step, so that a prompt in one piece equals one in chunks."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, 6, 16, generator=generator)
    spec = AttentionSpec(0, 2, 2, 8, 0.3)

    def turned(x: Tensor) -> Tensor:
        heads = x.reshape(6, 2, 8)
        return rotate(heads) if type.is_rotated else heads

    by_head = [decode(encode(turned(x), type), type).flatten(1) for x in (k, v)]
    rounded = make_ops(one_row(6)).attention(turned(q).flatten(1), *by_head, spec)
    rounded = turned(rounded).flatten(1)

    assert torch.equal(rounded, make_ops(one_row(6), make_cache(type)).attention(q, k, v, spec))
    assert not torch.equal(rounded, make_ops(one_row(6)).attention(q, k, v, spec))


def test_copied_blocks_hold_the_same_keys_and_values() -> None:
    """A copy-on-write happens in all layers before anything is computed."""
    cache = make_cache()
    keys, values = torch.randn(2, 4, 2, 8)
    cache.write(0, BatchRow(0, 4, 0, (3,)), keys, values)

    cache.copy_blocks([3], [11])

    copied = cache.read(0, BatchRow(0, 1, 4, (11, 12)), 0, 4)
    assert torch.equal(keys, copied[0])
    assert torch.equal(values, copied[1])


@pytest.mark.parametrize("rotary_dim", [8, 4])
def test_rotary_turns_halves_of_the_leading_part_of_each_head(rotary_dim: int) -> None:
    """As transformers does, with the factor on cos and sin; columns behind the part stay."""
    x = torch.randn(5, 24)
    table = RopeTable(rotary_dim, tuple(0.5**i for i in range(rotary_dim // 2)), 1.25)

    rotated = make_ops(one_row(5, context_len=3)).rotary(x, table, 8).reshape(5, 3, 8)

    angles = torch.arange(3, 8)[:, None] * torch.tensor(table.inv_freq).repeat(2)[None]
    heads = x.reshape(1, 5, 3, 8).transpose(1, 2)[..., :rotary_dim]
    cos, sin = angles.cos()[None] * 1.25, angles.sin()[None] * 1.25
    expected, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    torch.testing.assert_close(expected[0].transpose(0, 1), rotated[..., :rotary_dim])
    assert torch.equal(x.reshape(5, 3, 8)[..., rotary_dim:], rotated[..., rotary_dim:])


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    """The epsilon stands inside the root; the weight multiplies last."""
    x, weight = torch.randn(3, 10), torch.randn(10)
    ops = make_ops(one_row(3), matrix=weight)

    expected = x / (x.square().mean(1, keepdim=True) + 0.1).sqrt() * weight
    torch.testing.assert_close(expected, ops.rms_norm(x, Vector(10, TABLE), 0.1))


def test_layer_norm_is_that_of_torch() -> None:
    """Mean and variance of the row; weight and bias where they are given."""
    x, weight, bias = 5.0 + torch.randn(3, 10), torch.randn(10), torch.randn(10)
    ops = make_ops(one_row(3), matrix=weight, bias=bias)
    vectors = {TABLE: Vector(10, TABLE), BIAS: Vector(10, BIAS), None: None}

    for scale, shift in itertools.product((TABLE, None), (BIAS, None)):
        expected = functional.layer_norm(
            x, (10,), weight if scale else None, bias if shift else None, 0.1
        )
        torch.testing.assert_close(expected, ops.layer_norm(x, vectors[scale], vectors[shift], 0.1))


def test_head_norm_norms_each_head_on_its_own() -> None:
    """The same weight serves every head."""
    x, weight = torch.randn(3, 12), torch.randn(4)
    ops = make_ops(one_row(3), matrix=weight)

    parts = [ops.rms_norm(part, Vector(4, TABLE), 1e-5) for part in torch.split(x, 4, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), ops.head_norm(x, Vector(4, TABLE), 1e-5))


def test_linear_multiplies_with_the_transpose_and_adds_the_bias() -> None:
    """[rows, in_features] -> [rows, out_features]."""
    x, matrix, bias = torch.randn(3, 6), torch.randn(5, 6), torch.randn(5)
    ops = make_ops(one_row(3), matrix=matrix, bias=bias)
    expected = torch.stack([matrix @ row for row in x])

    plain = ops.linear(x, Linear(5, 6, (5,), LinearHandle(TABLE)))
    biased = ops.linear(x, Linear(5, 6, (5,), LinearHandle(TABLE, BIAS)))

    torch.testing.assert_close(expected, plain)
    torch.testing.assert_close(expected + bias, biased)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("relu", lambda x: max(x, 0.0)),
        ("relu2", lambda x: max(x, 0.0) ** 2),
        ("hardtanh", lambda x: min(max(x, -1.0), 1.0)),
        ("gelu", lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
        (
            "gelu_tanh",
            lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        ),
    ],
)
def test_activations_are_their_textbook_formulas(name: Any, function: Any) -> None:
    """On their own, and as the gate of a gated MLP."""
    gate, up = torch.linspace(-6, 6, 25)[None], torch.randn(1, 25)
    expected = torch.tensor([[function(float(value)) for value in gate[0]]])
    ops = make_ops(one_row(1))

    torch.testing.assert_close(expected, ops.activation(gate, name))
    torch.testing.assert_close(expected * up, ops.gated(torch.cat([gate, up], dim=1), name))


def test_embed_takes_the_rows_of_the_token_ids_and_scales_them() -> None:
    """One row per token of the step."""
    table = torch.randn(6, 3)
    batch = StepBatch((4, 0, 4), (0, 1, 2), (BatchRow(0, 3, 0, (0,)),), (2,), BLOCK_SIZE)

    out = make_ops(batch, matrix=table).embed(Embedding(6, 3, TABLE), scale=2.0)

    assert torch.equal(2.0 * table[[4, 0, 4]], out)


def test_embed_positions_takes_the_rows_of_the_positions() -> None:
    """Whatever the token ids are."""
    table = torch.randn(6, 3)

    out = make_ops(one_row(2, context_len=3), matrix=table).embed_positions(Embedding(6, 3, TABLE))

    assert torch.equal(table[3:5], out)


def test_logits_are_scaled_before_they_are_capped() -> None:
    """cap * tanh(l / cap) of the scaled product."""
    x, matrix = torch.randn(2, 4), torch.randn(7, 4)
    head = Linear(7, 4, (7,), LinearHandle(TABLE))

    out = make_ops(one_row(2), matrix=matrix).logits(x, head, scale=0.5, soft_cap=3.0)

    torch.testing.assert_close(3.0 * torch.tanh(x @ matrix.T * 0.5 / 3.0), out)


def test_wanted_rows_are_taken_in_their_order() -> None:
    """Everything after it is computed for those rows only."""
    x = torch.randn(4, 3)
    batch = StepBatch((0,) * 4, (0, 1, 2, 3), (BatchRow(0, 4, 0, (0,)),), (1, 3), BLOCK_SIZE)

    assert torch.equal(x[[1, 3]], make_ops(batch).wanted_rows(x))


def test_split_add_and_scale_are_what_they_say() -> None:
    """Columns in parts, element-wise sums, a product with one number."""
    x = torch.arange(10.0).reshape(2, 5)
    ops = make_ops(one_row(2))

    left, right = ops.split(x, (2, 3))

    assert torch.equal(x[:, :2], left)
    assert torch.equal(x[:, 2:], right)
    assert torch.equal(2 * x, ops.add(x, x))
    assert torch.equal(0.25 * x, ops.scale(x, 0.25))
