"""What a library must be able to do for a `Tokenizer`: cut text into tokens and name them.

Owns the contract only. `tokenizers.Tokenizer` satisfies it as it is, and so does our own
SentencePiece (`sentencepiece.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Encoding(Protocol):
    """A text as tokens."""

    @property
    def ids(self) -> list[int]: ...


class AddedToken(Protocol):
    """A token that is never cut and found in a text as it is written."""

    @property
    def content(self) -> str: ...
    @property
    def special(self) -> bool: ...


class Library(Protocol):
    """Threads share it. Text that no UTF-8 can carry raises TypeError."""

    @property
    def decoder(self) -> Any:
        """How tokens become text again; `__getstate__` gives it as JSON."""

    def encode(self, text: str, *, add_special_tokens: bool) -> Encoding: ...
    def encode_batch_fast(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> Sequence[Encoding]:
        """The same for texts long enough to let other threads run meanwhile."""

    def id_to_token(self, id: int) -> str | None: ...
    def token_to_id(self, token: str) -> int | None: ...
    def get_vocab_size(self, *, with_added_tokens: bool) -> int: ...
    def get_vocab(self, *, with_added_tokens: bool) -> Mapping[str, int]: ...
    def get_added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...
