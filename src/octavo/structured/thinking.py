"""Thinking: a constraint that leaves the thoughts of a reasoning model free, and may bound them.

Owns where thoughts begin and end, by their tags. Does not know the grammar of the answer, which
begins after them.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.contracts.grammar import Mask, ThinkingSpec, TokenConstraint, bits_of

_FREE = b""  # every token may come


class ThinkingConstraint:
    """A `TokenConstraint`: thoughts, then what `answer` asks for, or anything where it is None.

    Thoughts do not end the answer: end-of-sequence tokens wait for the tag that ends them, so what
    comes out is never free of the grammar by having been nothing but thoughts.
    """

    __slots__ = ("_answer", "_is_fresh", "_is_thinking", "_num_thoughts", "_spec", "_thinking_mask")

    def __init__(
        self,
        spec: ThinkingSpec,
        answer: TokenConstraint | None,
        vocab_size: int,
        eos_token_ids: Sequence[int],
    ) -> None:
        self._spec = spec
        self._answer = answer
        self._is_thinking = spec.is_open
        self._is_fresh = not spec.is_open  # no token has come, so a tag may begin the thoughts
        self._num_thoughts = 0
        self._thinking_mask = _mask(vocab_size, eos_token_ids)

    def mask(self) -> Mask:
        """See `TokenConstraint`."""
        spec = self._spec
        if self._is_thinking:
            if 0 <= spec.max_tokens <= self._num_thoughts:
                return _only(spec.end_token_id, len(self._thinking_mask))
            return self._thinking_mask
        if self._answer is None:
            return _FREE
        mask = self._answer.mask()
        if self._is_fresh and spec.begin_token_id >= 0 and mask:
            return _with(bits_of(mask), spec.begin_token_id)
        return mask

    def accept(self, token_id: int) -> bool:
        """See `TokenConstraint`."""
        if self._is_thinking:
            self._num_thoughts += 1
            self._is_thinking = token_id != self._spec.end_token_id
            return False
        is_fresh, self._is_fresh = self._is_fresh, False
        if is_fresh and token_id == self._spec.begin_token_id:
            self._is_thinking = True
            return False
        return self._answer is not None and self._answer.accept(token_id)


def _mask(vocab_size: int, without: Sequence[int]) -> bytes:
    """All tokens but some."""
    bits = bytearray(b"\xff" * (-(-vocab_size // 32) * 4))
    for token_id in without:
        bits[token_id // 8] &= ~(1 << token_id % 8)
    return bytes(bits)


def _only(token_id: int, num_bytes: int) -> bytes:
    return _with(bytes(num_bytes), token_id)


def _with(mask: bytes, token_id: int) -> bytes:
    bits = bytearray(mask)
    bits[token_id // 8] |= 1 << token_id % 8
    return bytes(bits)
