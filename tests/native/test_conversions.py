"""What goes into the extension arrives there unchanged."""

from __future__ import annotations

import ast
from array import array
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo import _native
from octavo.backends.native.float_values import float_values
from octavo.backends.native.sampling import native_spec
from octavo.contracts.step import SamplingSpec
from octavo.weights.checkpoint import TensorView, WeightType

STUB = Path(octavo.__file__).parent / "_native.pyi"


def test_every_field_of_a_sampling_spec_arrives() -> None:
    """None of them with its default, so that a forgotten one shows."""
    values: dict[str, Any] = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.25,
        "min_p": 0.125,
        "seed": (1 << 64) - 3,
        "repetition_penalty": 1.5,
        "presence_penalty": 0.75,
        "frequency_penalty": -0.5,
        "bias_token_ids": [3, 4],
        "bias_values": [1.0, -2.0],
        "allowed_token_ids": [5, 6],
        "bad_words": [[7], [8, 9]],
        "min_tokens": 2,
        "stop_token_ids": [10],
        "num_logprobs": 4,
        "num_prompt_logprobs": 3,
        "logprob_token_ids": [11, 12],
    }
    assert set(values) == set(SamplingSpec.__struct_fields__) - {"processor_params"}  # for Python

    native = native_spec(SamplingSpec(**values))

    assert values == {name: getattr(native, name) for name in values}


def test_a_negative_seed_is_its_own_64_bits() -> None:
    """Users may give any 64-bit number."""
    assert (1 << 64) - 5 == native_spec(SamplingSpec(seed=-5)).seed


@pytest.mark.parametrize(
    ("type", "data", "expected"),
    [
        (WeightType.F32, array("f", [1.5, -2.0, 1e-30, 3e38]).tobytes(), [1.5, -2.0, 1e-30, 3e38]),
        (WeightType.F16, bytes.fromhex("003e00c00100ff7b"), [1.5, -2.0, 2.0**-24, 65504.0]),
        (WeightType.BF16, bytes.fromhex("c03f00c00100807f"), [1.5, -2.0, 2.0**-133, float("inf")]),
    ],
)
def test_small_float_tensors_are_read_exactly(
    type: WeightType, data: bytes, expected: list[float]
) -> None:
    """Also the smallest and the largest numbers of a type."""
    view = TensorView("norm.weight", type, (4,), memoryview(data))

    assert array("f", expected) == float_values(view)


def test_a_bias_in_rotary_pairs_is_put_back_into_halves() -> None:
    """Two heads of four rows: pairs (0, 1), (2, 3) become halves 0, 2 | 1, 3."""
    data = array("f", range(8)).tobytes()
    view = TensorView("q_proj.bias", WeightType.F32, (8,), memoryview(data), interleaved_heads=2)

    assert [0, 2, 1, 3, 4, 6, 5, 7] == list(float_values(view))


def test_the_stub_and_the_extension_name_the_same_things() -> None:
    """A type checker sees what is there, neither more nor less."""
    assert _public_names_of_the_extension() == _names_in_the_stub()


def _names_in_the_stub() -> set[str]:
    names = set()
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{name}" for name in _members(node)}
    return names


def _members(node: ast.ClassDef) -> set[str]:
    found = set()
    for child in node.body:
        if isinstance(child, ast.FunctionDef):
            found.add(child.name)
        elif isinstance(child, ast.AnnAssign | ast.Assign):
            targets = [child.target] if isinstance(child, ast.AnnAssign) else child.targets
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def _public_names_of_the_extension() -> set[str]:
    names = set()
    for name, thing in vars(_native).items():
        if name.startswith("_"):
            continue
        names.add(name)
        if isinstance(thing, type):
            own = {member for member in vars(thing) if not member.startswith("_")}
            names |= {f"{name}.{member}" for member in own}
    return names
