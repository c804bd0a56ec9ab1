"""GGUF: what the reader reads, and what it refuses."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import CorruptFileError, ModelFileError, UnsupportedModelError
from octavo.ops.rope import rope_table
from octavo.weights.checkpoint import WeightType
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.gguf_reader import KNOWN_TYPES, read_gguf
from octavo.weights.gguf_repack import REPACKED
from tests.support.gguf_bytes import (
    ARRAY,
    I32,
    STRING,
    U8,
    U32,
    GgufBytes,
    TensorBytes,
    array,
    string,
    strings,
    text,
    tiny_llama,
    value,
)

F32, Q4_0, Q6_K = WeightType.F32, WeightType.Q4_0, WeightType.Q6_K


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def test_strings_are_cut_in_pairs_where_each_is_two_words(path: Path) -> None:
    """As merges are; a list with another string has no pairs."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("merges", ["a b", "ü 世", " c", "d  e"])
    writer.add_array("words", ["a b", "c"])
    writer.add_array("ends", ["a "])
    writer.add_array("numbers", [1, 2])
    _finish(writer)

    metadata = read_gguf(path).metadata

    assert metadata.stored_pairs("merges") == [("a", "b"), ("ü", "世"), ("", "c"), ("d", " e")]
    for key in ("words", "ends", "numbers", "none"):
        assert metadata.stored_pairs(key) is None


def test_metadata_of_every_type_comes_out_as_the_format_s_own_writer_put_it_in(path: Path) -> None:
    """Scalars of all sizes, strings and arrays, against the package `gguf`."""
    writer = gguf.GGUFWriter(path, "llama")
    written: dict[str, object] = {
        "u8": 200,
        "i8": -100,
        "u16": 60000,
        "i16": -30000,
        "u32": 4_000_000_000,
        "i32": -2_000_000_000,
        "u64": 2**63 + 1,
        "i64": -(2**62),
        "f64": 0.1,
        "flag": True,
        "words": "grüße, 世界",
    }
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -2_000_000_000)
    writer.add_uint64("u64", 2**63 + 1)
    writer.add_int64("i64", -(2**62))
    writer.add_float64("f64", 0.1)
    writer.add_bool("flag", True)
    writer.add_string("words", "grüße, 世界")
    writer.add_float32("f32", 0.5)
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("fractions", [0.5, 0.25])
    writer.add_array("texts", ["a", "", "ü"])
    _finish(writer)

    metadata = read_gguf(path).metadata

    assert written.items() <= dict(metadata).items()
    assert metadata["f32"] == 0.5
    assert metadata["numbers"] == [1, -2, 3]
    assert metadata["fractions"] == [0.5, 0.25]
    assert metadata["texts"] == ["a", "", "ü"]


@pytest.mark.parametrize("weight_type", KNOWN_TYPES.values(), ids=lambda t: t.name)
def test_tensors_of_every_type_come_out_byte_for_byte(path: Path, weight_type: WeightType) -> None:
    """Name, shape in rows and columns, and the raw bytes, against the package `gguf`."""
    rows, columns = 3, 512
    generator = np.random.default_rng(int(weight_type))
    raw = generator.integers(0, 256, (rows, weight_type.num_bytes(columns)), dtype=np.uint8)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("before", np.zeros(5, dtype=np.float32))
    writer.add_tensor("wanted", raw, raw_dtype=gguf.GGMLQuantizationType(weight_type))
    _finish(writer)

    tensor = read_gguf(path).tensors["wanted"]

    assert tensor.type == weight_type
    assert tensor.shape == (rows, columns)
    assert bytes(tensor.data) == raw.tobytes()
    assert tensor.data.readonly


def test_version_2_is_read_like_version_3(path: Path) -> None:
    """The two versions differ in byte order only, and ours is little endian."""
    file = tiny_llama()
    file.version = 2

    assert set(read_gguf(file.write(path)).tensors) == {str(t.name) for t in file.tensors}


def test_another_alignment_moves_the_data(path: Path) -> None:
    """`general.alignment` decides where tensors begin."""
    file = GgufBytes(
        metadata=[("general.alignment", value(U32, 4096))],
        tensors=[TensorBytes("a", (2,), data=struct.pack("<2f", 1.5, 2.5))],
        alignment=4096,
    )

    tensor = read_gguf(file.write(path)).tensors["a"]

    assert list(tensor.data.cast("f")) == [1.5, 2.5]


def test_a_vocabulary_is_decoded_only_when_it_is_asked_for(path: Path) -> None:
    """Opening steps over strings without decoding them; only the look-up meets the broken one."""
    file = GgufBytes(metadata=[("words", strings("fine", b"\xff\xfe")), ("after", value(U32, 7))])

    metadata = read_gguf(file.write(path)).metadata

    assert metadata["after"] == 7
    assert "words" in metadata
    with pytest.raises(CorruptFileError, match=r"item 1 of words is not valid UTF-8"):
        metadata["words"]


def test_a_string_is_found_in_an_array_without_decoding_it(path: Path) -> None:
    """A hit inside another string does not count."""
    inside = string("end").decode("latin-1")
    file = GgufBytes(metadata=[("words", strings("x" + inside, "en", "end", b"\xff"))])

    metadata = read_gguf(file.write(path)).metadata

    assert metadata.index_in("words", "end") == 2
    assert metadata.index_in("words", "ends") is None
    assert metadata.index_in("nothing", "end") is None


def test_the_mapping_outlives_the_reader(path: Path) -> None:
    """A view stays good when everything else about the file is gone, the file included."""
    data = struct.pack("<2f", 3.0, 4.0)
    tensor = read_gguf(GgufBytes(tensors=[TensorBytes("a", (2,), data=data)]).write(path)).tensors[
        "a"
    ]
    path.unlink()

    assert list(tensor.data.cast("f")) == [3.0, 4.0]


def _lie(**changes: object) -> Callable[[GgufBytes], None]:
    def apply(file: GgufBytes) -> None:
        for name, lie in changes.items():
            setattr(file, name, lie)

    return apply


def _key(raw: tuple[int, bytes], name: str | bytes = "a.key") -> Callable[[GgufBytes], None]:
    return lambda file: file.metadata.append((name, raw))


def _tensor(*tensors: TensorBytes) -> Callable[[GgufBytes], None]:
    return lambda file: file.tensors.extend(tensors)


HOSTILE: dict[str, tuple[Callable[[GgufBytes], None], str]] = {
    "another magic": (_lie(magic=b"GGML"), "begins with b'GGML'"),
    "version 0": (_lie(version=0), "version 0"),
    "version 1": (_lie(version=1), "version 1; supported: 2 and 3"),
    "version 4": (_lie(version=4), "version 4"),
    "more tensors than bytes": (_lie(num_tensors=2**63), "do not fit into the file"),
    "more keys than bytes": (_lie(num_keys=2**40), "do not fit into the file"),
    "one key too many": (_lie(num_keys=99), "."),
    "one tensor too many": (_lie(num_tensors=12), "."),
    "a long key": (_key(value(U32, 1), b"k" * 70000), "a key claims 70000 bytes"),
    "a key that is not text": (_key(value(U32, 1), b"\xff"), "a key is not valid UTF-8"),
    "a key twice": (_key(value(U32, 1), "general.architecture"), "appears twice"),
    "a value that is not text": (_key((STRING, string(b"\xc3"))), "not valid UTF-8"),
    "an endless string": (_key((STRING, struct.pack("<Q", 2**62))), "claims"),
    "an unknown value type": (_key((13, b"\0" * 8)), "unknown value type 13"),
    "an unknown item type": (_key((ARRAY, array(99, []))), "unknown item type 99"),
    "an array of arrays": (_key((ARRAY, array(ARRAY, [array(U8, [])]))), "array of arrays"),
    "an endless array": (_key((ARRAY, array(I32, [], count=2**61))), "the file ends within"),
    "an endless array of strings": (
        _key((ARRAY, array(STRING, [], count=2**60))),
        "beyond the end",
    ),
    "a string past the end": (
        _key((ARRAY, array(STRING, [struct.pack("<Q", 2**63)] + [string("x")] * 3))),
        "beyond the end",
    ),
    "a last string past the end": (
        _key((ARRAY, array(STRING, [struct.pack("<Q", 2**63)]))),
        "the file ends within",
    ),
    "an alignment of 0": (_key(value(U32, 0), "general.alignment"), "power of two"),
    "an alignment of 4": (_key(value(U32, 4), "general.alignment"), "power of two"),
    "an alignment of 48": (_key(value(U32, 48), "general.alignment"), "power of two"),
    "an alignment of words": (_key(text("32"), "general.alignment"), "power of two"),
    "no dimensions": (_tensor(TensorBytes("a", ())), "has 0 dimensions"),
    "five dimensions": (_tensor(TensorBytes("a", (1, 1, 1, 1, 1))), "has 5 dimensions"),
    "a dimension of 0": (_tensor(TensorBytes("a", (4, 0))), "dimension of 0"),
    "sizes that overflow": (_tensor(TensorBytes("a", (2**63, 2**63))), "beyond the end"),
    "sizes that overflow to 0": (_tensor(TensorBytes("a", (2**32, 2**32))), "beyond the end"),
    "rows that are no blocks": (
        _tensor(TensorBytes("a", (48, 2), Q4_0)),
        "not a multiple of the 32",
    ),
    "rows that are no superblocks": (
        _tensor(TensorBytes("a", (64, 4), Q6_K)),
        "of the 256 of Q6_K",
    ),
    "an offset between": (_tensor(TensorBytes("a", (8,), offset=4)), "not a multiple of 32"),
    "an offset past the end": (_tensor(TensorBytes("a", (8,), offset=2**63)), "beyond the end"),
    "a tensor over another": (_tensor(TensorBytes("a", (8,), offset=0)), "overlaps"),
    "a tensor within another": (_tensor(TensorBytes("a", (8,), offset=32)), "overlaps"),
    "a tensor twice": (
        lambda file: file.tensors.append(TensorBytes("output_norm.weight", (8,))),
        "appears twice",
    ),
    "a tensor name that is not text": (_tensor(TensorBytes(b"\xff", (8,))), "not valid UTF-8"),
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_file_is_refused_before_use(path: Path, lie: str) -> None:
    """Each lie of a file is a CorruptFileError that says what is wrong."""
    change, message = HOSTILE[lie]
    file = tiny_llama()
    change(file)

    with pytest.raises(CorruptFileError, match=message):
        read_gguf(file.write(path))


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    """Every shorter version of a file is corrupt, not half a model."""
    file = tiny_llama()
    whole = file.build()
    file.tensors = []
    end_of_keys = len(file.build())
    for length in [*range(1, end_of_keys, 3), *range(end_of_keys, len(whole), 61)]:
        path.write_bytes(whole[:length])

        with pytest.raises(CorruptFileError):
            read_gguf(path)


def test_a_big_endian_file_is_refused_by_that_name(path: Path) -> None:
    """Version 3 written for a big-endian machine looks like version 50331648."""
    file = tiny_llama()
    file.version = 3 << 24

    with pytest.raises(UnsupportedModelError, match=r"big-endian GGUF file \(version 3\)"):
        read_gguf(file.write(path))


def test_types_that_we_do_not_have_are_named_with_those_we_have(path: Path) -> None:
    """All of them at once, with the number of tensors."""
    file = tiny_llama()
    file.tensors += [TensorBytes("a", (256,), 41), TensorBytes("b", (256,), 41)]
    file.tensors += [TensorBytes("c", (256,), 77)]

    with pytest.raises(UnsupportedModelError) as caught:
        read_gguf(file.write(path))

    assert "Q1_0 (2 tensors), type 77 (1 tensors)" in str(caught.value)
    names = [type.name for type in KNOWN_TYPES.values()] + [one.name for one in REPACKED.values()]
    assert all(name in str(caught.value) for name in names)


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder, an empty file, and a pipe, which must not be waited for."""
    pipe, empty = tmp_path / "pipe", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.touch()

    for path in (tmp_path / "missing", tmp_path, pipe):
        with pytest.raises(ModelFileError, match=str(path)):
            read_gguf(path)
    with pytest.raises(CorruptFileError, match="is empty"):
        read_gguf(empty)


WHOLE = tiny_llama().build()
edits = st.lists(
    st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(edits=edits, length=st.integers(0, len(WHOLE)), tail=st.binary(max_size=16))
def test_an_altered_file_is_read_or_refused_but_never_misread(
    path: Path, edits: list[tuple[int, int]], length: int, tail: bytes
) -> None:
    """Bytes changed at random, cut and prolonged: only our errors, and no view outside the file."""
    altered = bytearray(WHOLE)
    for position, byte in edits:
        altered[position] = byte
    path.write_bytes(bytes(altered[: max(length, len(WHOLE) // 2)]) + tail)

    try:
        checkpoint = open_gguf(path)
        for key in checkpoint.metadata:
            checkpoint.metadata[key]
    except ModelFileError:
        return

    assert rope_table(checkpoint.facts.rope, 64).inv_freq
    for tensor in checkpoint.tensors.values():
        assert len(tensor.data) == tensor.type.num_bytes(int(np.prod(tensor.shape)))


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
