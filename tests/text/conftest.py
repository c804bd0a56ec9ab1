"""The two real vocabularies, read once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.tokenizer import Tokenizer
from octavo.weights.gguf_reader import read_gguf
from tests.support.data import gemma3_path, smollm2_path


def decoded(metadata: Mapping[str, object]) -> dict[str, object]:
    """The keys of a tokenizer, lists read once."""
    return {
        key: metadata[key] for key in metadata if key.startswith(("tokenizer.", "general.arch"))
    }


@pytest.fixture(scope="session")
def smollm2_metadata() -> Mapping[str, object]:
    return decoded(read_gguf(smollm2_path()).metadata)


@pytest.fixture(scope="session")
def gemma3_metadata() -> Mapping[str, object]:
    return decoded(read_gguf(gemma3_path()).metadata)


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: Mapping[str, object]) -> Tokenizer:
    """Byte-level BPE, 49 thousand tokens."""
    return tokenizer_from_gguf(smollm2_metadata)


@pytest.fixture(scope="session")
def gemma3(gemma3_metadata: Mapping[str, object]) -> Tokenizer:
    """SentencePiece, 262 thousand tokens."""
    return tokenizer_from_gguf(gemma3_metadata)
