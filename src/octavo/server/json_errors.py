"""What is wrong with text that is no JSON, in words that say what to look for."""

from __future__ import annotations

import re

from octavo.errors import InvalidRequestError

# msgspec takes a half that stands so close to the end of the input for a whole that was cut.
_NEAR_END = 16  # bytes
_HALF_PAIR = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}[^\\]*"')


def not_json(what: str, data: bytes, error: Exception) -> InvalidRequestError:
    """The error for `data`, called `what`, that `error` says is no JSON."""
    text = str(error)
    if "surrogate" in text or _HALF_PAIR.search(data, max(0, len(data) - _NEAR_END)):
        return InvalidRequestError(
            f"{what} has a text with a lone surrogate (\\ud800 to \\udfff, half of a pair), "
            "which is no character; remove it or send the whole pair"
        )
    return InvalidRequestError(f"{what} is not valid JSON: {text}")
