"""The vocabulary of a GGUF file: its `tokenizer.ggml.*` keys, checked when they are asked for.

Owns names and kinds of tokens and the lists as they are stored. Does not know how a text is cut.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Protocol, TypeVar, runtime_checkable

from octavo.errors import CorruptFileError
from octavo.text.spelling import SPACE_MARK

T = TypeVar("T")

KEY = "tokenizer.ggml."
WORD_PIECES = "bert"
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
class StoredLists(Protocol):
    """Metadata that can show a list where it lies."""

    def stored_strings(self, key: str) -> tuple[memoryview, int] | None:
        """(each string as its length u64 and its bytes, their number); None for other values."""

    def stored_pairs(self, key: str) -> list[tuple[str, str]] | None:
        """Each string cut at its first space; None for other values, and if one is no pair."""

    def stored_int32(self, key: str) -> memoryview | None:
        """A list of int32 as such; None for other values."""


class GgufVocabulary:
    """The keys of one file. Raises CorruptFileError where lists are missing or do not fit."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self.metadata = metadata
        self.stored_tokens, self.num_tokens = self._stored("tokens")
        self.kinds = self._kinds()
        """The kind of each token, a buffer of int32."""
        self.check_length("token_type", self.kinds)

    @cached_property
    def tokens(self) -> list[str]:
        """All tokens by id; decoded when somebody asks, for a large vocabulary takes a moment."""
        tokens = _named_tokens(self.list_of("tokens", str))
        if self.metadata.get(KEY + "model") == WORD_PIECES:
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

    @cached_property
    def merges(self) -> list[tuple[str, str]]:
        """Pairs of tokens, the first to be merged first."""
        if isinstance(self.metadata, StoredLists):
            pairs = self.metadata.stored_pairs(KEY + "merges")
            if pairs is not None:
                return pairs
        return [_halves(merge) for merge in self.list_of("merges", str)]

    @property
    def stored_merges(self) -> object:
        """Merges as a file stores them: each its length (u64) and its bytes."""
        return self._stored("merges")[0]

    @property
    def model(self) -> object:
        """The kind of vocabulary."""
        return self.metadata.get(KEY + "model")

    @property
    def stripping(self) -> set[str]:
        """Phi-3's control tokens swallow the white space after them; only its name tells."""
        if self.metadata.get("general.architecture") != "phi3":
            return set()
        control = {self.tokens[id_] for id_ in self.ids_of(TokenKind.CONTROL)}
        return control - {"<unk>", "<s>", "<|endoftext|>"}

    @cached_property
    def _ids_by_kind(self) -> dict[int, list[int]]:
        """In one pass over the vocabulary; the ordinary kind, which is most of it, is left out."""
        groups: dict[int, list[int]] = {}
        for id_, kind in enumerate(self.kinds):
            if kind != TokenKind.NORMAL:
                groups.setdefault(kind, []).append(id_)
        return groups

    def named_token_ids(self) -> dict[str, int]:
        found = {}
        for key, name in NAMED_KEYS.items():
            id_ = self.id_of(key)
            if id_ is not None:
                found[name] = id_
        return found

    def ids_of(self, *kinds: TokenKind) -> list[int]:
        """Ids of these kinds, in order of kind and id."""
        return [id_ for kind in kinds for id_ in self._ids_by_kind.get(kind, ())]

    def id_of(self, key: str) -> int | None:
        """An id of the vocabulary; one outside of it is none, as in llama.cpp."""
        value = self.metadata.get(KEY + key)
        if not isinstance(value, int) or not 0 <= value < self.num_tokens:
            return None
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.metadata.get(KEY + key)
        return value if isinstance(value, bool) else default

    def list_of(self, key: str, kind: type[T], *, optional: bool = False) -> list[T]:
        value = self.metadata.get(KEY + key)
        if value is None and optional:
            return []
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, list) or (value and not isinstance(value[0], accepted)):
            raise CorruptFileError(f"{KEY}{key} must be a list of {kind.__name__}")
        return value

    def check_length(self, key: str, values: Sequence[object]) -> None:
        if len(values) != self.num_tokens:
            raise CorruptFileError(
                f"{KEY}{key} has {len(values)} entries for {self.num_tokens} tokens"
            )

    def _kinds(self) -> Sequence[int]:
        if isinstance(self.metadata, StoredLists):
            stored = self.metadata.stored_int32(KEY + "token_type")
            if stored is not None and len(stored):
                return stored
        kinds = self.list_of("token_type", int, optional=True)
        try:
            return array("i", kinds or [TokenKind.NORMAL] * self.num_tokens)
        except (OverflowError, TypeError) as error:
            raise CorruptFileError(f"{KEY}token_type holds what is no kind: {error}") from None

    def _stored(self, key: str) -> tuple[object, int]:
        """A list of strings as a file stores it, and how many they are."""
        if isinstance(self.metadata, StoredLists):
            stored = self.metadata.stored_strings(KEY + key)
            if stored is not None:
                return stored
        raw = [text.encode("utf-8", "surrogatepass") for text in self.list_of(key, str)]
        return b"".join(len(text).to_bytes(8, "little") + text for text in raw), len(raw)


def word_piece(token: str) -> str:
    """BERT's spelling of a token: llama.cpp marks beginnings of words, BERT what follows them."""
    if is_bracketed(token):
        return token
    if token.startswith(SPACE_MARK):
        return token.removeprefix(SPACE_MARK)
    return f"##{token}"


def is_bracketed(token: str) -> bool:
    """Whether it is a name such as [CLS]."""
    return len(token) > 2 and token.startswith("[") and token.endswith("]")


def _named_tokens(tokens: list[str]) -> list[str]:
    """Tokens without a text get one, as in llama.cpp, so that all texts differ."""
    if "" not in tokens:
        return tokens
    return [token or f"[EMPTY_{id_}]" for id_, token in enumerate(tokens)]


def _halves(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not right:
        raise CorruptFileError(f"{KEY}merges has an entry that is no pair: {merge!r}")
    return left, right
