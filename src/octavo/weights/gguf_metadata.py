"""The key-value part of a GGUF file, read where it lies.

Owns decoding of values; arrays are decoded when somebody asks for them, because a vocabulary is
much larger than everything else and most readers do not need it. Does not know what a key means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import msgspec

from octavo import _native
from octavo.errors import CorruptFileError

INT32 = 5
STRING = 8
ARRAY = 9
# GGUF's number of a value type -> the format of one value, little endian.
SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
LENGTH = SCALARS[10]


class StoredArray(msgspec.Struct, frozen=True):
    """Where an array lies in the file; its bounds are checked."""

    item_type: int
    count: int
    data: memoryview


class GgufMetadata(Mapping[str, object]):
    """Keys to bool, int, float, str or list. A list is decoded anew with every look-up: keep it.

    Raises CorruptFileError when a string of a list is not UTF-8.
    """

    def __init__(self, values: dict[str, object], where: str) -> None:
        self._values = values
        self._where = where

    def __getitem__(self, key: str) -> object:
        value = self._values[key]
        if not isinstance(value, StoredArray):
            return value
        if value.item_type == STRING:
            return self._strings(key, value)
        item = SCALARS[value.item_type].format.removeprefix("<")
        return list(struct.unpack(f"<{value.count}{item}", value.data))

    def __contains__(self, key: object) -> bool:
        return key in self._values  # the inherited one would decode the list

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def stored_strings(self, key: str) -> tuple[memoryview, int] | None:
        """A list of strings where it lies, each its length (u64) and its bytes, and their number.

        None where there is no such list. The bytes stay valid as long as the view is referenced.
        """
        value = self._values.get(key)
        if not isinstance(value, StoredArray) or value.item_type != STRING:
            return None
        return value.data, value.count

    def stored_int32(self, key: str) -> memoryview | None:
        """A list of int32 where it lies, as such; None where there is no such list."""
        value = self._values.get(key)
        if not isinstance(value, StoredArray) or value.item_type != INT32:
            return None
        return value.data.cast("i")

    def index_in(self, key: str, text: str) -> int | None:
        """The first index of `text` in a list of strings, without decoding it."""
        array = self._values.get(key)
        if not isinstance(array, StoredArray) or array.item_type != STRING:
            return None
        wanted = text.encode()
        raw = bytes(array.data)
        # A search for length and bytes takes no time; only when it hits are the items counted,
        # which also tells a real item from a hit in the middle of one.
        stored = LENGTH.pack(len(wanted)) + wanted
        if stored not in raw:
            return None
        position = 0
        for index in range(array.count):
            if raw.startswith(stored, position):
                return index
            position += 8 + LENGTH.unpack_from(raw, position)[0]
        return None

    def stored_pairs(self, key: str) -> list[tuple[str, str]] | None:
        """A list of strings, each cut in two at its first space.

        None where there is no such list, or one of its strings is not UTF-8 or no two words.
        """
        stored = self.stored_strings(key)
        if stored is None:
            return None
        pairs = _native.stored_pairs(stored[0])
        return pairs if len(pairs) == stored[1] else None

    def _strings(self, key: str, array: StoredArray) -> list[str]:
        strings = _native.stored_strings(array.data)
        if len(strings) < array.count:
            what = f"item {len(strings)} of {key} is not valid UTF-8"
            raise CorruptFileError(f"{self._where}: {what}")
        return strings
