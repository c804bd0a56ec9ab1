"""msgspec's complaints about a value, taken apart and put in the words that people use.

Does not know whose value it is: bodies of requests, options and files say that themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

FaultKind = Literal["type", "limit", "length", "pattern", "choice", "missing", "unknown", "other"]

LONGEST_NAME = 100  # characters of an unknown field that an error repeats
RULES = {"<=": "at most", ">=": "at least", "<": "below", ">": "above"}
_TYPES = {  # of JSON, as people call them
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_ITEMS = {"str": "characters", "array": "entries", "object": "fields"}
_PLACE = re.compile(r"^(?P<what>.*?) - at `(?:key in )?\$\.?(?P<path>[^`]*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_TYPE = re.compile(r"Expected `(?P<wanted>\w+(?: \| \w+)*)`, got `(?P<got>\w+)`")
_LIMIT = re.compile(r"Expected `\w+(?: \| null)?` (?P<sign>[<>]=?) (?P<bound>\S+)")
_LENGTH = re.compile(
    r"Expected `(?P<type>\w+)(?: \| \w+)*` of length (?P<sign>[<>]=) (?P<bound>\d+)"
)
_PATTERN = re.compile(r"Expected `str(?: \| null)?` matching regex '(?P<pattern>.*)'", re.DOTALL)
_CHOICE = re.compile(r"Invalid enum value .*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FieldFault:
    """What is wrong with one value."""

    kind: FaultKind
    path: str  # of the field, such as `keys[0].name`; "" for the whole value
    right: str = ""  # what it must be: "a whole number", "at most 5"; msgspec's text of an `other`
    got: str = ""  # of a `type`: what it is
    sign: str = ""  # of a `limit`
    may_be_left_out: bool = False  # of a `type`: null is right too

    @property
    def parent(self) -> str:
        """The path of the object that holds the field."""
        return self.path.rpartition(".")[0]


def fault_of(error: msgspec.ValidationError) -> FieldFault:
    """The complaint, taken apart."""
    text = str(error)
    found = _PLACE.match(text)
    what, path = (found["what"], found["path"]) if found is not None else (text, "")
    for kind, pattern in (("unknown", _UNKNOWN), ("missing", _MISSING)):
        named = pattern.fullmatch(what)
        if named is not None:
            name = named["name"][:LONGEST_NAME]
            place = f"{path}.{name}" if path else name
            return FieldFault("unknown" if kind == "unknown" else "missing", place)
    return _fault_at(path, what)


def _fault_at(path: str, what: str) -> FieldFault:
    """Of a value that is there and is not right."""
    types = _TYPE.fullmatch(what)
    if types is not None:
        return _wrong_type(path, types["wanted"], types["got"])
    limit = _LIMIT.fullmatch(what)
    if limit is not None:
        right = f"{RULES[limit['sign']]} {limit['bound']}"
        return FieldFault("limit", path, right, sign=limit["sign"])
    length = _LENGTH.fullmatch(what)
    if length is not None:
        items = _ITEMS.get(length["type"], "entries")
        kind = _TYPES.get(length["type"], length["type"])
        return FieldFault(
            "length", path, f"{kind} of {RULES[length['sign']]} {length['bound']} {items}"
        )
    pattern = _PATTERN.fullmatch(what)
    if pattern is not None:
        return FieldFault("pattern", path, f"a text that matches {pattern['pattern']}")
    return FieldFault("choice" if _CHOICE.fullmatch(what) else "other", path, what)


def _wrong_type(path: str, wanted: str, got: str) -> FieldFault:
    """The type of a value must be one and is another; null stands for leaving a field out."""
    *names, last = [_TYPES.get(one, one) for one in wanted.split(" | ") if one != "null"]
    right = f"{', '.join(names)} or {last}" if names else last
    shown = "a fraction" if (got, last) == ("float", _TYPES["int"]) else _TYPES.get(got, got)
    return FieldFault("type", path, right, shown, may_be_left_out=wanted.endswith(" | null"))


def known_at(kind: object, path: str) -> list[str]:
    """What may stand at a path inside a type: names of an object's fields, or a text's choices."""
    types = [msgspec.inspect.type_info(kind)]
    for step in steps_of(path):
        types = [below for one in _branches(types) for below in _steps(one, step)]
    names: list[str] = []
    for one in _branches(types):
        if isinstance(one, msgspec.inspect.StructType):
            names += [field.encode_name for field in one.fields]
        elif isinstance(one, msgspec.inspect.LiteralType):
            names += [str(value) for value in one.values]
    return names


def steps_of(path: str) -> list[str]:
    """`keys[0].name` as its steps; `...` stands for an entry of an object, whatever its name."""
    return re.findall(r"\.\.\.|[^.\[\]]+", path)


def _branches(types: list[msgspec.inspect.Type]) -> Iterator[msgspec.inspect.Type]:
    for one in types:
        if isinstance(one, msgspec.inspect.UnionType):
            yield from one.types
        elif isinstance(one, msgspec.inspect.Metadata):
            yield from _branches([one.type])
        else:
            yield one


def _steps(outer: msgspec.inspect.Type, step: str) -> list[msgspec.inspect.Type]:
    """The types one step further in: of a field, or of any entry."""
    if isinstance(outer, msgspec.inspect.StructType):
        return [field.type for field in outer.fields if field.encode_name == step]
    if isinstance(outer, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        return [outer.item_type]
    return [outer.value_type] if isinstance(outer, msgspec.inspect.DictType) else []
