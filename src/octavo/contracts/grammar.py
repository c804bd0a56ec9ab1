"""What an answer must look like, and the object that enforces it token by token.

`GrammarSpec` travels with a request; the engine core has a `TokenConstraint` made of it, one for
each choice. The deciding column asks it for the next mask and tells it the token that was drawn.
"""

from __future__ import annotations

from ctypes import Structure, c_int32, c_size_t, c_void_p
from typing import Literal, Protocol

import msgspec

GrammarKind = Literal["json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"]


class GrammarSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One constraint on a whole answer."""

    kind: GrammarKind
    # A JSON document for json_schema, choice (a list of strings) and structural_tag; the expression
    # or the Lark/EBNF text for regex and grammar; empty for json_object.
    source: str = ""


class ThinkingSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that may begin with thoughts, which no grammar binds."""

    end_token_id: int  # ends the thoughts
    begin_token_id: int = -1  # begins them, as the first token of the answer; -1: nothing does
    is_open: bool = False  # the prompt has begun them
    max_tokens: int = -1  # thoughts longer than this are ended; -1: no limit


class MaskSource(Structure):
    """Who knows a mask, for native code: C functions that take `state` first, and what they said.

    `int32_t fill(state, uint32_t *bits, size_t num_bytes)` writes `num_bytes` of the mask.
    `int32_t count_fitting(state, const uint32_t *token_ids, size_t count)` says how many of the
    tokens may come one after the other. The other three go on by a token that was drawn:
    `int32_t consume(state, uint32_t token_id)`, `bool is_over(state)`: nothing may follow it, and
    `int32_t find_only(state, uint32_t *token_ids, size_t capacity)`: the tokens that must follow.
    Those that return a status return 0 if they could, others a negative number if they could not.
    A null in place of `count_fitting` or `consume`: only `fill` is to be asked.

    The layout is that of csrc/mask_filler.hpp.
    """

    _fields_ = (
        ("fill", c_void_p),
        ("count_fitting", c_void_p),
        ("consume", c_void_p),
        ("is_over", c_void_p),
        ("find_only", c_void_p),
        ("state", c_void_p),
        ("num_bytes", c_size_t),
        ("only", c_int32),  # the only token of the mask, where that is known; else -1
        ("told", c_int32),  # the token that has been consumed since the mask was asked for; -1
        ("status", c_int32),  # of `told`
        ("has_ended", c_int32),  # by `told`
    )


class PendingMask(Protocol):
    """A mask that is known and not written out: whoever computes asks about the tokens that it
    draws, has all of it written out where that does not do, and tells the token that it drew.

    One thread at a time, and before the constraint that it is from is told the next token.
    """

    @property
    def source(self) -> int:
        """The address of a `MaskSource`, which lives as long as the mask."""

    def bits(self) -> bytes:
        """The mask. Raises ConstraintError when the grammar became too complex to follow."""


# Bit `i % 8` of byte `i // 8` is set for each token that may come next.
Mask = bytes | PendingMask


def bits_of(mask: Mask) -> bytes:
    """A mask written out. Raises ConstraintError."""
    return mask if isinstance(mask, bytes) else mask.bits()


class TokenConstraint(Protocol):
    """The state of one answer under its grammar."""

    def mask(self) -> Mask:
        """The tokens that may come next, of the whole vocabulary; empty where every one may come.

        End-of-sequence ids are set where the answer may end. Raises ConstraintError when the
        grammar became too complex to follow.
        """

    def accept(self, token_id: int) -> bool:
        """Take in the token that was drawn. True when the answer is complete and cannot go on."""


class ConstraintError(Exception):
    """A grammar that cannot be followed any further; ends its request alone."""
