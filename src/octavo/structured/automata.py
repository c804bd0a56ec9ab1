"""Automata over the tokens of one model: which tokens may come next in a text of some form.

Owns what they are made of and who makes them: llguidance through its C interface
(`llguidance_c.py`) where that can be had, else through its Python module, which keeps all other
threads waiting while it reads a vocabulary. Does not know kinds of grammars, caches, requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import llguidance

from octavo.structured.llguidance_c import CAutomata, UnknownLayoutError

logger = logging.getLogger(__name__)

MAX_GRAMMAR_SIZE = 100_000  # symbols


class Matcher(Protocol):
    """A text under a grammar, token by token."""

    def is_error(self) -> bool: ...
    def get_error(self) -> str: ...
    def get_grammar_warnings(self) -> list[str]:
        """What in the grammar is treated more loosely than it reads."""

    def compute_bitmask(self) -> bytes:
        """A bit for each token; the lowest bit of a byte comes first."""

    @property
    def source(self) -> int | None:
        """Of its masks, see `PendingMask`; None where only Python can ask for them."""

    def consume_token(self, token: int) -> bool: ...
    def is_stopped(self) -> bool:
        """Whether the token that was consumed last is the last one that there can be."""

    def deep_copy(self) -> Matcher: ...


@dataclass(frozen=True, slots=True)
class TokenTable:
    """A model's tokens as an automaton needs them."""

    token_bytes: Sequence[bytes]  # by id; empty for ids without a token
    special_ids: frozenset[int]  # tokens that no text spells
    eos_token_ids: tuple[int, ...]
    encode: Callable[[str], list[int]]  # text alone, nothing put around it


class Automata(Protocol):
    """Makes matchers over one `TokenTable`."""

    def matcher(self, grammar: str) -> Matcher:
        """At the beginning of a text. A grammar that is none gives a matcher in error."""


def automata_over(tokens: TokenTable) -> Automata:
    """Takes about 0.1 s for 50,000 tokens."""
    try:
        return CAutomata(tokens, MAX_GRAMMAR_SIZE)
    except UnknownLayoutError as error:
        logger.info("llguidance is used through Python: %s", error)
        return PythonAutomata(tokens)


class PythonAutomata:
    """Through the Python module."""

    def __init__(self, tokens: TokenTable) -> None:
        self._tokens = llguidance.LLTokenizer(
            _Vocabulary(tokens), eos_token=list(tokens.eos_token_ids) or None
        )
        self._limits = llguidance.LLParserLimits(
            max_grammar_size=MAX_GRAMMAR_SIZE, verbose_errors=False
        )

    def matcher(self, grammar: str) -> Matcher:
        """See `Automata`."""
        return PythonMatcher(
            llguidance.LLMatcher(self._tokens, grammar, log_level=0, limits=self._limits)
        )


class PythonMatcher:
    """A `Matcher` of the Python module."""

    source = None

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self.is_error = matcher.is_error
        self.get_error = matcher.get_error
        self.get_grammar_warnings = matcher.get_grammar_warnings
        self.compute_bitmask = matcher.compute_bitmask
        self.consume_token = matcher.consume_token
        self.is_stopped = matcher.is_stopped

    def deep_copy(self) -> PythonMatcher:
        """See `Matcher`."""
        return PythonMatcher(self._matcher.deep_copy())


class _Vocabulary(llguidance.TokenizerWrapper):
    """What the module reads a vocabulary from."""

    def __init__(self, tokens: TokenTable) -> None:  # the base class wants another library's object
        self.is_tokenizer_wrapper = True
        self.tokens = tokens.token_bytes
        self.special_token_ids = sorted(tokens.special_ids)
        self.eos_token_id = next(iter(tokens.eos_token_ids), None)  # type: ignore[assignment]
        self.bos_token_id = None
        self._encode = tokens.encode

    def __call__(self, s: str) -> list[int]:
        return self._encode(s)
