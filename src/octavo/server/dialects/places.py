"""Checks of other APIs' bodies: places in errors are spelled as the client wrote them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from octavo.errors import InvalidRequestError


def wrong(where: str, rule: str) -> InvalidRequestError:
    """A refusal of one place."""
    return InvalidRequestError(f"{where} {rule}", param=where)


def check_names(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse fields that are not known; null counts as not given."""
    for name, value in given.items():
        if name not in known and value is not None:
            raise wrong(f"{where}.{name[:100]}", "is not supported by this server")


def text_at(given: Mapping[str, Any], name: str, where: str) -> str:
    """A text that must be there."""
    value = given.get(name)
    if not isinstance(value, str):
        raise wrong(f"{where}.{name}", "must be a text")
    return value


@contextmanager
def spelled(rules: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Errors leave the block with each (pattern, replacement) applied to their places."""
    try:
        yield
    except InvalidRequestError as error:
        message, param = error.message, error.param or ""
        for pattern, replacement in rules:
            message, param = (
                re.sub(pattern, replacement, message),
                re.sub(pattern, replacement, param),
            )
        raise type(error)(message, param=param or None) from None
