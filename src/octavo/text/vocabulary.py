"""Vocabulary: what each token id stands for, in bytes and in text.

Owns one table for all requests of a tokenizer, filled when a token is first met: building it whole
would cost more than most servers ever use of it.
Does not know: how text is cut into tokens, nor the tokens before and after one.
Used by: tokenizer, detokenizer.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Collection


class Vocabulary:
    """Bytes and text of single tokens.

    `whole_texts` and `visible_texts` serve the detokenizer: the text of each token that consists of
    complete characters whatever comes before it, and None for the others and for those not met yet.
    In `visible_texts` the special tokens are shown, in `whole_texts` they are empty.
    Filling an entry twice does no harm, so threads share a vocabulary freely.
    """

    def __init__(
        self, size: int, bytes_of: Callable[[int], bytes], special_ids: Collection[int]
    ) -> None:
        """`bytes_of` is asked for ids below `size`."""
        self.size = size
        self.special_ids = frozenset(special_ids)
        self._bytes_of = bytes_of
        self._bytes: list[bytes | None] = [None] * size
        self.visible_texts: list[str | None] = [None] * size
        self.whole_texts: list[str | None] = [None] * size
        for token_id in self.special_ids:
            self.whole_texts[token_id] = ""

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token; none for an id that does not exist."""
        if not 0 <= token_id < self.size:
            return b""
        known = self._bytes[token_id]
        if known is None:
            known = self._bytes_of(token_id)
            self._bytes[token_id] = known
            self._note_text(token_id, known)
        return known

    def bytes_of_all(self, size: int) -> list[bytes]:
        """Bytes of the first `size` tokens. They are not kept here: few servers need them all."""
        known = list(map(self._bytes_of, range(min(size, self.size))))
        return known + [b""] * (size - len(known))

    def token_text(self, token_id: int) -> str:
        """A token on its own; U+FFFD stands for bytes that are no whole character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def _note_text(self, token_id: int, raw: bytes) -> None:
        """Remember the text unless its last bytes may go on in the next token."""
        text, used = utf_8_decode(raw, "replace", False)
        if used != len(raw):
            return
        self.visible_texts[token_id] = text
        if token_id not in self.special_ids:
            self.whole_texts[token_id] = text
