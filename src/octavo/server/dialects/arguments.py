"""The arguments of a call as an object, where an API has them so."""

from __future__ import annotations

import json
from typing import Any


def input_of(arguments: str) -> dict[str, Any]:
    """The object that the text of `arguments` is; a splitter lets no other pass."""
    value = json.loads(arguments) if arguments else {}
    return value if isinstance(value, dict) else {}
