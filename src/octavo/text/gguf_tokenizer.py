"""A tokenizer from the metadata of a GGUF file.

Owns the meaning of the `tokenizer.ggml.*` keys: byte-level BPE (`gpt2`), SentencePiece BPE
(`llama`, merged by our own code: `sentencepiece.py`), its unigram kind (`t5`) and WordPiece
(`bert`). A file holds the vocabulary, not a tokenizer: what a tokenizer.json would say besides is
known by the name of the pre-tokenizer (`pre_tokenizers.py`) or recovered from scores. Does not
know: where the metadata come from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.text.library import Library
from octavo.text.pre_tokenizers import WordRule, word_rule
from octavo.text.sentencepiece import Pieces, SentencePieceLibrary, open_pieces
from octavo.text.spelling import BYTE_TOKEN, SPACE_MARK
from octavo.text.tokenizer import Frame, Tokenizer
from octavo.text.unigram import framed_as_roberta, unigram_library

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEY = "tokenizer.ggml."
NUM_BYTE_TOKENS = 256
WORD_PIECES, UNIGRAM = "bert", "t5"
# GGUF key of a token's id -> the name chat templates use.
NAMED_KEYS = {
    "bos_token_id": "bos_token",
    "eos_token_id": "eos_token",
    "unknown_token_id": "unk_token",
    "seperator_token_id": "sep_token",  # the format's own spelling
    "padding_token_id": "pad_token",
    "cls_token_id": "cls_token",
    "mask_token_id": "mask_token",
}


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@runtime_checkable
class StoredStrings(Protocol):
    """Metadata that can show a list of strings where it lies."""

    def stored_strings(self, key: str) -> tuple[memoryview, int] | None:
        """(each string as its length u64 and its bytes, their number); None for other values."""

    def stored_pairs(self, key: str) -> list[tuple[str, str]] | None:
        """Each string cut at its first space; None for other values, and if one is no pair."""


def tokenizer_from_gguf(metadata: Mapping[str, object], rule: WordRule | None = None) -> Tokenizer:
    """Build the tokenizer that a GGUF file describes.

    `rule` cuts words in place of the one that the file names.

    Raises UnsupportedModelError for a kind of vocabulary or pre-tokenizer that is not known,
    CorruptFileError for lists that are missing or contradict each other.
    """
    return _GgufVocabulary(metadata, rule).build()


class _GgufVocabulary:
    """The keys of one file, checked."""

    def __init__(self, metadata: Mapping[str, object], rule: WordRule | None) -> None:
        self._metadata = metadata
        self._rule = rule
        self._stored, self._num_tokens = self._stored_tokens()
        kinds = self._list("token_type", int, optional=True)
        self.kinds: Sequence[int] = kinds or [TokenKind.NORMAL] * self._num_tokens
        self._check_length("token_type", self.kinds)
        self._ids_by_kind = _grouped(self.kinds)

    @cached_property
    def tokens(self) -> list[str]:
        """All tokens by id; decoded when somebody asks, for a large vocabulary takes a moment."""
        tokens = _named_tokens(self._list("tokens", str))
        if self._metadata.get(KEY + "model") == WORD_PIECES:
            return [word_piece(token) for token in tokens]
        return tokens

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        ids = {token: id_ for id_, token in enumerate(self.tokens)}
        if len(ids) != len(self.tokens):
            twice = next(token for id_, token in enumerate(self.tokens) if ids[token] != id_)
            raise CorruptFileError(f"{KEY}tokens holds {twice!r} twice")
        return ids

    def build(self) -> Tokenizer:
        """The tokenizer. A builder says whether there is a BOS unless the file does; None: the
        library puts tokens around texts."""
        model = self._metadata.get(KEY + "model")
        builders: dict[object, Callable[[], tuple[Library, bool | None]]] = {
            "gpt2": self._byte_level,
            "llama": self._sentencepiece,
            UNIGRAM: self._unigram,
            WORD_PIECES: self._word_pieces,
        }
        if not isinstance(model, str) or model not in builders:
            known = ", ".join(sorted(map(str, builders)))
            raise UnsupportedModelError(
                f"{KEY}model is {model!r}, a kind of tokenizer that is not supported. "
                f"Supported: {known}"
            )
        library, adds_bos = builders[model]()
        named = self._named_token_ids()
        special = set(self._ids_of(TokenKind.CONTROL, TokenKind.UNKNOWN))
        texts = {name: library.id_to_token(id_) for name, id_ in named.items()}
        return Tokenizer(
            library,
            named_tokens={name: text for name, text in texts.items() if text is not None},
            special_ids=special | set(named.values()),
            frame=None if adds_bos is None else self._frame(named, adds_bos),
        )

    def _byte_level(self) -> tuple[Library, bool]:
        """Byte-level BPE: merges are in the file, the cutting of words is known by name."""
        rule = self._rule or self._named_rule()
        model = _bpe(vocab=self.ids, merges=self._merges(), ignore_merges=rule.ignores_merges)
        library = tokenizers.Tokenizer(model)
        normalizer = rule.normalizer()
        if normalizer is not None:
            library.normalizer = normalizer
        library.pre_tokenizer = _pre_tokenizer(rule)
        library.decoder = decoders.ByteLevel()
        self._add_whole_tokens(library)
        return library, rule.adds_bos

    def _merges(self) -> list[tuple[str, str]]:
        """Merges as the library wants them."""
        if isinstance(self._metadata, StoredStrings):
            pairs = self._metadata.stored_pairs(KEY + "merges")
            if pairs is not None:
                return pairs
        return [_halves(merge) for merge in self._list("merges", str)]

    def _named_rule(self) -> WordRule:
        name = self._metadata.get(KEY + "pre")
        if not isinstance(name, str):
            logger.warning("the file has no %spre; words are cut by the rule `default`", KEY)
            name = "default"
        return word_rule(name)

    def _sentencepiece(self) -> tuple[Library, bool]:
        """SentencePiece BPE: the file has scores, from which the merges follow."""
        scores = self._list("scores", float)
        self._check_length("scores", scores)
        adds_space = self._flag("add_space_prefix", default=True)
        parts = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
        if adds_space:
            parts.append(decoders.Strip(" ", 1, 0))
        decoder = decoders.Sequence(parts)
        pieces = None if self._phi3_strips() else self._pieces(scores, adds_space)
        if pieces is None:
            return self._listed_sentencepiece(scores, adds_space, decoder), True
        whole = dict.fromkeys(self._ids_of(TokenKind.CONTROL, TokenKind.UNKNOWN), True)
        whole |= dict.fromkeys(self._ids_of(TokenKind.USER_DEFINED), False)
        return SentencePieceLibrary(pieces, whole, decoder), True

    def _pieces(self, scores: Sequence[float], adds_space: bool) -> Pieces | None:
        unknown = self._id("unknown_token_id")
        try:
            return open_pieces(
                self._stored, self.kinds, scores, adds_space=adds_space, unknown=unknown
            )
        except ValueError as error:
            raise CorruptFileError(f"{KEY}tokens: {error}") from error

    def _listed_sentencepiece(
        self, scores: Sequence[float], adds_space: bool, decoder: decoders.Decoder
    ) -> tokenizers.Tokenizer:
        """The same by way of a list of merges, for rules that only the `tokenizers` library has."""
        unknown = self._id("unknown_token_id")
        model = _bpe(
            vocab=self.ids,
            merges=self._merges_by_score(scores),
            unk_token=None if unknown is None else self.tokens[unknown],
            fuse_unk=True,
            byte_fallback=self._has_all_bytes(),
        )
        library = tokenizers.Tokenizer(model)
        space = normalizers.Replace(" ", SPACE_MARK)
        # Every stretch of text between special tokens gets the space, as in llama.cpp and in the
        # tokenizer.json of Llama 2.
        first = [normalizers.Prepend(SPACE_MARK)] if adds_space else []
        library.normalizer = normalizers.Sequence([*first, space])
        library.decoder = decoder
        self._add_whole_tokens(library)
        return library

    def _unigram(self) -> tuple[tokenizers.Tokenizer, bool | None]:
        """SentencePiece's other kind: XLM-RoBERTa's, with special tokens around one text or two."""
        scores, unknown = self._list("scores", float), self._id("unknown_token_id")
        self._check_length("scores", scores)
        if unknown is None:
            raise CorruptFileError(f"{KEY}unknown_token_id is missing")
        table = self._list("precompiled_charsmap", int, optional=True)
        library = unigram_library(
            self.tokens,
            scores,
            unknown=unknown,
            rewritings=bytes(byte & 0xFF for byte in table),
            adds_space=self._flag("add_space_prefix", default=True),
            joins_spaces=self._flag("remove_extra_whitespaces", default=False),
        )
        self._add_whole_tokens(library)
        begin, end = self._id("bos_token_id"), self._id("eos_token_id")
        is_framed = all(self._flag(f"add_{key}_token", default=True) for key in ("bos", "eos"))
        if is_framed and begin is not None and end is not None:
            framed_as_roberta(library, self.tokens[begin], self.tokens[end])
            return library, None
        return library, False

    def _word_pieces(self) -> tuple[tokenizers.Tokenizer, None]:
        """BERT's words and pieces, with special tokens around one text or two.

        The file does not say whether letters are made small: they are unless the vocabulary has
        large ones.
        """
        unknown = self._id("unknown_token_id")
        name = "[UNK]" if unknown is None else self.tokens[unknown]
        try:
            model = models.WordPiece(vocab=self.ids, unk_token=name)
        except Exception as error:  # the library raises nothing narrower
            raise CorruptFileError(f"{KEY}tokens make no vocabulary: {error}") from error
        library = tokenizers.Tokenizer(model)
        words = [self.tokens[id_] for id_ in self._ids_of(TokenKind.NORMAL)]
        is_cased = any(word != word.lower() for word in words if not _is_bracketed(word))
        library.normalizer = normalizers.BertNormalizer(lowercase=not is_cased)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.WordPiece()
        self._add_whole_tokens(library)
        begin, end = self._mark("cls", "bos", "[CLS]"), self._mark("seperator", "eos", "[SEP]")
        library.post_processor = processors.TemplateProcessing(
            single=[begin, "$A", end],
            pair=[begin, "$A", end, "$B:1", f"{end}:1"],
            special_tokens=[(begin, self.ids[begin]), (end, self.ids[end])],
        )
        return library, None

    def _mark(self, key: str, older_key: str, name: str) -> str:
        """The token that begins or ends a text, under its key, an older one or its usual name."""
        for id_ in (self._id(f"{key}_token_id"), self._id(f"{older_key}_token_id")):
            if id_ is not None:
                return self.tokens[id_]
        if name not in self.ids:
            raise CorruptFileError(f"{KEY}{key}_token_id is missing, and so is the token {name}")
        return name

    def _merges_by_score(self, scores: Sequence[float]) -> list[tuple[str, str]]:
        """Each way of putting a token together from two others, best token first.

        SentencePiece merges the neighbours whose union has the best score; a merge list in order of
        that score does the same. Only ordinary tokens take part: text that spells the name of a
        control or byte token is not that token.
        Ways of one token are ordered longest left part first, as in Hugging Face's converters.
        """
        ordinary = self._ids_of(TokenKind.NORMAL)
        ids = sorted(ordinary, key=lambda id_: -scores[id_])  # stable: ties in order of id
        tokens = [self.tokens[id_] for id_ in ids]
        known = set(tokens)
        return [
            (left, right)
            for token in tokens
            for cut in range(len(token) - 1, 0, -1)
            if (right := token[cut:]) in known and (left := token[:cut]) in known
        ]

    def _has_all_bytes(self) -> bool:
        """Whether any text can be spelled in single bytes."""
        names = {self.tokens[id_] for id_ in self._ids_of(TokenKind.BYTE)}
        return len([name for name in names if BYTE_TOKEN.fullmatch(name)]) == NUM_BYTE_TOKENS

    def _add_whole_tokens(self, library: tokenizers.Tokenizer) -> None:
        """Control and user-defined tokens are never cut, and found in the text as it is written."""
        strips = self._phi3_strips()
        special = [
            AddedToken(
                self.tokens[id_], special=True, normalized=False, rstrip=self.tokens[id_] in strips
            )
            for id_ in self._ids_of(TokenKind.CONTROL, TokenKind.UNKNOWN)
        ]
        library.add_special_tokens(special)
        library.add_tokens(
            [
                AddedToken(self.tokens[id_], special=False, normalized=False)
                for id_ in self._ids_of(TokenKind.USER_DEFINED)
            ]
        )

    def _phi3_strips(self) -> set[str]:
        """Phi-3's control tokens swallow the white space after them; only its name tells."""
        if self._metadata.get("general.architecture") != "phi3":
            return set()
        control = {self.tokens[id_] for id_ in self._ids_of(TokenKind.CONTROL)}
        return control - {"<unk>", "<s>", "<|endoftext|>"}

    def _frame(self, named: Mapping[str, int], adds_bos: bool) -> Frame:
        """What add_bos_token and add_eos_token put around a text."""
        begin: tuple[int, ...] = ()
        end: tuple[int, ...] = ()
        if self._flag("add_bos_token", default=adds_bos) and "bos_token" in named:
            begin = (named["bos_token"],)
        if self._flag("add_eos_token", default=False) and "eos_token" in named:
            end = (named["eos_token"],)
        return Frame(begin, end)

    def _named_token_ids(self) -> dict[str, int]:
        found = {}
        for key, name in NAMED_KEYS.items():
            id_ = self._id(key)
            if id_ is not None:
                found[name] = id_
        return found

    def _ids_of(self, *kinds: TokenKind) -> list[int]:
        """Ids of these kinds, in order of kind and id."""
        return [id_ for kind in kinds for id_ in self._ids_by_kind.get(kind, ())]

    def _id(self, key: str) -> int | None:
        """An id of the vocabulary; one outside of it is none, as in llama.cpp."""
        value = self._metadata.get(KEY + key)
        if not isinstance(value, int) or not 0 <= value < self._num_tokens:
            return None
        return value

    def _flag(self, key: str, *, default: bool) -> bool:
        value = self._metadata.get(KEY + key)
        return value if isinstance(value, bool) else default

    def _list(self, key: str, kind: type[T], *, optional: bool = False) -> list[T]:
        value = self._metadata.get(KEY + key)
        if value is None and optional:
            return []
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, list) or (value and not isinstance(value[0], accepted)):
            raise CorruptFileError(f"{KEY}{key} must be a list of {kind.__name__}")
        return value

    def _check_length(self, key: str, values: Sequence[object]) -> None:
        if len(values) != self._num_tokens:
            raise CorruptFileError(
                f"{KEY}{key} has {len(values)} entries for {self._num_tokens} tokens"
            )

    def _stored_tokens(self) -> tuple[object, int]:
        """The tokens as a file stores them, and how many they are."""
        if isinstance(self._metadata, StoredStrings):
            stored = self._metadata.stored_strings(KEY + "tokens")
            if stored is not None:
                return stored
        tokens = self._list("tokens", str)
        raw = [token.encode("utf-8", "surrogatepass") for token in tokens]
        return b"".join(len(token).to_bytes(8, "little") + token for token in raw), len(raw)


def word_piece(token: str) -> str:
    """BERT's spelling of a token: llama.cpp marks beginnings of words, BERT what follows them."""
    if _is_bracketed(token):
        return token
    if token.startswith(SPACE_MARK):
        return token.removeprefix(SPACE_MARK)
    return f"##{token}"


def _is_bracketed(token: str) -> bool:
    """Whether it is a name such as [CLS]."""
    return len(token) > 2 and token.startswith("[") and token.endswith("]")


def _named_tokens(tokens: list[str]) -> list[str]:
    """Tokens without a text get one, as in llama.cpp, so that all texts differ."""
    if "" not in tokens:
        return tokens
    return [token or f"[EMPTY_{id_}]" for id_, token in enumerate(tokens)]


def _grouped(kinds: Sequence[int]) -> dict[int, list[int]]:
    """Kind -> ids, in one pass over the vocabulary."""
    groups: dict[int, list[int]] = {kind: [] for kind in set(kinds)}
    for id_, kind in enumerate(kinds):
        groups[kind].append(id_)
    return groups


def _pre_tokenizer(rule: WordRule) -> pre_tokenizers.PreTokenizer:
    try:
        return rule.pre_tokenizer()
    except Exception as error:  # the library raises nothing narrower
        raise CorruptFileError(f"words cannot be cut by {rule.expressions}: {error}") from error


def _halves(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not right:
        raise CorruptFileError(f"{KEY}merges has an entry that is no pair: {merge!r}")
    return left, right


def _bpe(**fields: Any) -> models.BPE:
    try:
        return models.BPE(**fields)
    except Exception as error:  # the library raises nothing narrower
        raise CorruptFileError(f"{KEY}tokens and {KEY}merges do not fit: {error}") from error
