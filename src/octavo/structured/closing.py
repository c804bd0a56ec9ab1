"""Closing: objects of a schema that name their properties take no others, unless it says so.

A schema is open by default: `{"properties": {"x": ...}}` allows any further property, and a model
that has lost the thread writes them until its answer is cut. The closed schema of this module
allows less than the given one and never more, so that whatever fits it fits both. An object stays
as it is where anything that applies to it speaks of further properties itself.

Parts that apply to one object (`allOf`, `anyOf`, `oneOf`, `$ref` and what stands beside them) close
together: each allows the names of those it holds together with. So a definition may be needed in
several forms, one for each set of names; references go to these forms.
"""

from __future__ import annotations

from typing import Any

from octavo.structured.references import NoTargetError, has_id, target_of

MAX_FORMS = 2_000  # of definitions; a schema that needs more stays open
_ALTERNATIVES = ("anyOf", "oneOf")
_IN_PLACE_LISTS = ("allOf", *_ALTERNATIVES)
_SPEAKING = ("additionalProperties", "patternProperties")
_INNER = ("items", "additionalProperties", "additionalItems")
_INNER_LISTS = ("items", "prefixItems")
_INNER_MAPS = ("properties", "patternProperties")
_DEFINITIONS = ("$defs", "definitions")

Names = dict[str, None]  # an ordered set
Schema = dict[str, Any]


def closed(schema: Schema) -> Schema:
    """The closed schema; `schema` itself where it has references that cannot be followed here."""
    try:
        return _Closing(schema).of_root()
    except (NoTargetError, _TooManyFormsError, RecursionError):
        return schema


class _TooManyFormsError(Exception):
    pass


class _Closing:
    """The work on one schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._forms: dict[tuple[str, tuple[str, ...], bool], str] = {}  # -> name of the definition
        self._pending: list[tuple[str, Any, Names, bool]] = []
        self._named: dict[str, Names] = {}  # by reference
        self._speaking: dict[str, bool] = {}  # by reference

    def of_root(self) -> Schema:
        """The closed root with the forms of all definitions that it needs."""
        made: Schema = self._value(self._root)
        forms: Schema = {}
        while self._pending:
            name, target, others, speaks = self._pending.pop()
            forms[name] = self._part(target, others, speaks)
        return {**made, "$defs": forms} if forms else made

    def _value(self, schema: Any) -> Any:
        """A schema that has a value for itself."""
        if not isinstance(schema, dict):
            return schema
        return self._part(schema, {}, self._speaks(schema))

    def _part(self, schema: Any, others: Names, speaks: bool) -> Any:
        """One of the schemas of a value. `others`: names of those that it holds together with.

        `speaks`: whether one of them says what further properties there may be.
        """
        if not isinstance(schema, dict):
            return schema
        if schema is not self._root and has_id(schema):
            raise NoTargetError  # of references inside it
        made = {name: value for name, value in schema.items() if name not in _DEFINITIONS}
        for keyword in _INNER:
            if keyword in made:
                made[keyword] = self._value(made[keyword])
        for keyword in _INNER_LISTS:
            if isinstance(made.get(keyword), list):
                made[keyword] = [self._value(one) for one in made[keyword]]
        for keyword in _INNER_MAPS:
            if isinstance(made.get(keyword), dict):
                made[keyword] = {name: self._value(one) for name, one in made[keyword].items()}
        for keyword in _IN_PLACE_LISTS:
            if isinstance(made.get(keyword), list):
                # Alternatives do not hold together with each other.
                beside = keyword if keyword in _ALTERNATIVES else ""
                names = others | self._names(schema, without=beside)
                made[keyword] = [self._part(one, names, speaks) for one in made[keyword]]
        if "$ref" in made:
            names = others | self._names(schema, without="$ref")
            made["$ref"] = self._form(made["$ref"], names, speaks)
        if isinstance(made.get("properties"), dict) and not speaks:
            names = self._names(schema) | others
            made["properties"] |= {name: True for name in names if name not in made["properties"]}
            made["additionalProperties"] = False
        return made

    def _form(self, reference: Any, others: Names, speaks: bool) -> str:
        """A reference to the form of a definition that closes with `others`."""
        target = target_of(self._root, reference)
        key = (reference, tuple(others), speaks)
        if key not in self._forms:
            if len(self._forms) >= MAX_FORMS:
                raise _TooManyFormsError
            self._forms[key] = str(len(self._forms))
            self._pending.append((self._forms[key], target, others, speaks))
        return f"#/$defs/{self._forms[key]}"

    def _names(self, schema: Any, without: str = "") -> Names:
        """Properties that a schema names for its value, those behind `without` left out."""
        names: Names = {}
        if not isinstance(schema, dict):
            return names
        for keyword in ("properties", "required"):
            if isinstance(schema.get(keyword), dict | list):
                names |= {name: None for name in schema[keyword] if isinstance(name, str)}
        for keyword in _IN_PLACE_LISTS:
            if keyword != without and isinstance(schema.get(keyword), list):
                for one in schema[keyword]:
                    names |= self._names(one)
        if "$ref" in schema and without != "$ref":
            reference = schema["$ref"]
            target = target_of(self._root, reference)
            if reference not in self._named:
                self._named[reference] = {}  # for a reference that leads back to itself
                self._named[reference] = self._names(target)
            names |= self._named[reference]
        return names

    def _speaks(self, schema: Any) -> bool:
        """Whether a schema says what further properties its value may have."""
        if not isinstance(schema, dict):
            return False
        if any(keyword in schema for keyword in _SPEAKING):
            return True
        for keyword in _IN_PLACE_LISTS:
            if isinstance(schema.get(keyword), list) and any(map(self._speaks, schema[keyword])):
                return True
        if "$ref" not in schema:
            return False
        reference = schema["$ref"]
        target = target_of(self._root, reference)
        if reference not in self._speaking:
            self._speaking[reference] = False
            self._speaking[reference] = self._speaks(target)
        return self._speaking[reference]
