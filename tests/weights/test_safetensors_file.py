"""safetensors: what the reader reads, and what it refuses."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import CorruptFileError, ModelFileError, UnsupportedModelError
from octavo.weights.checkpoint import WeightType
from octavo.weights.safetensors_file import MAX_HEADER_BYTES, read_safetensors, read_stored
from octavo.weights.stored_tensor import NUM_BITS
from tests.support.safetensors_bytes import honest_header, safetensors_bytes

TYPES = {
    torch.float32: WeightType.F32,
    torch.float16: WeightType.F16,
    torch.bfloat16: WeightType.BF16,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_come_out_as_the_format_s_own_writer_put_them_in(
    path: Path, dtype: torch.dtype
) -> None:
    """Names, types, shapes and bytes, against the package `safetensors`."""
    written = {
        "matrix": torch.randn(3, 5).to(dtype),
        "vector": torch.arange(7).to(dtype),
        "ünïcode": torch.ones(1, 1).to(dtype),
    }
    safetensors.torch.save_file(written, path, metadata={"format": "pt"})

    tensors = read_safetensors(path)

    assert tensors.keys() == written.keys()
    for name, tensor in written.items():
        view = tensors[name]
        assert (view.name, view.type, view.shape) == (name, TYPES[dtype], tuple(tensor.shape))
        assert bytes(view.data) == tensor.view(torch.uint8).numpy().tobytes()


def test_buffers_that_follow_from_the_configuration_are_left_out(path: Path) -> None:
    """Files of GPT-2 and GPT-NeoX carry their causal masks, of types that no weight has."""
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    safetensors.torch.save_file({"h.0.attn.bias": mask, "h.0.ln_1.bias": torch.ones(3)}, path)

    assert list(read_safetensors(path)) == ["h.0.ln_1.bias"]


def test_the_order_of_the_header_does_not_matter(path: Path) -> None:
    """Tensors may be listed in any order as long as they fill the data."""
    header, num_bytes = honest_header({"a": (2,), "b": (3,)})
    path.write_bytes(safetensors_bytes(dict(reversed(header.items())), bytes(num_bytes)))

    assert read_safetensors(path)["b"].shape == (3,)


def _entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


HOSTILE: dict[str, tuple[bytes, str]] = {
    "too short": (b"\0" * 7, "too short"),
    "an endless header": (struct.pack("<Q", 2**63) + b"{}", "claims a header"),
    "a header past the end": (struct.pack("<Q", 3) + b"{}", "claims a header"),
    "no JSON": (safetensors_bytes(b"{'a'}"), "not valid JSON"),
    "no UTF-8": (safetensors_bytes(b'{"\xff": 1}'), "not valid JSON"),
    "no object": (safetensors_bytes(b"[]"), "must hold a JSON object"),
    "deep nesting": (safetensors_bytes(b'{"a":' * 100_000), "not valid JSON"),
    "a huge number": (safetensors_bytes(b'{"a":' + b"9" * 5000 + b"}"), "not valid JSON"),
    "a tensor that is no object": (safetensors_bytes({"a": 1}), "a must be an object"),
    "a tensor that is null": (safetensors_bytes({"a": None}), "a must be an object"),
    "no type": (safetensors_bytes({"a": {}}), "dtype is missing"),
    "a negative size": (safetensors_bytes(_entry(shape=[-2]), bytes(8)), "whole numbers from 0"),
    "half a size": (safetensors_bytes(_entry(shape=[1.5]), bytes(8)), "whole numbers from 0"),
    "a true size": (safetensors_bytes(_entry(shape=[True]), bytes(4)), "whole numbers from 0"),
    "a size in words": (safetensors_bytes(_entry(shape="2"), bytes(8)), "must be a list"),
    "sizes that overflow": (safetensors_bytes(_entry(shape=[2**62, 4]), bytes(8)), "span 8 bytes"),
    "too many sizes": (safetensors_bytes(_entry(shape=[1] * 9), bytes(8)), "at most 8"),
    "one offset": (safetensors_bytes(_entry(offsets=[0]), bytes(8)), "not within"),
    "three offsets": (safetensors_bytes(_entry(offsets=[0, 4, 8]), bytes(8)), "at most 2"),
    "offsets in reverse": (safetensors_bytes(_entry(offsets=[8, 0]), bytes(8)), "not within"),
    "an offset past the end": (safetensors_bytes(_entry(offsets=[0, 8]), bytes(7)), "not within"),
    "a span of another size": (safetensors_bytes(_entry(offsets=[0, 4]), bytes(4)), "span 4 bytes"),
    "a gap before": (safetensors_bytes(_entry(offsets=[4, 12]), bytes(12)), "gap of 4 bytes"),
    "bytes behind": (safetensors_bytes(_entry(), bytes(9)), "1 bytes after the last tensor"),
    "an overlap": (
        safetensors_bytes(_entry() | {"b": _entry(offsets=(4, 12))["a"]}, bytes(12)),
        "b overlaps",
    ),
    "the same bytes twice": (
        safetensors_bytes(_entry() | {"b": _entry()["a"]}, bytes(8)),
        "b overlaps",
    ),
    "a gap between": (
        safetensors_bytes(_entry() | {"b": _entry(offsets=(12, 20))["a"]}, bytes(20)),
        "b leaves a gap of 4 bytes",
    ),
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_file_is_refused_before_use(path: Path, lie: str) -> None:
    """Each lie of a header is a CorruptFileError that says what is wrong."""
    content, message = HOSTILE[lie]
    path.write_bytes(content)

    with pytest.raises(CorruptFileError, match=message):
        read_safetensors(path)


def test_a_header_beyond_the_limit_is_not_even_parsed(path: Path) -> None:
    """The file is large enough for it, only not on the disk: a sparse file."""
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER_BYTES + 1))
        file.truncate(MAX_HEADER_BYTES + 100)

    with pytest.raises(CorruptFileError, match=f"at most {MAX_HEADER_BYTES}"):
        read_safetensors(path)


@pytest.mark.parametrize("dtype", ["I64", "F8_E4M3", "F64", "BOOL"])
def test_types_that_are_no_floats_are_named_with_those_that_are(path: Path, dtype: str) -> None:
    """Not corrupt, but nothing that we can compute with unless it is part of a quantised matrix."""
    count = 8 * 8 // NUM_BITS[dtype]
    path.write_bytes(safetensors_bytes(_entry(dtype=dtype, shape=(count,)), bytes(8)))

    assert read_stored(path)["a"].dtype == dtype

    with pytest.raises(UnsupportedModelError, match=f"a has the type {dtype}.*F32, F16, BF16"):
        read_safetensors(path)


HEADER, NUM_BYTES = honest_header({"a": (2, 3), "b": (4,)})
WHOLE = safetensors_bytes(HEADER, bytes(NUM_BYTES))
edits = st.lists(
    st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=6
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(edits=edits, length=st.integers(0, len(WHOLE)), tail=st.binary(max_size=8))
def test_an_altered_file_is_read_or_refused_but_never_misread(
    path: Path, edits: list[tuple[int, int]], length: int, tail: bytes
) -> None:
    """Bytes changed at random, cut and prolonged: only our errors, and no view outside the file."""
    altered = bytearray(WHOLE)
    for position, byte in edits:
        altered[position] = byte
    path.write_bytes(bytes(altered[: max(length, len(WHOLE) // 2)]) + tail)

    try:
        tensors = read_safetensors(path)
    except ModelFileError:
        return

    for view in tensors.values():
        assert len(view.data) == view.type.num_bytes(math.prod(view.shape))
