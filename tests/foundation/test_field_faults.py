"""What a type says about a wrong value, in words."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest

from octavo.foundation.field_faults import FieldFault, fault_of, known_at

Short = Annotated[str, msgspec.Meta(max_length=2)]


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """An object in a list."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]
    kinds: tuple[Literal["one", "two"], ...] = ()


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """The whole."""

    count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    share: Annotated[float, msgspec.Meta(lt=1)] = 0.0
    short: Short | None = None
    pair: Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)] | None = None
    inner: list[Inner] = []
    by_name: dict[str, Inner | None] = {}


def fault(text: str) -> FieldFault:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=Outer)
    return fault_of(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"count": "1"}', FieldFault("type", "count", "a whole number", "a text", "", True)),
        ('{"count": 1.5}', FieldFault("type", "count", "a whole number", "a fraction", "", True)),
        ('{"inner": {}}', FieldFault("type", "inner", "a list", "an object")),
        ("[]", FieldFault("type", "", "an object", "a list")),
        ('{"count": 0}', FieldFault("limit", "count", "at least 1", sign=">=")),
        ('{"share": 1}', FieldFault("limit", "share", "below 1.0", sign="<")),
        ('{"short": "abc"}', FieldFault("length", "short", "a text of at most 2 characters")),
        ('{"pair": [1]}', FieldFault("length", "pair", "a list of at least 2 entries")),
        ('{"inner": [{}]}', FieldFault("missing", "inner[0].name")),
        ('{"inner": [{"nam": 1}]}', FieldFault("unknown", "inner[0].nam")),
        ('{"cuont": 1}', FieldFault("unknown", "cuont")),
        (
            '{"inner": [{"name": "A"}]}',
            FieldFault("pattern", "inner[0].name", "a text that matches ^[a-z]+$"),
        ),
        (
            '{"inner": [{"name": "a", "kinds": ["one", "six"]}]}',
            FieldFault("choice", "inner[0].kinds[1]", "Invalid enum value 'six'"),
        ),
    ],
)
def test_a_complaint_says_where_what_is_right_and_what_was_got(text: str, expected: FieldFault):
    assert fault(text) == expected


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("", ["count", "share", "short", "pair", "inner", "by_name"]),
        ("inner[3]", ["name", "kinds"]),
        ("by_name[...]", ["name", "kinds"]),
        ("inner[0].kinds[1]", ["one", "two"]),
        ("count", []),
        ("nowhere.at[0].all", []),
    ],
)
def test_what_may_stand_at_a_place_follows_from_the_type(path: str, known: list[str]):
    assert known_at(Outer, path) == known
