"""The fingerprint of weights: equal for the same tensors, different for any others."""

from __future__ import annotations

from dataclasses import replace

from octavo.kvtier.fingerprint import weights_fingerprint
from octavo.weights.checkpoint import TensorView, WeightType


def tensor(data: bytes = b"abcdefgh", **changes: object) -> TensorView:
    made = TensorView("a", WeightType.F32, (2,), memoryview(data))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_order_of_tensors_does_not_matter():
    a, b = tensor(), tensor(b"ijklmnop")
    assert weights_fingerprint({"a": a, "b": b}) == weights_fingerprint({"b": b, "a": a})
    assert weights_fingerprint({"a": a, "b": b}) != weights_fingerprint({"a": b, "b": a})


def test_every_change_of_a_tensor_shows():
    fingerprints = {
        weights_fingerprint(tensors)
        for tensors in (
            {"a": tensor()},
            {"b": tensor()},
            {"a": tensor(b"abcdefgi")},
            {"a": tensor(shape=(1, 2))},
            {"a": tensor(shape=(4,), type=WeightType.F16)},
            {"a": tensor(interleaved_heads=2)},
            {"a": tensor(), "b": tensor()},
            {},
        )
    }
    assert len(fingerprints) == 8
    assert {len(fingerprint) for fingerprint in fingerprints} == {32}
