"""Fields in errors, as the client wrote them: a chat has no `prompt`, it has `messages`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from octavo.errors import InvalidRequestError


@contextmanager
def errors_name(names: Mapping[str, str]) -> Iterator[None]:
    """Errors about a field of `names` leave the block under its other name, in param and text."""
    try:
        yield
    except InvalidRequestError as error:
        param = None if error.param is None else names.get(error.param, error.param)
        raise type(error)(_text(error.message, names), param=param) from None


def _text(message: str, names: Mapping[str, str]) -> str:
    """`the prompt`, `the input prompt` and `prompt` become `messages`; `max_logprobs` stays."""
    if not names:
        return message
    words = "|".join(map(re.escape, names))
    return re.sub(
        rf"(?<![\w-])(?:the (?:input )?)?({words})(?!\w)", lambda found: names[found[1]], message
    )
