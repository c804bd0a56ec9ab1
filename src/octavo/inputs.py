"""The forms in which a script may give one thing or many to an LLM.

Owns the telling apart, and the index in the message about one of many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

from octavo.errors import InvalidRequestError
from octavo.prompts import PromptType


@contextmanager
def naming(place: int, count: int, what: str) -> Iterator[None]:
    """Let an error say which of several inputs is wrong."""
    try:
        yield
    except InvalidRequestError as error:
        if count == 1:
            raise
        message = f"{what} {place}: {error.message}"
        raise type(error)(message, param=error.param) from error


def is_one(prompts: Any) -> TypeGuard[PromptType]:
    """One prompt, rather than a list of them: a text, a dict or a list of token ids."""
    if not isinstance(prompts, Sequence) or isinstance(prompts, str):
        return True
    return bool(prompts) and not isinstance(prompts[0], str | dict | Sequence)


def one_each(
    given: Any, kind: type[Any] | tuple[type[Any], ...], count: int, name: str
) -> Sequence[Any]:
    """One value for each prompt. The first of several kinds names them all."""
    if isinstance(given, kind):
        return [given] * count
    wanted = (kind[0] if isinstance(kind, tuple) else kind).__name__
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        message = f"{name} must be a {wanted} or a list of them, got {type(given).__name__}"
        raise InvalidRequestError(message, param=name)
    if len(given) != count:
        raise InvalidRequestError(f"{len(given)} {name} for {count} prompts", param=name)
    for place, value in enumerate(given):
        if not isinstance(value, kind):
            message = f"{name}[{place}] must be a {wanted}, got {type(value).__name__}"
            raise InvalidRequestError(message, param=name)
    return given
