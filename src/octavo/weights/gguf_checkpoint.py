"""A GGUF file, or the parts of a split one, as a Checkpoint.

Owns the renaming of tensors and the joining of parts. Does not know the format (`gguf_reader.py`)
or the meaning of keys (`gguf_facts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.config.model_facts import ModelFacts
from octavo.errors import CorruptFileError
from octavo.foundation.registry import Registry
from octavo.text.tokenizer import Tokenizer
from octavo.weights.arrangement import arranged
from octavo.weights.blame import about
from octavo.weights.checkpoint import TensorView
from octavo.weights.fields import Fields
from octavo.weights.gguf_facts import architecture_of, facts_from_gguf
from octavo.weights.gguf_metadata import GgufMetadata
from octavo.weights.gguf_names import (
    GgufArchitecture,
    as_stored,
    hf_tensor_name,
    interleaved_heads,
)
from octavo.weights.gguf_parts import part_paths
from octavo.weights.gguf_reader import GgufFile, read_gguf
from octavo.weights.gguf_repack import RepackedRows, scaled
from octavo.weights.gguf_rope import ROPE_TENSORS

# Imported by the thread that makes the tokenizer, while others read weights.
TOKENIZERS: Registry[Callable[[Mapping[str, object]], Tokenizer]] = Registry(
    "tokenizer", {"gguf": "octavo.text.gguf_tokenizer:tokenizer_from_gguf"}
)
SHARED_GATE = ".shared_expert_gate.weight"


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    """A model in GGUF. Satisfies the `Checkpoint` contract."""

    name: str
    facts: ModelFacts
    tensors: Mapping[str, TensorView]
    chat_template: str | None
    metadata: GgufMetadata
    where: str

    @property
    def quantisation(self) -> str | None:
        """See `Checkpoint`: "gguf" where any tensor is quantised."""
        is_quantised = any(view.type.block_elements > 1 for view in self.tensors.values())
        return "gguf" if is_quantised else None

    def load_tokenizer(self) -> Tokenizer:
        """Build the tokenizer from the vocabulary in the file."""
        with about(self.where):
            tokenizer: Tokenizer = TOKENIZERS.load("gguf")(self.metadata)
            return tokenizer


def open_gguf(path: Path, *, name: str | None = None) -> GgufCheckpoint:
    """Open a file; of a split model any part will do.

    Raises CorruptFileError, UnsupportedModelError, or ModelFileError when a part is missing.
    """
    with about(str(path)):
        return _open(path, name)


def _open(path: Path, name: str | None) -> GgufCheckpoint:
    files = [read_gguf(part) for part in part_paths(path)]
    first, where = files[0], path.name
    _check_parts(files)
    tensors = _scaled(_joined(files))
    architecture = as_stored(architecture_of(first.metadata, where), tensors)
    facts = facts_from_gguf(first.metadata, tensors, where)
    keys = Fields(first.metadata, where)
    return GgufCheckpoint(
        name=name or keys.text("general.name", path.stem),
        facts=facts,
        tensors=_renamed(tensors, architecture, facts, where),
        chat_template=keys.optional_text("tokenizer.chat_template"),
        metadata=first.metadata,
        where=str(path),
    )


def _check_parts(files: list[GgufFile]) -> None:
    """Each part must say that it is that part of so many."""
    for number, file in enumerate(files):
        keys = Fields(file.metadata, file.path.name)
        count = keys.integer("split.count", 0)
        if count in (0, 1) and len(files) == 1:
            continue
        if count != len(files) or keys.integer("split.no", 0) != number:
            raise CorruptFileError(
                f"{file.path.name} says it is part {keys.integer('split.no', 0) + 1} of {count}, "
                f"its name says {number + 1} of {len(files)}"
            )


def _joined(files: list[GgufFile]) -> dict[str, TensorView]:
    tensors: dict[str, TensorView] = {}
    for file in files:
        for name, tensor in file.tensors.items():
            if name in tensors:
                raise CorruptFileError(
                    f"{file.path.name}: the tensor {name} is in another part as well"
                )
            tensors[name] = tensor
    return tensors


def _scaled(tensors: Mapping[str, TensorView]) -> dict[str, TensorView]:
    """NVFP4 tensors with the scale that lies beside them; those of activations are not used."""
    result = dict(tensors)
    for name, view in tensors.items():
        stem, _, ending = name.rpartition(".")
        if ending != "weight" or not isinstance(view.source, RepackedRows):
            continue
        result.pop(f"{stem}.input_scale", None)
        scale = result.pop(f"{stem}.scale", None)
        if scale is not None:
            result[name] = scaled(view, scale)
    return result


def _renamed(
    tensors: Mapping[str, TensorView], architecture: GgufArchitecture, facts: ModelFacts, where: str
) -> dict[str, TensorView]:
    """Tensors by Hugging Face name, fused ones taken apart. The rope factors are facts by now."""
    renamed: dict[str, TensorView] = {}
    for name, tensor in tensors.items():
        if name in ROPE_TENSORS:
            continue
        new_name = hf_tensor_name(name, architecture)
        if new_name in renamed:
            raise CorruptFileError(f"{where}: two tensors would be {new_name}")
        heads = interleaved_heads(name, architecture, facts.num_heads, facts.num_kv_heads)
        if heads and tensor.shape[0] % (2 * heads):
            raise CorruptFileError(
                f"{where}: {name} has {tensor.shape[0]} rows for {heads} heads; "
                "each must have the same even number"
            )
        shape = tensor.shape
        if new_name.endswith(SHARED_GATE) and len(shape) == 1:  # written by older converters
            shape = (1, *shape)
        renamed[new_name] = replace(tensor, name=new_name, interleaved_heads=heads, shape=shape)
    return arranged(renamed, facts, architecture.arrangement)
