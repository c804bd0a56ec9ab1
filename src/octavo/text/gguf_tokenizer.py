"""A tokenizer from the metadata of a GGUF file.

Owns which kind of vocabulary is cut by whom: byte-level BPE (`gpt2`) and SentencePiece BPE
(`llama`) by our own code (`byte_pairs.py`, `sentencepiece.py`) where it has the rules, WordPiece
(`bert`) and the rest by the `tokenizers` library (`gguf_library.py`). A file holds the vocabulary,
not a tokenizer: what a tokenizer.json would say besides is known by the name of the pre-tokenizer
(`pre_tokenizers.py`) or recovered from scores. Does not know: where the metadata come from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.foundation.registry import Registry
from octavo.text.byte_pairs import DECODER, open_pairs
from octavo.text.gguf_vocabulary import KEY, WORD_PIECES, GgufVocabulary, TokenKind
from octavo.text.library import Library
from octavo.text.pre_tokenizers import WordRule, word_rule
from octavo.text.sentencepiece import decoder_of, open_pieces
from octavo.text.stored_library import Pieces, StoredLibrary
from octavo.text.tokenizer import Frame, Tokenizer

logger = logging.getLogger(__name__)

# Few files need the `tokenizers` library.
BY_LIBRARY: Registry[Callable[..., Any]] = Registry(
    "way to make a tokenizer",
    {
        "byte level": "octavo.text.gguf_library:byte_level",
        "sentencepiece": "octavo.text.gguf_library:listed_sentencepiece",
        "word pieces": "octavo.text.gguf_library:word_pieces",
    },
)


def tokenizer_from_gguf(metadata: Mapping[str, object], rule: WordRule | None = None) -> Tokenizer:
    """Build the tokenizer that a GGUF file describes.

    `rule` cuts words in place of the one that the file names.

    Raises UnsupportedModelError for a kind of vocabulary or pre-tokenizer that is not known,
    CorruptFileError for lists that are missing or contradict each other.
    """
    return _Builder(GgufVocabulary(metadata), rule).build()


class _Builder:
    """The vocabulary of one file on its way to a tokenizer."""

    def __init__(self, vocabulary: GgufVocabulary, rule: WordRule | None) -> None:
        self._vocabulary = vocabulary
        self._rule = rule

    def build(self) -> Tokenizer:
        """The tokenizer."""
        vocabulary = self._vocabulary
        model = vocabulary.model
        builders: dict[object, Callable[[], tuple[Library, bool]]] = {
            "gpt2": self._byte_level,
            "llama": self._sentencepiece,
            WORD_PIECES: self._word_pieces,
        }
        if not isinstance(model, str) or model not in builders:
            known = ", ".join(sorted(map(str, builders)))
            raise UnsupportedModelError(
                f"{KEY}model is {model!r}, a kind of tokenizer that is not supported. "
                f"Supported: {known}"
            )
        library, adds_bos = builders[model]()
        named = vocabulary.named_token_ids()
        special = set(vocabulary.ids_of(TokenKind.CONTROL, TokenKind.UNKNOWN))
        texts = {name: library.id_to_token(id_) for name, id_ in named.items()}
        return Tokenizer(
            library,
            named_tokens={name: text for name, text in texts.items() if text is not None},
            special_ids=special | set(named.values()),
            frame=None if model == WORD_PIECES else self._frame(named, adds_bos),
        )

    def _byte_level(self) -> tuple[Library, bool]:
        """Byte-level BPE: merges are in the file, the cutting of words is known by name."""
        rule = self._rule or self._named_rule()
        pairs = None if self._vocabulary.stripping else self._pairs(rule)
        if pairs is None:
            return BY_LIBRARY.load("byte level")(self._vocabulary, rule), rule.adds_bos
        return StoredLibrary(pairs, self._whole_ids(), DECODER), rule.adds_bos

    def _pairs(self, rule: WordRule) -> Pieces | None:
        vocabulary = self._vocabulary
        return open_pairs(
            vocabulary.stored_tokens, vocabulary.kinds, vocabulary.stored_merges, rule
        )

    def _named_rule(self) -> WordRule:
        name = self._vocabulary.metadata.get(KEY + "pre")
        if not isinstance(name, str):
            logger.warning("the file has no %spre; words are cut by the rule `default`", KEY)
            name = "default"
        return word_rule(name)

    def _sentencepiece(self) -> tuple[Library, bool]:
        """SentencePiece BPE: the file has scores, from which the merges follow."""
        vocabulary = self._vocabulary
        scores = vocabulary.list_of("scores", float)
        vocabulary.check_length("scores", scores)
        adds_space = vocabulary.flag("add_space_prefix", default=True)
        pieces = None if vocabulary.stripping else self._pieces(scores, adds_space)
        if pieces is None:
            return BY_LIBRARY.load("sentencepiece")(vocabulary, scores, adds_space), True
        return StoredLibrary(pieces, self._whole_ids(), decoder_of(adds_space=adds_space)), True

    def _pieces(self, scores: Sequence[float], adds_space: bool) -> Pieces | None:
        vocabulary = self._vocabulary
        unknown = vocabulary.id_of("unknown_token_id")
        try:
            return open_pieces(
                vocabulary.stored_tokens,
                vocabulary.kinds,
                scores,
                adds_space=adds_space,
                unknown=unknown,
            )
        except ValueError as error:
            raise CorruptFileError(f"{KEY}tokens: {error}") from error

    def _word_pieces(self) -> tuple[Library, bool]:
        return BY_LIBRARY.load("word pieces")(self._vocabulary), False

    def _whole_ids(self) -> dict[int, bool]:
        """Tokens that are never cut -> whether they are special."""
        ids_of = self._vocabulary.ids_of
        whole = dict.fromkeys(ids_of(TokenKind.CONTROL, TokenKind.UNKNOWN), True)
        return whole | dict.fromkeys(ids_of(TokenKind.USER_DEFINED), False)

    def _frame(self, named: Mapping[str, int], adds_bos: bool) -> Frame:
        """What add_bos_token and add_eos_token put around a text."""
        begin: tuple[int, ...] = ()
        end: tuple[int, ...] = ()
        if self._vocabulary.flag("add_bos_token", default=adds_bos) and "bos_token" in named:
            begin = (named["bos_token"],)
        if self._vocabulary.flag("add_eos_token", default=False) and "eos_token" in named:
            end = (named["eos_token"],)
        return Frame(begin, end)
