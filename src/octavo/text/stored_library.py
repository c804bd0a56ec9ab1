"""A vocabulary that stays where a GGUF file stores it, cut and merged by native code.

Owns the bridge between the native mergers (`sentencepiece.py`, `byte_pairs.py`) and a `Tokenizer`.
Does not know: the keys of a file, what is put around a text. Satisfies `library.Library`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Pieces(Protocol):
    """See `octavo._native.SentencePiece` and `octavo._native.BytePairs`."""

    @property
    def size(self) -> int: ...
    def encode(self, text: bytes) -> list[int]: ...
    def token(self, id: int) -> bytes: ...
    def find(self, token: bytes) -> int: ...


class Decoder:
    """How tokens become text, as the `tokenizers` library writes it down."""

    def __init__(self, state: bytes) -> None:
        self._state = state

    def __getstate__(self) -> bytes:
        return self._state


class Ids(NamedTuple):
    """What encoding gives."""

    ids: list[int]


class WholeToken(NamedTuple):
    """A token that is never cut."""

    content: str
    special: bool


class StoredLibrary:
    """A vocabulary in use."""

    def __init__(self, pieces: Pieces, whole_ids: Mapping[int, bool], decoder: Decoder) -> None:
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
