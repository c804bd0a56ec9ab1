"""A folder in Hugging Face's layout as a Checkpoint: config.json, safetensors files, tokenizer.

Owns which files are read and that a sharded index tells the truth. Does not know the format of a
weight file (`safetensors_file.py`) or the meaning of config.json (`hf_config.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.config.model_facts import ModelFacts
from octavo.errors import CorruptFileError, ModelFileError
from octavo.text.tokenizer import Tokenizer
from octavo.text.tokenizer_folder import tokenizer_from_folder
from octavo.weights.arrangement import arranged
from octavo.weights.blame import about
from octavo.weights.checkpoint import CONFIG, TensorView
from octavo.weights.facts_check import known_token_ids
from octavo.weights.fields import Fields
from octavo.weights.hf_config import facts_from_config, named_architecture, text_section
from octavo.weights.hf_generation import (
    bos_token_ids,
    chat_template,
    eos_token_ids,
    generation_defaults,
)
from octavo.weights.hf_names import layout_of, renamed
from octavo.weights.hf_pooling import dense_files, with_pooling
from octavo.weights.json_file import read_fields
from octavo.weights.quant.method import find_quantisation
from octavo.weights.safetensors_file import read_safetensors, read_stored
from octavo.weights.stored_tensor import FLOATS, StoredTensor, float_view
from octavo.weights.word_classifier import score_matrix

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Where a model that also sees keeps its decoder: before transformers 4.52, and since.
_DECODER_PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
_OTHER_PARTS = (
    "vision_model.",
    "model.vision_model.",
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.visual.",
    "mtp.",  # layers that predict several tokens
)


@dataclass(frozen=True, slots=True)
class HfCheckpoint:
    """A model in a folder. Satisfies the `Checkpoint` contract."""

    name: str
    facts: ModelFacts
    tensors: Mapping[str, TensorView]
    chat_template: str | None
    folder: Path
    quantisation: str | None = None

    @property
    def where(self) -> str:
        """See `Checkpoint`."""
        return str(self.folder)

    def load_tokenizer(self) -> Tokenizer:
        """Build the tokenizer from the folder's files."""
        with about(self.where):
            return tokenizer_from_folder(self.folder)


def open_folder(
    folder: Path, *, name: str | None = None, overrides: Mapping[str, object] | None = None
) -> HfCheckpoint:
    """Read the small files, then map the weights; config.json decides before any weight is touched.

    `overrides` replace keys of config.json.

    Raises CorruptFileError, UnsupportedModelError, or ModelFileError when a file is missing.
    """
    with about(str(folder)):
        return _open(folder, name, overrides or {})


def _open(folder: Path, name: str | None, overrides: Mapping[str, object]) -> HfCheckpoint:
    config = read_fields(folder / CONFIG)
    config.values = {**config.values, **overrides}
    facts = _facts(folder, config)
    layout = layout_of(facts.architecture, has_experts=facts.moe is not None)
    stored = _stored_tensors(folder)
    quantisation = find_quantisation(folder, config)
    if quantisation is None:
        views = {name: float_view(tensor) for name, tensor in stored.items()}
    else:
        views = quantisation.views(stored)
    tensors = renamed(_decoder_only(views), layout)
    tensors |= score_matrix(tensors, folder, config)
    tensors |= _dense_tensors(folder, facts)
    return HfCheckpoint(
        name=name or folder.resolve().name,
        facts=facts,
        tensors=arranged(tensors, facts, layout.arrangement),
        chat_template=chat_template(folder),
        folder=folder,
        quantisation=None if quantisation is None else quantisation.method,
    )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, by its index where it has one.

    Raises ModelFileError when there are none, CorruptFileError for a broken index.
    """
    if (folder / INDEX).is_file():
        return [folder / file_name for file_name in sorted(set(_weight_map(folder).values()))]
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    others = sorted(
        path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth")
    )
    hint = (
        f" {others[0]} is a pickle, which could run code: convert it to safetensors."
        if others
        else ""
    )
    raise ModelFileError(f"{folder} has neither {SINGLE} nor {INDEX}.{hint}")


def float_tensors(folder: Path) -> dict[str, TensorView]:
    """The tensors of floats by the names that the files have; others are left out."""
    stored = _stored_tensors(folder)
    return {name: float_view(tensor) for name, tensor in stored.items() if tensor.dtype in FLOATS}


def _facts(folder: Path, config: Fields) -> ModelFacts:
    facts = facts_from_config(config.values, config.where)
    facts = with_pooling(facts, folder, config, named_architecture(config))
    return with_generation(facts, folder, config)


def with_generation(facts: ModelFacts, folder: Path, config: Fields) -> ModelFacts:
    """The facts with what a generation needs: end ids, begin id, defaults of parameters."""
    sections = [config, text_section(config)]
    eos = known_token_ids(
        eos_token_ids(folder, sections), facts.vocab_size, str(folder), "the EOS id"
    )
    bos = known_token_ids(bos_token_ids(sections), facts.vocab_size, str(folder), "the BOS id")
    return replace(
        facts,
        eos_token_ids=eos,
        bos_token_id=bos[0] if bos else None,
        generation_defaults=generation_defaults(folder),
    )


def _stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    files = weight_files(folder)
    by_file = {path.name: read_stored(path) for path in files}
    tensors = {name: tensor for found in by_file.values() for name, tensor in found.items()}
    if (folder / INDEX).is_file():
        _check_index(_weight_map(folder), by_file)
    return tensors


def _dense_tensors(folder: Path, facts: ModelFacts) -> dict[str, TensorView]:
    """Small layers that sentence-transformers keeps in folders of their own."""
    tensors: dict[str, TensorView] = {}
    for prefix, path in dense_files(folder).items() if facts.pooling is not None else ():
        for name, view in read_safetensors(path).items():
            tensors[prefix + name] = replace(view, name=prefix + name)
    return tensors


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor name -> file name, with nothing that leads out of the folder."""
    index = read_fields(folder / INDEX)
    section = index.section("weight_map")
    if section is None:
        index.refuse("weight_map", "is missing")
    weight_map = {name: section.text(name) for name in section}
    for name, file_name in weight_map.items():
        if Path(file_name).name != file_name or not file_name.endswith(".safetensors"):
            section.refuse(name, f"must name a .safetensors file of the folder, got {file_name!r}")
    return weight_map


def _check_index(
    weight_map: Mapping[str, str], by_file: Mapping[str, Mapping[str, StoredTensor]]
) -> None:
    """Each tensor lies in the file that the index says, and in no other."""
    actual = {(name, file_name) for file_name, views in by_file.items() for name in views}
    differing = sorted(actual ^ set(weight_map.items()))
    if differing:
        name, file_name = differing[0]
        is_there = "has" if (name, file_name) in actual else "does not have"
        raise CorruptFileError(
            f"{INDEX} does not match the files: {file_name} {is_there} {name}, the index differs "
            f"({len(differing)} differences in all)"
        )


def _decoder_only(tensors: Mapping[str, TensorView]) -> dict[str, TensorView]:
    """Names as of a model that only reads and writes text; parts for images are left out."""
    renamed: dict[str, TensorView] = {}
    for name, view in tensors.items():
        if name.startswith(_OTHER_PARTS):
            continue
        new_name = name
        for prefix, ours in _DECODER_PREFIXES.items():
            if name.startswith(prefix):
                new_name = ours + name.removeprefix(prefix)
                break
        renamed[new_name] = view if new_name == name else replace(view, name=new_name)
    return renamed
