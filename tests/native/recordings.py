"""Random recordings, as wild as a model could be, for the tests of passes and placement."""

from __future__ import annotations

from hypothesis import strategies as st

from octavo._native import Rows
from octavo.backends.native.operations import Buffer, Recording, Value, whole
from octavo.backends.native.recorder import Recorder
from octavo.ops.ops import AttentionSpec, HeadPart, RouterSpec
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Experts, Linear, Vector

WIDTHS = (4, 8, 32)
ROPE = RopeTable(2, (1.0,))


@st.composite
def recordings(draw: st.DrawFn) -> tuple[Recording, tuple[Value, ...]]:
    """A recording that ends in logits, and the values that somebody must give it."""
    recorder = Recorder()
    given = (Value(Rows.TOKENS, draw(st.sampled_from(WIDTHS))),)
    buffers: list[Buffer] = [whole(value) for value in given]
    buffers.append(recorder.embed(Embedding(10, 8, 0)))
    num_layers = 0
    for number in range(draw(st.integers(1, 14))):
        choice = draw(st.sampled_from(sorted(_STEPS)))
        if choice == "attention":
            buffers.append(_attention(draw, recorder, buffers, num_layers))
            num_layers += 1
        else:
            buffers += _STEPS[choice](draw, recorder, buffers, number)
    wanted = [recorder.wanted_rows(draw(st.sampled_from(buffers))) for _ in range(2)]
    for number in range(draw(st.integers(0, 4))):
        choice = draw(st.sampled_from(sorted(set(_STEPS) - {"attention", "rotary"})))
        wanted += _STEPS[choice](draw, recorder, wanted, 50 + number)
    x = draw(st.sampled_from(wanted))
    head = Linear(12, x.width, (12,), 98)
    scale, cap = draw(st.sampled_from([1.0, 2.0])), draw(st.sampled_from([None, 3.0]))
    return recorder.finish(recorder.logits(x, head, scale=scale, soft_cap=cap)), given


def _pick(draw: st.DrawFn, buffers: list[Buffer]) -> Buffer:
    return draw(st.sampled_from(buffers))


def _even(buffers: list[Buffer]) -> list[Buffer]:
    return [buffer for buffer in buffers if buffer.width % 2 == 0]


def _linear(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    x, width = _pick(draw, buffers), draw(st.sampled_from(WIDTHS))
    return [ops.linear(x, Linear(width, x.width, (width,), number))]


def _norm(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    x = _pick(draw, buffers)
    return [ops.rms_norm(x, Vector(x.width, number), 1e-5)]


def _add(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    a = _pick(draw, buffers)
    return [ops.add(a, _pick(draw, [b for b in buffers if b.width == a.width]))]


def _scale(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    return [ops.scale(_pick(draw, buffers), float(number))]


def _gated(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    return [ops.gated(_pick(draw, _even(buffers)), "silu")] if _even(buffers) else []


def _experts(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    x, scores = _pick(draw, buffers), _pick(draw, buffers)
    routing = ops.route(scores, RouterSpec(scores.width, min(2, scores.width)))
    first, second = 100 + 2 * number, 101 + 2 * number  # matrices of one expert
    gate_up = Linear(16, x.width, (8, 8), first)
    down = Linear(x.width, 8, (x.width,), second)
    return [ops.experts(x, routing, Experts((gate_up,), (down,)), "silu")]


def _heads(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    if not _even(buffers):
        return []
    x = _pick(draw, _even(buffers))
    half = x.width // 2
    products = ops.linear_heads(x, tuple(Linear(4, half, (4,), number) for _ in range(2)))
    return [ops.join_heads((HeadPart(products, 3), HeadPart(x, 1)), 2)]


def _split(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    x = _pick(draw, buffers)
    return list(ops.split(x, (x.width // 2, x.width - x.width // 2))) if x.width > 1 else []


def _rotary(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], number: int) -> list[Buffer]:
    return [ops.rotary(_pick(draw, _even(buffers)), ROPE, 2)]


def _attention(draw: st.DrawFn, ops: Recorder, buffers: list[Buffer], layer: int) -> Buffer:
    q = _pick(draw, buffers)
    k, v = (_pick(draw, [b for b in buffers if b.width == q.width]) for _ in range(2))
    return ops.attention(q, k, v, AttentionSpec(layer, 1, 1, q.width, 1.0))


_STEPS = {
    "add": _add,
    "attention": _attention,
    "experts": _experts,
    "gated": _gated,
    "heads": _heads,
    "linear": _linear,
    "norm": _norm,
    "rotary": _rotary,
    "scale": _scale,
    "split": _split,
}
