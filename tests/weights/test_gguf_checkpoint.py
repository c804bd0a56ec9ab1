"""GGUF files as checkpoints: names, row order, split files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from octavo.backends.torch.dequantise import dequantise
from octavo.errors import CorruptFileError, ModelFileError
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.gguf_names import ARCHITECTURES, MODEL_PARTS, hf_tensor_name
from octavo.weights.gguf_repack import REPACKED
from octavo.weights.hf_names import layout_of
from tests.support.data import gemma3_path, smollm2_path
from tests.support.gguf_bytes import U32, GgufBytes, TensorBytes, tiny_llama, value, with_keys
from tests.support.random_weights import random_repacked_rows

OUR_NAMES = ("token_embd_norm", "exp_probs_b")


@pytest.mark.parametrize("architecture", sorted(set(ARCHITECTURES) - {"bert"}))
def test_names_are_the_reverse_of_the_converter_s(architecture: str) -> None:
    """Every name in the tables is what the package `gguf` turns into the file's name.

    But for the norms of GLM-4, which we call as Gemma does: the layers are wired alike. What
    Hugging Face has no one word for has a name of ours.
    """
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    to_gguf = gguf.get_tensor_name_map(numbers[architecture], 3)
    ours = ARCHITECTURES[architecture]
    wanted = numbers[architecture]
    parts = {gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[wanted]}
    stored = [f"blk.2.{part}" for part in ours.layer_parts if f"blk.{{bid}}.{part}" in parts]
    stored += [part for part in MODEL_PARTS if part in parts]
    assert len(stored) >= 8

    for stem in stored:
        if (architecture == "glm4" and "norm" in stem) or stem.endswith(OUR_NAMES):
            continue
        name = hf_tensor_name(f"{stem}.weight", ours)

        assert to_gguf.get_name(name, try_suffixes=(".weight",)) == f"{stem}.weight"


def test_names_of_an_encoder_are_those_that_its_folder_gets() -> None:
    """The converter starts from Hugging Face's names, which are not ours there."""
    to_gguf = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 3)
    layout = layout_of("BertModel")
    parts = {
        f"encoder.layer.2.{name}": f"model.layers.2.{ours}"
        for name, ours in layout.layer_parts.items()
    }
    parts |= {name: ours for name, ours in layout.model_parts.items() if "pooler" not in name}

    for name, ours in parts.items():
        stored = to_gguf.get_name(f"{name}.weight", try_suffixes=(".weight",))
        assert stored is not None, name

        assert hf_tensor_name(stored, ARCHITECTURES["bert"]) == f"{ours}.weight"


@pytest.mark.parametrize("path", [smollm2_path, gemma3_path], ids=lambda p: p.__name__)
def test_every_tensor_of_a_real_model_gets_a_hugging_face_name(path: Callable[[], Path]) -> None:
    """As many as there are parts of a layer, and no name of llama.cpp's left."""
    checkpoint = open_gguf(path())
    per_layer = 13 if checkpoint.facts.qk_norm else 9

    assert len(checkpoint.tensors) == 2 + per_layer * checkpoint.facts.num_layers
    assert all(name.startswith("model.") for name in checkpoint.tensors)
    assert all(name == view.name for name, view in checkpoint.tensors.items())
    assert checkpoint.tensors["model.embed_tokens.weight"].shape == (
        checkpoint.facts.vocab_size,
        checkpoint.facts.hidden_size,
    )


def test_queries_and_keys_of_llama_are_marked_as_interleaved(tmp_path: Path) -> None:
    """With their numbers of heads, weights and biases alike, and nothing else."""
    file = tiny_llama()
    for name, width in (("attn_q", 8), ("attn_k", 4), ("attn_v", 4)):
        file.tensors.append(TensorBytes(f"blk.0.{name}.bias", (width,)))

    checkpoint = open_gguf(file.write(tmp_path / "model.gguf"))

    marked = {n: t.interleaved_heads for n, t in checkpoint.tensors.items() if t.interleaved_heads}
    attention = "model.layers.0.self_attn"
    assert marked == {
        f"{attention}.q_proj.weight": 2,
        f"{attention}.k_proj.weight": 1,
        f"{attention}.q_proj.bias": 2,
        f"{attention}.k_proj.bias": 1,
    }


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "gemma3"])
def test_other_architectures_have_their_rows_in_order(tmp_path: Path, architecture: str) -> None:
    """llama.cpp rotates them in halves, as we do."""
    file = tiny_llama(architecture)
    with_keys(file, gemma3__attention__sliding_window=value(U32, 16))

    checkpoint = open_gguf(file.write(tmp_path / "model.gguf"))

    assert {t.interleaved_heads for t in checkpoint.tensors.values()} == {0}


def test_rows_that_do_not_divide_into_heads_are_refused(tmp_path: Path) -> None:
    """The packer could not put them back in order."""
    file = tiny_llama()
    next(t for t in file.tensors if t.name == "blk.0.attn_q.weight").dimensions = (8, 7)

    with pytest.raises(CorruptFileError, match=r"attn_q\.weight has 7 rows for 2 heads"):
        open_gguf(file.write(tmp_path / "model.gguf"))


def test_rope_factors_are_facts_and_no_weight(tmp_path: Path) -> None:
    """The loader would take them for a tensor that nobody asked for."""
    file = tiny_llama()
    divisors = struct.pack("<2f", 1.0, 8.0)
    file.tensors.append(TensorBytes("rope_freqs.weight", (2,), data=divisors))

    checkpoint = open_gguf(file.write(tmp_path / "model.gguf"))

    assert checkpoint.facts.rope.inv_freq_divisors == (1.0, 8.0)
    assert len(checkpoint.tensors) == len(file.tensors) - 1


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    """A file cannot smuggle in a second version of a weight under our own name for it."""
    file = tiny_llama()
    file.tensors.append(TensorBytes("model.norm.weight", (8,)))

    with pytest.raises(CorruptFileError, match=r"two tensors would be model\.norm\.weight"):
        open_gguf(file.write(tmp_path / "model.gguf"))


def test_a_tensor_that_nobody_knows_keeps_its_name(tmp_path: Path) -> None:
    """The loader refuses it by that name."""
    file = tiny_llama()
    file.tensors.append(TensorBytes("blk.0.mystery.weight", (8,)))

    assert "blk.0.mystery.weight" in open_gguf(file.write(tmp_path / "model.gguf")).tensors


def test_the_name_is_the_file_s_own_or_the_caller_s(tmp_path: Path) -> None:
    """Without `general.name` it is the file's name without its ending."""
    path = tiny_llama().write(tmp_path / "some-model.gguf")

    assert open_gguf(path).name == "some-model"
    assert open_gguf(path, name="given").name == "given"


def split(folder: Path, *, count: int = 2) -> list[Path]:
    """The tiny model in `count` files, as llama.cpp's gguf-split writes it."""
    whole = tiny_llama()
    share = -(-len(whole.tensors) // count)
    paths = []
    for number in range(count):
        part = GgufBytes(tensors=whole.tensors[number * share : (number + 1) * share])
        if number == 0:
            part.metadata = whole.metadata
        with_keys(part, split__no=value(U32, number), split__count=value(U32, count))
        paths.append(part.write(folder / f"tiny-{number + 1:05d}-of-{count:05d}.gguf"))
    return paths


def test_any_part_of_a_split_model_opens_all_of_it(tmp_path: Path) -> None:
    """The first part has the metadata, all have tensors."""
    whole = open_gguf(tiny_llama().write(tmp_path / "whole.gguf"))

    for path in split(tmp_path, count=3):
        assert open_gguf(path).tensors.keys() == whole.tensors.keys()
        assert open_gguf(path).facts == whole.facts


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    """Before anything is read."""
    paths = split(tmp_path, count=3)
    paths[1].unlink()

    with pytest.raises(ModelFileError, match=r"3 parts; missing: tiny-00002-of-00003\.gguf"):
        open_gguf(paths[0])


def test_parts_that_claim_another_place_are_refused(tmp_path: Path) -> None:
    """A renamed part does not make a model."""
    first, second = split(tmp_path)
    first.write_bytes(second.read_bytes())

    with pytest.raises(CorruptFileError, match="says it is part 2 of 2, its name says 1 of 2"):
        open_gguf(second)


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    """Which one would count?"""
    first, _ = split(tmp_path)
    part = GgufBytes(tensors=[TensorBytes("output_norm.weight", (8,))])
    with_keys(part, split__no=value(U32, 1), split__count=value(U32, 2))
    part.write(tmp_path / "tiny-00002-of-00002.gguf")

    with pytest.raises(CorruptFileError, match=r"output_norm\.weight is in another part"):
        open_gguf(first)


def test_a_part_alone_under_another_name_is_refused(tmp_path: Path) -> None:
    """Its keys say that there is more."""
    first, _ = split(tmp_path)

    with pytest.raises(CorruptFileError, match="part 1 of 2, its name says 1 of 1"):
        open_gguf(first.rename(tmp_path / "alone.gguf"))


def test_the_tokenizer_comes_from_the_file(tmp_path: Path) -> None:
    """No other file is looked at."""
    tokenizer = open_gguf(smollm2_path()).load_tokenizer()

    assert tokenizer.decode(tokenizer.encode("Hello, world!")) == "Hello, world!"


NVFP4 = next(number for number, one in REPACKED.items() if one.name == "NVFP4")


def test_the_scale_beside_an_nvfp4_tensor_multiplies_it(tmp_path: Path) -> None:
    """The one of activations is not used; stacked experts have a number each."""
    rows = random_repacked_rows(NVFP4, 6, 64, seed=1)
    file = tiny_llama()
    file.tensors += [
        TensorBytes("blk.0.x.weight", (64, 6), NVFP4, data=rows.tobytes()),
        TensorBytes("blk.0.x.scale", (1,), data=struct.pack("<f", 0.5)),
        TensorBytes("blk.0.x.input_scale", (1,), data=struct.pack("<f", 7.0)),
        TensorBytes("blk.0.y.weight", (64, 2, 3), NVFP4, data=rows.tobytes()),
        TensorBytes("blk.0.y.scale", (3,), data=struct.pack("<3f", 1.0, 2.0, -1.0)),
    ]
    plain = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(NVFP4))

    tensors = open_gguf(file.write(tmp_path / "a.gguf")).tensors

    one, each = (dequantise(tensors[f"blk.0.{name}.weight"]).numpy() for name in "xy")
    assert (one == 0.5 * plain).all()
    factors = (1.0, 2.0, -1.0)
    for expert, factor in enumerate(factors):
        own = plain[2 * expert : 2 * expert + 2]
        assert (each.reshape(6, 64)[2 * expert : 2 * expert + 2] == factor * own).all()
    assert not any("scale" in name for name in tensors)


@pytest.mark.parametrize(("count", "number"), [(2, 1.0), (1, float("nan"))])
def test_a_scale_that_cannot_be_one_is_refused(tmp_path: Path, count: int, number: float) -> None:
    file = tiny_llama()
    rows = random_repacked_rows(NVFP4, 3, 64, seed=1).tobytes()
    scale = struct.pack(f"<{count}f", *[number] * count)
    file.tensors += [
        TensorBytes("blk.0.x.weight", (64, 3), NVFP4, data=rows),
        TensorBytes("blk.0.x.scale", (count,), data=scale),
    ]

    with pytest.raises(CorruptFileError, match=r"a\.gguf: tensor blk\.0\.x\.scale"):
        open_gguf(file.write(tmp_path / "a.gguf"))
