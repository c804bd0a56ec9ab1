"""Documents drawn at random under a grammar, without a model.

A model writes what is likely; a walk over the allowed tokens finds what is possible. It prefers
tokens that close something, the more the longer it goes on, so that most walks come to an end.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from octavo.contracts.grammar import GrammarSpec, TokenConstraint, bits_of
from octavo.structured.compiler import GrammarCompiler
from octavo.text.tokenizer import Tokenizer

_SOME_BIT = re.compile(rb"[^\0]")
_CLOSING = ("}", "]", '"', '"}', '"]', ",", ":", "0", "1", "null", "true", "false", "{", "[")


class Walker:
    """Walks over the tokens of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.eos_token_id is not None, "an answer must be able to end"
        self._tokenizer = tokenizer
        self._eos_id = tokenizer.eos_token_id
        self._token_bytes = tokenizer.vocabulary.bytes_of_all(tokenizer.vocab_size)
        self._special_ids = frozenset(tokenizer.special_ids)
        self._closing = [
            ids[0]
            for text in _CLOSING
            if len(ids := tokenizer.encode(text, add_special_tokens=False)) == 1
        ]

    def compiler(self) -> GrammarCompiler:
        """Grammars over these tokens."""
        return GrammarCompiler(
            self._token_bytes,
            self._special_ids,
            [self._eos_id],
            lambda text: self._tokenizer.encode(text, add_special_tokens=False),
        )

    def documents(
        self, compiler: GrammarCompiler, spec: GrammarSpec, count: int, max_tokens: int
    ) -> Iterator[str | None]:
        """`count` texts, the same ones each time; None for one that did not end in time."""
        for number in range(count):
            draws = random.Random(f"{spec.source} {number}")  # noqa: S311 - needs no secrecy
            yield self._walk(compiler.constraint(spec), draws, max_tokens)

    def _walk(
        self, constraint: TokenConstraint, draws: random.Random, max_tokens: int
    ) -> str | None:
        written = b""
        for place in range(max_tokens):
            mask = bits_of(constraint.mask())
            token_id = self._choose(mask, draws, haste=2 * place / max_tokens)
            if token_id == self._eos_id:
                return written.decode()
            written += self._token_bytes[token_id]
            if constraint.accept(token_id):
                return written.decode()
        return None

    def _choose(self, mask: bytes, draws: random.Random, haste: float) -> int:
        """One of the tokens in the mask."""
        if draws.random() < haste:
            if _has(mask, self._eos_id):
                return self._eos_id
            closing = [token_id for token_id in self._closing if _has(mask, token_id)]
            if closing:
                return closing[0] if haste > 1 else draws.choice(closing)
        found = _SOME_BIT.search(mask, draws.randrange(len(mask))) or _SOME_BIT.search(mask)
        assert found is not None, "a mask allows something"
        place = found.start()
        return draws.choice([8 * place + bit for bit in range(8) if mask[place] >> bit & 1])


def _has(mask: bytes, token_id: int) -> bool:
    return bool(mask[token_id // 8] >> token_id % 8 & 1)
