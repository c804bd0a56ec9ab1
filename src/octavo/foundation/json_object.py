"""A JSON object from bytes that somebody else wrote, with our errors. Does not know any key."""

from __future__ import annotations

import json

from octavo.errors import CorruptFileError


def parse_object(text: bytes, where: str) -> dict[str, object]:
    """The object in `text`. Raises CorruptFileError when it is none, or holds half a character."""
    try:
        value = json.loads(text)
        if b"\\ud" in text or b"\\uD" in text:  # escapes of surrogates, which must come in pairs
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"{where} must hold a JSON object, not a {type(value).__name__}")
    return value
