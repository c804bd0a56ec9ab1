"""Tokenizers of GGUF files by the `tokenizers` library, where native code has no rule of its own.

Owns the way from the lists of a file to that library: word pieces, rules for words that are only
known as expressions, SentencePiece with strips. Does not know which kinds these are
(`gguf_tokenizer.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from octavo.errors import CorruptFileError
from octavo.text.gguf_vocabulary import KEY, GgufVocabulary, TokenKind, is_bracketed
from octavo.text.pre_tokenizers import WordRule
from octavo.text.spelling import BYTE_TOKEN, SPACE_MARK

NUM_BYTE_TOKENS = 256


def byte_level(vocabulary: GgufVocabulary, rule: WordRule) -> tokenizers.Tokenizer:
    """Byte-level BPE by any rule for words."""
    model = _bpe(vocab=vocabulary.ids, merges=vocabulary.merges, ignore_merges=rule.ignores_merges)
    library = tokenizers.Tokenizer(model)
    normalizer = rule.normalizer()
    if normalizer is not None:
        library.normalizer = normalizer
    library.pre_tokenizer = _pre_tokenizer(rule)
    library.decoder = decoders.ByteLevel()
    _add_whole_tokens(vocabulary, library)
    return library


def listed_sentencepiece(
    vocabulary: GgufVocabulary, scores: Sequence[float], adds_space: bool
) -> tokenizers.Tokenizer:
    """SentencePiece BPE by way of a list of merges."""
    unknown = vocabulary.id_of("unknown_token_id")
    model = _bpe(
        vocab=vocabulary.ids,
        merges=_merges_by_score(vocabulary, scores),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=_has_all_bytes(vocabulary),
    )
    library = tokenizers.Tokenizer(model)
    space = normalizers.Replace(" ", SPACE_MARK)
    # Every stretch of text between special tokens gets the space, as in llama.cpp and in the
    # tokenizer.json of Llama 2.
    first = [normalizers.Prepend(SPACE_MARK)] if adds_space else []
    library.normalizer = normalizers.Sequence([*first, space])
    parts = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if adds_space:
        parts.append(decoders.Strip(" ", 1, 0))
    library.decoder = decoders.Sequence(parts)
    _add_whole_tokens(vocabulary, library)
    return library


def word_pieces(vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    """BERT's words and pieces, with special tokens around one text or two.

    The file does not say whether letters are made small: they are unless the vocabulary has
    large ones.
    """
    unknown = vocabulary.id_of("unknown_token_id")
    name = "[UNK]" if unknown is None else vocabulary.tokens[unknown]
    try:
        model = models.WordPiece(vocab=vocabulary.ids, unk_token=name)
    except Exception as error:  # the library raises nothing narrower
        raise CorruptFileError(f"{KEY}tokens make no vocabulary: {error}") from error
    library = tokenizers.Tokenizer(model)
    words = [vocabulary.tokens[id_] for id_ in _normal_ids(vocabulary)]
    is_cased = any(word != word.lower() for word in words if not is_bracketed(word))
    library.normalizer = normalizers.BertNormalizer(lowercase=not is_cased)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    _add_whole_tokens(vocabulary, library)
    begin, end = (
        _mark(vocabulary, "cls", "bos", "[CLS]"),
        _mark(vocabulary, "seperator", "eos", "[SEP]"),
    )
    library.post_processor = processors.TemplateProcessing(
        single=[begin, "$A", end],
        pair=[begin, "$A", end, "$B:1", f"{end}:1"],
        special_tokens=[(begin, vocabulary.ids[begin]), (end, vocabulary.ids[end])],
    )
    return library


def _mark(vocabulary: GgufVocabulary, key: str, older_key: str, name: str) -> str:
    """The token that begins or ends a text, under its key, an older one or its usual name."""
    for id_ in (vocabulary.id_of(f"{key}_token_id"), vocabulary.id_of(f"{older_key}_token_id")):
        if id_ is not None:
            return vocabulary.tokens[id_]
    if name not in vocabulary.ids:
        raise CorruptFileError(f"{KEY}{key}_token_id is missing, and so is the token {name}")
    return name


def _merges_by_score(vocabulary: GgufVocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """Each way of putting a token together from two others, best token first.

    SentencePiece merges the neighbours whose union has the best score; a merge list in order of
    that score does the same. Only ordinary tokens take part: text that spells the name of a
    control or byte token is not that token.
    Ways of one token are ordered longest left part first, as in Hugging Face's converters.
    """
    ordinary = _normal_ids(vocabulary)
    ids = sorted(ordinary, key=lambda id_: -scores[id_])  # stable: ties in order of id
    tokens = [vocabulary.tokens[id_] for id_ in ids]
    known = set(tokens)
    return [
        (left, right)
        for token in tokens
        for cut in range(len(token) - 1, 0, -1)
        if (right := token[cut:]) in known and (left := token[:cut]) in known
    ]


def _normal_ids(vocabulary: GgufVocabulary) -> list[int]:
    return [id_ for id_, kind in enumerate(vocabulary.kinds) if kind == TokenKind.NORMAL]


def _has_all_bytes(vocabulary: GgufVocabulary) -> bool:
    """Whether any text can be spelled in single bytes."""
    names = {vocabulary.tokens[id_] for id_ in vocabulary.ids_of(TokenKind.BYTE)}
    return len([name for name in names if BYTE_TOKEN.fullmatch(name)]) == NUM_BYTE_TOKENS


def _add_whole_tokens(vocabulary: GgufVocabulary, library: tokenizers.Tokenizer) -> None:
    """Control and user-defined tokens are never cut, and found in the text as it is written."""
    tokens, strips = vocabulary.tokens, vocabulary.stripping
    special = [
        AddedToken(tokens[id_], special=True, normalized=False, rstrip=tokens[id_] in strips)
        for id_ in vocabulary.ids_of(TokenKind.CONTROL, TokenKind.UNKNOWN)
    ]
    library.add_special_tokens(special)
    library.add_tokens(
        [
            AddedToken(tokens[id_], special=False, normalized=False)
            for id_ in vocabulary.ids_of(TokenKind.USER_DEFINED)
        ]
    )


def _pre_tokenizer(rule: WordRule) -> pre_tokenizers.PreTokenizer:
    try:
        return rule.pre_tokenizer()
    except Exception as error:  # the library raises nothing narrower
        raise CorruptFileError(f"words cannot be cut by {rule.expressions}: {error}") from error


def _bpe(**fields: Any) -> models.BPE:
    try:
        return models.BPE(**fields)
    except Exception as error:  # the library raises nothing narrower
        raise CorruptFileError(f"{KEY}tokens and {KEY}merges do not fit: {error}") from error
