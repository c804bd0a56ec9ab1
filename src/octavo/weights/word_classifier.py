"""A classifier made of a language model's words: rerankers that answer "yes" or "no".

Owns the matrix: rows of the output matrix, or the difference of two of them. A model so used has a
score that is the logit of one word over another, as vLLM makes it. Does not know what asks for it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.text.tokenizer_folder import tokenizer_from_folder
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.fields import Fields

SCORE = "score.weight"
_SOURCES = ("lm_head.weight", "model.embed_tokens.weight")  # the second where both are one


def words_of(config: Fields) -> list[str]:
    """The words whose logits are the scores; none for any other model."""
    return config.texts("classifier_from_token")


def compares_words(config: Fields) -> bool:
    """Whether the score is that of the second word over the first."""
    return config.flag("is_original_qwen3_reranker", False) or (
        config.text("method", "") == "from_2_way_softmax"
    )


def score_matrix(
    tensors: Mapping[str, TensorView], folder: Path, config: Fields
) -> dict[str, TensorView]:
    """The classifier's matrix under its name; empty for a model that is none of words.

    Raises CorruptFileError for a word that is no token, UnsupportedModelError for a matrix whose
    rows cannot be read.
    """
    words = words_of(config)
    if not words:
        return {}
    rows = _rows(tensors, folder, words)
    if compares_words(config):
        if len(rows) != 2:
            config.refuse("classifier_from_token", "must name two words to compare")
        no, yes = rows
        rows = [array("f", [b - a for a, b in zip(no, yes, strict=True)])]
    data = memoryview(b"".join(row.tobytes() for row in rows))
    shape = (len(rows), len(rows[0]))
    return {SCORE: TensorView(SCORE, WeightType.F32, shape, data)}


def _rows(
    tensors: Mapping[str, TensorView], folder: Path, words: Sequence[str]
) -> list[array[float]]:
    view = next((tensors[name] for name in _SOURCES if name in tensors), None)
    if view is None:
        raise CorruptFileError(f"{folder} has no output matrix to make a classifier of")
    tokenizer = tokenizer_from_folder(folder)
    rows = []
    for word in words:
        token_id = tokenizer.id_of(word)
        if token_id is None or token_id >= view.shape[0]:
            raise CorruptFileError(f"classifier_from_token: {word!r} is no token of {folder}")
        size = view.row_bytes
        rows.append(_floats(view, view.data[token_id * size : (token_id + 1) * size]))
    return rows


def _floats(view: TensorView, data: memoryview) -> array[float]:
    """The elements of one row, stored as they lie."""
    count = view.shape[1]
    if view.row_order is None:
        if view.type is WeightType.F32:
            return array("f", bytes(data))
        if view.type is WeightType.F16:
            return array("f", struct.unpack(f"<{count}e", data))
        if view.type is WeightType.BF16:
            halves = array("H", bytes(data))
            return array("f", array("I", [half << 16 for half in halves]).tobytes())
    raise UnsupportedModelError(f"a classifier cannot be made of rows of {view.name}")
