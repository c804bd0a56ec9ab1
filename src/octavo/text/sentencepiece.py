"""SentencePiece BPE straight from a stored vocabulary: nothing is built that the file has already.

Owns the bridge to the native merger, which ranks merges by score where the `tokenizers` library
wants a list of them: for Gemma 3 half a million, which takes seconds and hundreds of megabytes to
make. Does not know: the keys of a file, what is put around a text. Satisfies `library.Library`.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from octavo.foundation.registry import Registry
from octavo.text.spelling import SPACE_MARK


class Pieces(Protocol):
    """See `octavo._native.SentencePiece`."""

    def __init__(
        self,
        stored: object,
        kinds: object,
        scores: object,
        space: str,
        adds_space: bool,
        unknown: int,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    def encode(self, text: bytes) -> list[int]: ...
    def token(self, id: int) -> bytes: ...
    def find(self, token: bytes) -> int: ...


# An installation for torch alone may lack the extension; the `tokenizers` library steps in.
PIECES: Registry[type[Pieces]] = Registry(
    "SentencePiece merger", {"native": "octavo._native:SentencePiece"}
)


class Ids(NamedTuple):
    """What encoding gives."""

    ids: list[int]


class WholeToken(NamedTuple):
    """A token that is never cut."""

    content: str
    special: bool


class SentencePieceLibrary:
    """A vocabulary in use."""

    def __init__(self, pieces: Pieces, whole_ids: Mapping[int, bool], decoder: Any) -> None:
        """`whole_ids`: tokens that are never cut -> whether they are special."""
        self.decoder = decoder
        self._pieces = pieces
        self._whole_ids = whole_ids

    def encode(self, text: str, *, add_special_tokens: bool = False) -> Ids:
        """Ids of the text alone; other threads run meanwhile. Raises TypeError for surrogates."""
        del add_special_tokens  # no file says here what would be added
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise TypeError(str(error)) from error
        return Ids(self._pieces.encode(raw))

    def encode_batch_fast(
        self, texts: Sequence[str], *, add_special_tokens: bool = False
    ) -> list[Ids]:
        """See `Library`."""
        return [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]

    def id_to_token(self, id: int) -> str | None:
        """The text of a token, a name of its own for one without."""
        if not 0 <= id < self._pieces.size:
            return None
        return self._pieces.token(id).decode() or f"[EMPTY_{id}]"

    def token_to_id(self, token: str) -> int | None:
        """None where there is no such token."""
        found = self._pieces.find(token.encode("utf-8", "replace"))
        return None if found < 0 else found

    def get_vocab_size(self, *, with_added_tokens: bool = True) -> int:
        """All tokens; none has been added to the file's."""
        del with_added_tokens
        return self._pieces.size

    def get_vocab(self, *, with_added_tokens: bool = True) -> dict[str, int]:
        """Token -> id."""
        del with_added_tokens
        return {self.id_to_token(id_) or "": id_ for id_ in range(self._pieces.size)}

    def get_added_tokens_decoder(self) -> dict[int, WholeToken]:
        """Tokens that are never cut."""
        return {
            id_: WholeToken(self.id_to_token(id_) or "", special)
            for id_, special in self._whole_ids.items()
        }


def open_pieces(
    stored: object,
    kinds: Collection[int],
    scores: Collection[float],
    *,
    adds_space: bool,
    unknown: int | None,
) -> Pieces | None:
    """The merger over tokens stored as (length u64, UTF-8 bytes) each; None where it is not built.

    Raises ValueError for a vocabulary that contradicts itself.
    """
    try:
        merger = PIECES.load("native")
    except ModuleNotFoundError:
        return None
    try:
        numbers = array("i", kinds), array("f", scores)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"kinds or scores are no numbers of 32 bits: {error}") from None
    missing = -1 if unknown is None else unknown
    return merger(stored, *numbers, SPACE_MARK, adds_space, missing)
