"""Compiler: a `GrammarSpec` becomes constraints for answers, or a refusal that says why.

Owns the vocabulary of the automaton, a cache of compiled grammars, the bounds on their cost. Does
not know: requests, samplers, event loops. `compile` may take a tenth of a second, so front ends
call it outside their loop; it is safe from any thread. `constraint` takes microseconds.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from threading import Lock

import llguidance
from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

from octavo.contracts.grammar import ConstraintError, GrammarSpec, Mask
from octavo.errors import InvalidRequestError
from octavo.structured.automata import Matcher, TokenTable, automata_over
from octavo.structured.limits import check_size
from octavo.structured.schema import choice_grammar, object_grammar, schema_grammar
from octavo.structured.tags import tag_grammar

CACHE_SIZE = 256
_MAX_ERROR_CHARS = 500  # an error must not send a whole grammar back
# What the library says -> what a user can do about it.
_PLAIN_WORDS = (
    (
        re.compile(r"oneOf constraints are not supported\..*?(?= while |$)", re.DOTALL),
        "the keyword 'oneOf' has parts that one document could fit together; use anyOf, or tell "
        "the parts apart by their type or by a constant property",
    ),
    (
        re.compile(r"Resource '([^']*)' is not present in a registry.*", re.DOTALL),
        r"the keyword '$ref' leads out of the schema, to '\1', and nothing is fetched; put what it "
        "names into $defs",
    ),
    (
        re.compile(r"lexer (error: too many|precomputation failed).*", re.DOTALL),
        "it has too many states: ask for fewer and smaller repetitions, such as {1,1000}, and for "
        "fewer of them inside each other",
    ),
)


class GrammarCompiler:
    """Grammars over the tokens of one model."""

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        special_ids: Collection[int],
        eos_token_ids: Sequence[int],
        encode: Callable[[str], list[int]],
    ) -> None:
        """Masks cover all of `token_bytes`; `encode` gives the ids of a text and nothing around it.

        Takes about 0.1 s for 50,000 tokens, in which other threads run.
        """
        self._automata = automata_over(
            TokenTable(token_bytes, frozenset(special_ids), tuple(eos_token_ids), encode)
        )
        self._end_bits = sum(1 << token_id for token_id in set(eos_token_ids))
        self._lock = Lock()
        self._compiled: OrderedDict[GrammarSpec, Matcher] = OrderedDict()

    def compile(self, spec: GrammarSpec, param: str = "structured_outputs") -> None:
        """Make sure that `constraint` will succeed for `spec`.

        Raises InvalidRequestError, naming `param`, for a grammar that is malformed, too large, or
        holds something that would not be enforced.
        """
        self._prototype(spec, param)

    def constraint(self, spec: GrammarSpec) -> GrammarConstraint:
        """A fresh constraint, at the beginning of an answer."""
        return GrammarConstraint(self._prototype(spec, "structured_outputs").deep_copy())

    def _prototype(self, spec: GrammarSpec, param: str) -> Matcher:
        with self._lock:
            known = self._compiled.get(spec)
            if known is not None:
                self._compiled.move_to_end(spec)
                return known
        made = self._build(spec, param)
        with self._lock:
            self._compiled[spec] = made
            while len(self._compiled) > CACHE_SIZE:
                self._compiled.popitem(last=False)
        return made

    def _build(self, spec: GrammarSpec, param: str) -> Matcher:
        """A matcher that holds answers to the grammar, and to the closed form of its schemas.

        The grammar itself must be fit for use, whatever its closed form is: alternatives are told
        apart by what they mean when they are open.
        """
        check_size(spec, param)
        grammar = _grammar_of(spec, param, closes=False)
        matcher = self._automata.matcher(grammar)
        fault = _fault_of(matcher)
        if fault:
            raise _refusal(fault, param)
        narrow = _grammar_of(spec, param, closes=True)
        if narrow != grammar:
            closed = self._automata.matcher(narrow)
            if not _fault_of(closed) and not self._fault_at_start(closed):
                return closed
        fault = self._fault_at_start(matcher)
        if fault:
            raise _refusal(fault, param)
        return matcher

    def _fault_at_start(self, matcher: Matcher) -> str:
        """Why an answer cannot begin; empty: it can. Also warms the automaton up.

        A large repetition is unrolled with the first token, and may be too large only then.
        """
        first = int.from_bytes(matcher.compute_bitmask(), "little") & ~self._end_bits
        if matcher.is_error():
            return matcher.get_error()
        if not first:
            return "no answer but an empty one would fit"
        trial = matcher.deep_copy()
        trial.consume_token((first & -first).bit_length() - 1)
        trial.compute_bitmask()
        return trial.get_error() if trial.is_error() else ""


class GrammarConstraint:
    """A `TokenConstraint` over one automaton, and its `PendingMask`."""

    __slots__ = ("_matcher", "_source")

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._source = matcher.source

    def mask(self) -> Mask:
        """See `TokenConstraint`."""
        return self.bits() if self._source is None else self

    @property
    def source(self) -> int:
        """See `PendingMask`."""
        assert self._source is not None, "its masks are bytes"
        return self._source

    def bits(self) -> bytes:
        """See `PendingMask`."""
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise ConstraintError(_short(self._matcher.get_error()))
        return mask

    def accept(self, token_id: int) -> bool:
        """See `TokenConstraint`."""
        if not self._matcher.consume_token(token_id):
            raise ConstraintError(_short(self._matcher.get_error()))
        return self._matcher.is_stopped()


def _fault_of(matcher: Matcher) -> str:
    """Why a grammar cannot be used, or is treated more loosely than it reads; empty: it can."""
    return matcher.get_error() if matcher.is_error() else "; ".join(matcher.get_grammar_warnings())


def _grammar_of(spec: GrammarSpec, param: str, *, closes: bool) -> str:
    """The library's text of a grammar. With `closes`, its schemas are closed."""
    if spec.kind == "json_schema":
        return schema_grammar(spec.source, param, closes=closes)
    if spec.kind == "json_object":
        return object_grammar()
    if spec.kind == "choice":
        return choice_grammar(spec.source, param)
    if spec.kind == "structural_tag":
        return tag_grammar(spec.source, param, closes=closes)
    if not spec.source.strip():
        raise InvalidRequestError(f"{param} must not be empty", param=param)
    if spec.kind == "regex":
        return llguidance.LLMatcher.grammar_from_regex(spec.source)
    try:
        return llguidance.LLMatcher.grammar_from_lark(any_to_lark(spec.source))
    except (GbnfToLarkError, ValueError, IndexError, RecursionError) as error:
        raise _refusal(str(error), param) from None


def _refusal(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param} cannot be enforced: {_short(message)}", param=param)


def _short(message: str) -> str:
    for words, plain in _PLAIN_WORDS:
        message = words.sub(plain, message)
    message = " ".join(message.split())
    return message if len(message) <= _MAX_ERROR_CHARS else message[:_MAX_ERROR_CHARS] + " ..."
