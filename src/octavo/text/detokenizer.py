"""IncrementalDetokenizer: the tokens of one answer become text, whole characters only.

Owns the bytes of a character that is not complete yet, and where the answer starts in its text.
Does not know: stop strings, requests, the rest of the answer: it never decodes anything twice.
Used by: engine, for streamed and whole answers alike.

For both spellings of bytes (`spelling.py`) a token's bytes do not depend on its neighbours, so the
text of an answer is that of the joined bytes, and the pieces given out join to exactly
`tokenizer.decode(answer)`, in the context of the prompt. Two things of the context matter:

- bytes at the end of the prompt that are no whole character belong to the first one given out;
- a tokenizer that strips the first space of a text strips it only where the prompt is empty.

Invalid UTF-8 gives U+FFFD for each maximal part of a character, as `bytes.decode(errors="replace")`
has it. (Hugging Face's decoder for SentencePiece replaces every byte of such a run, valid ones as
well; that needs the whole run and so cannot be streamed.)
"""

from __future__ import annotations

import logging
from codecs import utf_8_decode
from collections.abc import Sequence
from typing import Any

from octavo.text.spelling import Spelling
from octavo.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

LONGEST_CHARACTER = 4  # bytes of UTF-8
NUM_PRIMING_TOKENS = 6  # of the prompt, for decoders that only the library knows


class IncrementalDetokenizer:
    """One answer. `push` each token, `flush` at the end; the pieces join to the text."""

    __slots__ = ("_at_start", "_is_between", "_pending", "_stream", "_texts", "_vocabulary")

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int] = (),
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        """`spaces_between_special_tokens` matters only for decoders that put spaces there."""
        vocabulary = tokenizer.vocabulary
        self._vocabulary = vocabulary
        self._texts = vocabulary.whole_texts if skip_special_tokens else vocabulary.visible_texts
        self._pending = b""
        self._stream: _LibraryStream | None = None
        if tokenizer.spelling is Spelling.OTHER:
            self._at_start = False
            self._stream = _LibraryStream(
                tokenizer, prompt_token_ids, skip_special_tokens, spaces_between_special_tokens
            )
        else:
            self._pending = self._tail_of(prompt_token_ids)
            self._at_start = tokenizer.strips_first_space and self._is_empty(prompt_token_ids)
        self._is_between = not (self._pending or self._at_start or self._stream)

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is not whole."""
        if self._is_between:  # between two characters: most tokens have their text ready
            try:
                text = self._texts[token_id]
            except IndexError:  # padding of the model's vocabulary
                return ""
            if text is not None:
                return text
        if self._stream is not None:
            return self._stream.push(token_id)
        return self._push_bytes(token_id)

    def flush(self) -> str:
        """What was held back: U+FFFD for a character that the last tokens left incomplete."""
        pending, self._pending = self._pending, b""
        if self._stream is not None:
            return self._stream.flush()
        self._is_between = not self._at_start
        return pending.decode("utf-8", "replace")

    def _push_bytes(self, token_id: int) -> str:
        raw = self._bytes_of(token_id)
        if self._at_start and raw:
            self._at_start = False
            raw = raw.removeprefix(b" ")
        raw = self._pending + raw
        text, used = utf_8_decode(raw, "replace", False)
        self._pending = raw[used:]
        self._is_between = not (self._pending or self._at_start)
        return text

    def _bytes_of(self, token_id: int) -> bytes:
        """Bytes that the token adds to this text; none for a special token that is skipped."""
        if self._texts is self._vocabulary.whole_texts and token_id in self._vocabulary.special_ids:
            return b""
        return self._vocabulary.token_bytes(token_id)

    def _tail_of(self, token_ids: Sequence[int]) -> bytes:
        """Bytes at the end of the prompt that begin a character; a few tokens tell."""
        raw = b""
        for token_id in reversed(token_ids):
            raw = self._bytes_of(token_id) + raw
            if len(raw) >= LONGEST_CHARACTER:
                break
        return raw[utf_8_decode(raw, "replace", False)[1] :]

    def _is_empty(self, token_ids: Sequence[int]) -> bool:
        """Whether the prompt has no text at all, as when it is BOS alone."""
        return not any(self._bytes_of(token_id) for token_id in reversed(token_ids))


class _LibraryStream:
    """A decoder that only the `tokenizers` library knows, such as WordPiece."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        skip_special_tokens: bool,
        spaces_between_special_tokens: bool,
    ) -> None:
        self._library: Any = tokenizer.library  # a tokenizers.Tokenizer
        self._size = tokenizer.vocab_size
        self._skip = skip_special_tokens
        self._special = tokenizer.special_ids
        self._joins_special = not (skip_special_tokens or spaces_between_special_tokens)
        self._after_special = False
        tail = [id_ for id_ in prompt_token_ids[-NUM_PRIMING_TOKENS:] if 0 <= id_ < self._size]
        self._stream = self._fresh_stream(tail)
        self._held: list[int] = []  # tokens since the stream last gave text

    def push(self, token_id: int) -> str:
        if not 0 <= token_id < self._size:
            return ""
        text = self._step(token_id)
        if text is None:
            self._held.append(token_id)
        else:
            self._held.clear()
        is_special = token_id in self._special
        if self._joins_special and is_special and self._after_special:
            text = self._library.id_to_token(token_id)
        self._after_special = is_special
        return text or ""

    def flush(self) -> str:
        held, self._held = self._held, []
        text: str = self._library.decode(held, skip_special_tokens=self._skip) if held else ""
        return text

    def _fresh_stream(self, token_ids: list[int]) -> Any:
        """Behind tokens that have been seen."""
        from tokenizers.decoders import DecodeStream  # noqa: PLC0415 - few decoders need it

        return DecodeStream(ids=token_ids, skip_special_tokens=self._skip)

    def _step(self, token_id: int) -> str | None:
        try:
            text: str | None = self._stream.step(self._library, token_id)
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception
            # Output that is not monotonic breaks the library's stream; it starts anew from here.
            logger.debug("decode stream reset at token %d: %s", token_id, error)
            self._stream = self._fresh_stream([])
            text = self._stream.step(self._library, token_id)
        return text
