"""What is wrong with a field of an option or of a file, in one sentence.

It names the field, what it must be and what it is. A file of secrets shows no text of its own.
"""

from __future__ import annotations

import json
import re

import msgspec

from octavo.foundation.field_faults import FieldFault, fault_of, known_at, steps_of
from octavo.foundation.nearest import nearest

_MOST_SHOWN = 60  # characters of a value
_PLAIN_NAME = re.compile(r"[a-z_]{1,32}")  # no generated key is like this


def wrong_field(
    error: msgspec.ValidationError, kind: object, given: object, *, is_secret: bool = False
) -> str:
    """The sentence for what `given`, plain data, lacks to be a `kind`.

    With `is_secret` no text of `given` is repeated, not even the name of an unknown field if it
    could be a key.
    """
    fault = fault_of(error)
    place = fault.path or "it"
    if fault.kind == "unknown":
        return _unknown(fault, kind, is_secret=is_secret)
    if fault.kind == "missing":
        return f"{place} is missing"
    if fault.kind == "other":
        return f"{fault.path}: {fault.right}" if fault.path else fault.right
    right = _listed(known_at(kind, fault.path)) if fault.kind == "choice" else fault.right
    return f"{place} must be {right}, got {_shown(fault, given, is_secret=is_secret)}"


def _unknown(fault: FieldFault, kind: object, *, is_secret: bool) -> str:
    name = fault.path[len(fault.parent) :].lstrip(".")
    known = known_at(kind, fault.parent)
    near = nearest(name, known)
    hint = f"did you mean {near[0]}? Known: " if near else "known: "
    place = fault.path
    if is_secret and not _PLAIN_NAME.fullmatch(name):
        place = f"a field of {fault.parent or 'the file'}"
    return f"{place} is not known; {hint}{', '.join(known)}"


def _shown(fault: FieldFault, given: object, *, is_secret: bool) -> str:
    """What stands there: as it is, or what kind of thing it is."""
    value = _value_at(given, fault.path)
    is_number = isinstance(value, int | float)
    if is_secret and not (is_number and fault.kind == "limit"):
        if fault.kind in ("length", "pattern", "choice") and isinstance(value, str):
            return f"another text of {len(value)} characters"
        return fault.got or "something else"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _value_at(given: object, path: str) -> object:
    """The value at a path that msgspec wrote; None where a path does not say which entry it is."""
    for step in steps_of(path):
        if isinstance(given, dict):
            given = given.get(step)
        elif isinstance(given, list | tuple) and step.isdigit():
            given = given[int(step)]
        else:
            return None
    return given


def _listed(names: list[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
