"""Switches in objects whose fields have no types: what counts as true and false.

The same as where a type says it, and as in vLLM: 0 and 1, and texts of them, count too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.errors import InvalidRequestError


def switch_at(value: Any, where: str) -> bool | None:
    """True, false, or None for what is not given. Raises InvalidRequestError, naming `where`."""
    try:
        return msgspec.convert(value, bool | None, strict=False)
    except msgspec.ValidationError:
        raise InvalidRequestError(f"{where} must be true or false", param=where) from None
