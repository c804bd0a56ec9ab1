"""Grammars: from what a user asks of an answer's form to the constraint that enforces it.

Owns how the compiler and its library are loaded: with the first request that needs them, unless
somebody warms them up before. Does not know how grammars are compiled, nor who samples. Safe from
any thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Protocol

from octavo.contracts.grammar import GrammarKind, GrammarSpec, ThinkingSpec, TokenConstraint
from octavo.errors import InvalidRequestError
from octavo.foundation.garbage import give_back_freed
from octavo.foundation.registry import Registry
from octavo.sampling_params import StructuredOutputsParams
from octavo.structured.thinking import ThinkingConstraint
from octavo.text.tokenizer import Tokenizer

PARAM = "structured_outputs"
_KINDS: dict[str, GrammarKind] = {
    "json": "json_schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
    "json_object": "json_object",
    "structural_tag": "structural_tag",
}


class Compiler(Protocol):
    """See `octavo.structured.compiler.GrammarCompiler`."""

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        special_ids: Collection[int],
        eos_token_ids: Sequence[int],
        encode: Callable[[str], list[int]],
    ) -> None: ...
    def compile(self, spec: GrammarSpec, param: str = PARAM) -> None: ...
    def constraint(self, spec: GrammarSpec) -> TokenConstraint: ...


# The library takes a tenth of a second to import, and only structured output needs it.
COMPILERS: Registry[type[Compiler]] = Registry(
    "grammar compiler", {"llguidance": "octavo.structured.compiler:GrammarCompiler"}
)


class Grammars:
    """Grammars over the tokens of one model."""

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: tuple[int, ...]
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._lock = Lock()
        self._compiler: Compiler | None = None

    def check(self, wanted: StructuredOutputsParams) -> None:
        """Compile what is asked for. Takes up to a tenth of a second, the first call longer.

        Raises InvalidRequestError for what is malformed, too large, or would not be enforced.
        """
        self._loaded().compile(grammar_spec(wanted), PARAM)

    def warm(self) -> None:
        """Load the compiler, if there is one. Takes 0.2 s for 50,000 tokens."""
        with suppress(InvalidRequestError):
            self._loaded()

    def constraint(
        self, grammar: GrammarSpec | None, thinking: ThinkingSpec | None
    ) -> TokenConstraint | None:
        """A constraint at the beginning of an answer. The grammar has passed `check`."""
        answer = None if grammar is None else self._loaded().constraint(grammar)
        if thinking is None:
            return answer
        return ThinkingConstraint(thinking, answer, self._vocab_size, self._eos_token_ids)

    def _loaded(self) -> Compiler:
        with self._lock:
            if self._compiler is None:
                try:
                    compiler = COMPILERS.load("llguidance")
                except ModuleNotFoundError as error:
                    raise InvalidRequestError(
                        f"{PARAM} needs the package llguidance, which is not installed here; "
                        "install it with pip install llguidance",
                        param=PARAM,
                    ) from error
                tokenizer = self._tokenizer
                self._compiler = compiler(
                    tokenizer.vocabulary.bytes_of_all(self._vocab_size),
                    tokenizer.special_ids,
                    self._eos_token_ids,
                    partial(tokenizer.encode, add_special_tokens=False),
                )
                give_back_freed()  # the library has its own form of all tokens
            return self._compiler


def grammar_spec(wanted: StructuredOutputsParams) -> GrammarSpec:
    """The form that travels with a request.

    Raises InvalidRequestError for an object that is no JSON.
    """
    wanted.verify()
    name = wanted.kind
    value = getattr(wanted, name)
    if name == "json_object":
        return GrammarSpec(kind="json_object")
    if isinstance(value, str):
        return GrammarSpec(kind=_KINDS[name], source=value)
    try:
        return GrammarSpec(kind=_KINDS[name], source=json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{PARAM}.{name} is no JSON value: {error}"
        raise InvalidRequestError(message, param=PARAM) from None
