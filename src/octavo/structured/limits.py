"""Bounds on grammars from strangers, checked before any work is done on them.

Owns the numbers. Does not know what a grammar means.
"""

from __future__ import annotations

from octavo.contracts.grammar import GrammarSpec
from octavo.errors import InvalidRequestError

MAX_SOURCE_CHARS = 256 * 1024
MAX_DEPTH = 100  # of brackets; deeper ones are somebody's attack on a recursive parser
MAX_CHOICES = 10_000

_OPENING, _CLOSING = "([{", ")]}"


def check_size(spec: GrammarSpec, param: str) -> None:
    """Refuse a source that is too long or nested too deep.

    Raises InvalidRequestError that names `param`, the limit and what was sent.
    """
    length = len(spec.source)
    if length > MAX_SOURCE_CHARS:
        raise InvalidRequestError(
            f"{param} has {length} characters, at most {MAX_SOURCE_CHARS} are allowed; make it "
            "smaller",
            param=param,
        )
    depth = _depth(spec.source)
    if depth > MAX_DEPTH:
        raise InvalidRequestError(
            f"{param} is nested {depth} levels deep, at most {MAX_DEPTH} are allowed; flatten it",
            param=param,
        )


def check_choices(choices: object, param: str) -> None:
    """Refuse a list of too many texts. Raises InvalidRequestError."""
    if isinstance(choices, list) and len(choices) > MAX_CHOICES:
        raise InvalidRequestError(
            f"{param} has {len(choices)} texts, at most {MAX_CHOICES} are allowed", param=param
        )


def check_json_size(value: object, param: str) -> None:
    """Refuse JSON whose text would be too long, before the text is made.

    Looks at no more than `MAX_SOURCE_CHARS` values. Raises InvalidRequestError.
    """
    open_values, num_chars = [value], 0
    while open_values and num_chars <= MAX_SOURCE_CHARS:
        one = open_values.pop()
        if isinstance(one, str):
            num_chars += len(one)
            continue
        if not isinstance(one, list | dict):
            continue
        num_chars += 2 * len(one)  # each a sign at least, and what parts it from the next
        if num_chars > MAX_SOURCE_CHARS:
            break
        if isinstance(one, dict):
            num_chars += sum(map(len, one))
            open_values.extend(one.values())
        else:
            open_values.extend(one)
    if num_chars > MAX_SOURCE_CHARS:
        raise InvalidRequestError(
            f"{param} has more than {MAX_SOURCE_CHARS} characters; make it smaller", param=param
        )


def _depth(text: str) -> int:
    """Deepest nesting of brackets of any kind, those inside strings included: an upper bound."""
    depth = deepest = 0
    for character in text:
        if character in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in _CLOSING and depth:
            depth -= 1
    return deepest
