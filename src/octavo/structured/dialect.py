"""What the standard means and the automaton library reads otherwise, rewritten for the library.

Owns three differences. Patterns are those of ECMA-262, the library's those of Rust. Three formats
of the library allow dates that there are not and seconds of number 60 at any time; ours allow none
of them. A count may be written as 2.0.
"""

from __future__ import annotations

import re
from typing import Any

from octavo.structured.references import sub_schemas

Schema = dict[str, Any]

_COUNTS = (
    *("minItems", "maxItems", "minLength", "maxLength"),
    *("minProperties", "maxProperties"),
)
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
_HOUR = "(?:[01][0-9]|2[0-3])"
_TIME = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_FORMATS = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$"}

_SPACES = r"\t\n\x0b\x0c\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_IN_CLASS = {"[": r"\[", "&&": r"&\&", "~~": r"~\~"}  # signs that Rust reads as operators
_PARTS = re.compile(r"\\.|&&|~~|.", re.DOTALL)


def rewrite(root: Schema) -> None:
    """Make a schema, in place, mean to the library what it means by the standard."""
    for _, schema in sub_schemas(root):
        for name in _COUNTS:
            if isinstance(schema.get(name), float) and schema[name].is_integer():
                schema[name] = int(schema[name])
        if isinstance(schema.get("pattern"), str):
            schema["pattern"] = rust_pattern(schema["pattern"])
        by_pattern = schema.get("patternProperties")
        if isinstance(by_pattern, dict):
            schema["patternProperties"] = {
                rust_pattern(pattern): inner for pattern, inner in by_pattern.items()
            }
        form = schema.get("format")
        if isinstance(form, str) and form in _FORMATS:
            del schema["format"]
            _add_pattern(schema, _FORMATS[form])


def _add_pattern(schema: Schema, pattern: str) -> None:
    if "pattern" not in schema:
        schema["pattern"] = pattern
        return
    beside = schema.get("allOf")
    schema["allOf"] = [*(beside if isinstance(beside, list) else ()), {"pattern": pattern}]


def rust_pattern(pattern: str) -> str:
    """An expression that matches what an ECMA-262 expression does.

    They differ in what white space is, in what a point leaves out, and in brackets and doubled
    signs inside a class. What else differs is an error of the library's.
    """
    made, in_class = [], False
    for part in _PARTS.findall(pattern):
        if part in ("\\s", "\\S"):
            inside = _SPACES if part == "\\s" else f"^{_SPACES}"
            made.append(_SPACES if in_class and part == "\\s" else f"[{inside}]")
        elif in_class:
            in_class = part != "]"
            made.append(_IN_CLASS.get(part, part))
        elif part == ".":
            made.append(r"[^\n\r\u2028\u2029]")
        else:
            in_class = part == "["
            made.append(part)
    return "".join(made)
