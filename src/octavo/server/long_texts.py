"""Long texts of a body: taken out before it is decoded, decoded in pieces, put back.

No other thread runs while msgspec makes a text, and one of twenty megabytes takes it twenty
milliseconds and more. Owns where a text may be cut. Does not know requests.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError
from octavo.server.json_errors import not_json

_AT_ONCE = 2**19  # bytes of a text
_BACKSLASH = b"\\"
_LONGEST_ESCAPE = 6  # bytes: \u0000
_LOW_SURROGATE = re.compile(rb"\\u[dD][c-fC-F]")
_NAME_END = re.compile(rb'"[ \t\r\n]*:')

Span = tuple[int, int]  # of what stands between the quotes of a text


class LongTexts:
    """The texts at some places of a body, and the body without them."""

    def __init__(self, body: bytes, spans: Sequence[Span]) -> None:
        """Raises InvalidRequestError for a text that is a name, or is none."""
        secret = secrets.token_hex(8)
        self._texts: dict[str, str] = {}
        kept, place = [], 0
        for begin, end in spans:
            if _NAME_END.match(body, end):
                message = (
                    f"a name in the body is {end - begin} bytes long; no field has such a name"
                )
                raise InvalidRequestError(message)
            mark = f"long text {len(self._texts)} {secret}"
            self._texts[mark] = _text_of(body, begin, end)
            kept += [body[place:begin], mark.encode()]
            place = end
        self.short_body = b"".join([*kept, body[place:]])

    def put_back(self, value: Any) -> Any:
        """What was decoded from the short body, with the texts where their marks are.

        Marks inside of a `msgspec.Raw` stay.
        """
        if isinstance(value, str):
            return self._texts.get(value, value)
        open_values, num_missing = [value], len(self._texts)
        while open_values and num_missing:
            one = open_values.pop()
            for key, part in _parts_of(one):
                if isinstance(part, str):
                    if part in self._texts:
                        _set_part(one, key, self._texts[part])
                        num_missing -= 1
                elif isinstance(part, list | dict | msgspec.Struct):
                    open_values.append(part)
        return value


def _parts_of(value: Any) -> Any:
    """(key, part) pairs. Parts may be set while they are walked over."""
    if isinstance(value, list):
        return enumerate(value)
    if isinstance(value, Mapping):
        return value.items()
    return ((name, getattr(value, name)) for name in value.__struct_fields__)


def _set_part(value: Any, key: Any, text: str) -> None:
    if isinstance(value, msgspec.Struct):
        msgspec.structs.force_setattr(value, key, text)
    else:
        value[key] = text


def _text_of(body: bytes, begin: int, end: int) -> str:
    """The text of a literal. Raises InvalidRequestError."""
    parts = []
    while begin < end:
        cut = end if end - begin <= _AT_ONCE else _cut_before(body, begin, begin + _AT_ONCE)
        literal = b'"%b"' % body[begin:cut]
        try:
            parts.append(msgspec.json.decode(literal, type=str))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise not_json("the body", literal, error) from None
        begin = cut
    return "".join(parts)


def _cut_before(body: bytes, begin: int, place: int) -> int:
    """A place close by, within no character, no escape and no pair of surrogates.

    A character begins at `begin`, and what is no JSON may be cut anywhere.
    """
    last = body.rfind(_BACKSLASH, place - _LONGEST_ESCAPE, place)
    if last >= 0:
        before = body[begin : last + 1]
        is_escape = (len(before) - len(before.rstrip(_BACKSLASH))) % 2 == 1
        length = _LONGEST_ESCAPE if body[last + 1 : last + 2] == b"u" else 2
        if is_escape and last + length > place:
            place = last
    if _LOW_SURROGATE.match(body, place) and place - _LONGEST_ESCAPE > begin:
        place -= _LONGEST_ESCAPE  # both halves belong to one character
    while body[place] & 0xC0 == 0x80 and place > begin + 1:
        place -= 1
    return place
