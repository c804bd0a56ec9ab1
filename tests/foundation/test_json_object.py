"""JSON that somebody else wrote."""

from __future__ import annotations

import pytest

from octavo.errors import CorruptFileError
from octavo.foundation.json_object import parse_object


def test_half_of_a_surrogate_pair_is_refused_and_a_whole_one_is_a_character() -> None:
    """No UTF-8 can carry the half, so it would fail wherever the text is used."""
    assert parse_object(rb'{"a": "\ud83d\ude00"}', "a.json") == {"a": "\U0001f600"}

    with pytest.raises(CorruptFileError, match=r"a\.json is not valid JSON"):
        parse_object(rb'{"a": ["\ud83d"]}', "a.json")


@pytest.mark.parametrize("text", [b"", b"[1]", b"null", b'{"a": }', b"\xff", b'{"a":' * 10**5])
def test_what_is_no_object_is_refused_with_the_name_of_the_file(text: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"a\.json"):
        parse_object(text, "a.json")
