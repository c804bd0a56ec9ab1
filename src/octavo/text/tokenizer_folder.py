"""The tokenizer of a model folder, from whichever file it has.

Owns the order: tokenizer.json, Mistral's tekken.json, a SentencePiece model, a tiktoken file. Does
not know the formats.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.errors import CorruptFileError, ModelFileError
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.gguf_vocabulary import KEY, TokenKind
from octavo.text.ranked_vocabulary import RankedVocabulary
from octavo.text.sentencepiece_model import read_sentencepiece
from octavo.text.tekken import read_tekken
from octavo.text.tiktoken_file import is_tiktoken, read_tiktoken
from octavo.text.tokenizer import Tokenizer
from octavo.text.tokenizer_files import TokenizerFiles, read_tokenizer_files, wanted_tokens
from octavo.text.tokenizer_json import tokenizer_from_json

JSON, TEKKEN, MODEL = "tokenizer.json", "tekken.json", "tokenizer.model"


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder in Hugging Face's layout, or in that of the model's makers.

    Raises ModelFileError when no file has a vocabulary, CorruptFileError when one is malformed,
    UnsupportedModelError for a vocabulary that needs rules which are not known.
    """
    files = read_tokenizer_files(folder)
    if (folder / JSON).is_file():
        return tokenizer_from_json(files)
    if (folder / TEKKEN).is_file():
        return _from_ranks(folder / TEKKEN, read_tekken)
    special = {id_: token.content for id_, token in wanted_tokens(files).items()}
    for path in (folder / MODEL, *sorted(folder.glob("*.tiktoken"))):
        if not path.is_file():
            continue
        if is_tiktoken(path):
            return _from_ranks(path, lambda path: read_tiktoken(path, special))
        return tokenizer_from_gguf(_completed(read_sentencepiece(path), files))
    raise ModelFileError(
        f"{folder} has none of {JSON}, {TEKKEN}, {MODEL} and *.tiktoken, so no vocabulary"
    )


def _from_ranks(path: Path, read: Callable[[Path], RankedVocabulary]) -> Tokenizer:
    vocabulary = read(path)
    try:
        return tokenizer_from_gguf(vocabulary.metadata(), vocabulary.rule)
    except CorruptFileError as error:
        raise CorruptFileError(f"{path}: {error}") from error


def _completed(metadata: dict[str, Any], files: TokenizerFiles) -> dict[str, object]:
    """A SentencePiece vocabulary with the tokens and the flags that the other files add.

    Raises CorruptFileError for ids that leave a gap.
    """
    tokens, kinds, scores = (metadata[KEY + name] for name in ("tokens", "token_type", "scores"))
    for id_, token in sorted(wanted_tokens(files).items()):
        if id_ > len(tokens):
            raise CorruptFileError(
                f"{files.folder}: the added token {token.content!r} has the id {id_}, and there "
                f"are {len(tokens)} tokens before it"
            )
        if id_ == len(tokens):
            tokens.append(token.content)
            kinds.append(int(TokenKind.CONTROL if token.special else TokenKind.USER_DEFINED))
            scores.append(0.0)
    flags = {name: files.flag(name) for name in ("add_bos_token", "add_eos_token")}
    return metadata | {KEY + name: flag for name, flag in flags.items() if flag is not None}
