"""Ids of responses and of their items. An item's id tells the response and its place in it, so a
reference to an item needs no index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "resp_"
_NUM_BYTES = 16
_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
}
_ITEM = re.compile(rf"(?:{'|'.join(_PREFIXES.values())})_([0-9a-f]{{{2 * _NUM_BYTES}}})([0-9a-f]+)")
_RESPONSE = re.compile(rf"{PREFIX}[0-9a-f]{{{2 * _NUM_BYTES}}}")
_MAX_PLACE_DIGITS = 8


@dataclass(frozen=True, slots=True)
class ItemIds:
    """Ids of the items of one response: what came in first, then what came out."""

    response_id: str

    def of(self, kind: str, place: int) -> str:
        """The id of item number `place`."""
        return f"{_PREFIXES[kind]}_{self.response_id.removeprefix(PREFIX)}{place:04x}"


def new_response_id() -> str:
    """A fresh id that nobody can guess."""
    return PREFIX + os.urandom(_NUM_BYTES).hex()


def is_response_id(text: str) -> bool:
    """Whether we may have made this id."""
    return _RESPONSE.fullmatch(text) is not None


def place_of(item_id: object) -> tuple[str, int] | None:
    """(id of the response, place) of an item's id; None for an id that we did not make."""
    found = _ITEM.fullmatch(item_id) if isinstance(item_id, str) else None
    if found is None or len(found[2]) > _MAX_PLACE_DIGITS:
        return None
    return PREFIX + found[1], int(found[2], 16)
