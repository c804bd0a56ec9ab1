"""Typed, checked access to the untyped keys of a model file: JSON objects and GGUF metadata.

Owns the type and range checks and the error that names file and key. Does not know what a key
means. A key whose value is null counts as missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NoReturn

from octavo.errors import CorruptFileError

LARGEST_INTEGER = 2**31 - 1


class Fields:
    """One object of keys and values. Every method raises CorruptFileError that names the key.

    A method with a `default` returns it for a missing key; without one the key must be there.
    `prefix` stands before every key in the file, and in no call here. `names` has the file's word
    for a key where it is another one.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        where: str,
        *,
        prefix: str = "",
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.values = values
        self._prefix = prefix
        self._names = names or {}
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.value(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def value(self, key: str) -> object:
        """Whatever the file has, None when the key is missing."""
        return self.values.get(self._in_file(key))

    def integer(
        self,
        key: str,
        default: int | None = None,
        *,
        at_least: int = 0,
        at_most: int = LARGEST_INTEGER,
    ) -> int:
        """A whole number within the limits."""
        value = self._get(key, default)
        # JSON written by other languages has 4.0 for 4.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, f"must be a whole number, got {_shown(value)}")
        if not at_least <= value <= at_most:
            self.refuse(key, f"must be from {at_least} to {at_most}, got {_shown(value)}")
        return value

    def optional_integer(
        self, key: str, *, at_least: int = 0, at_most: int = LARGEST_INTEGER
    ) -> int | None:
        """The same, or None when the key is missing."""
        return self.integer(key, at_least=at_least, at_most=at_most) if key in self else None

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        above: float = -math.inf,
        at_most: float = math.inf,
    ) -> float:
        """A finite number within the limits."""
        return self._checked(key, self._get(key, default), above, at_most)

    def optional_number(
        self, key: str, *, above: float = -math.inf, at_most: float = math.inf
    ) -> float | None:
        """The same, or None when the key is missing."""
        return self.number(key, above=above, at_most=at_most) if key in self else None

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"must be true or false, got {_shown(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            self.refuse(key, f"must be a string, got {_shown(value)}")
        return value

    def optional_text(self, key: str) -> str | None:
        """The same, or None when the key is missing."""
        return self.text(key) if key in self else None

    def items(self, key: str) -> list[object]:
        """A list of anything; empty when the key is missing."""
        value = self._get(key, [])
        if not isinstance(value, list):
            self.refuse(key, f"must be a list, got {_shown(value)}")
        return value

    def numbers(self, key: str, *, above: float = -math.inf) -> tuple[float, ...]:
        """A list of finite numbers; empty when the key is missing."""
        return tuple(self._checked(key, value, above, math.inf) for value in self.items(key))

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty when the key is missing."""
        checked = []
        for value in self.items(key):
            if not isinstance(value, str):
                self.refuse(key, f"must be a list of strings, has {_shown(value)}")
            checked.append(value)
        return checked

    def section(self, key: str) -> Fields | None:
        """A nested object, or None when the key is missing."""
        if key not in self:
            return None
        value = self.value(key)
        if not isinstance(value, dict):
            self.refuse(key, f"must be an object, got {_shown(value)}")
        return Fields(value, f"{self.where}, {key}")

    def refuse(self, key: str, what: str) -> NoReturn:
        """Raise CorruptFileError about `key`."""
        raise CorruptFileError(f"{self.where}: {self._in_file(key)} {what}")

    def _in_file(self, key: str) -> str:
        return self._prefix + self._names.get(key, key)

    def _get(self, key: str, default: object) -> object:
        value = self.value(key)
        if value is not None:
            return value
        if default is None:
            raise CorruptFileError(f"{self.where}: the key {self._in_file(key)} is missing")
        return default

    def _checked(self, key: str, value: object, above: float, at_most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, f"must be a number, got {_shown(value)}")
        if isinstance(value, int) and abs(value) > 2**63:
            self.refuse(key, "is too large")
        if not math.isfinite(value):
            self.refuse(key, f"must be a finite number, got {value}")
        if value <= above:
            self.refuse(key, f"must be above {above:g}, got {value:g}")
        if value > at_most:
            self.refuse(key, f"must be at most {at_most:g}, got {value:g}")
        return float(value)


def _shown(value: object) -> str:
    """The value for a message, cut to a readable length."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "a huge number"  # printing it may take long, and Python refuses beyond 4300 digits
    if isinstance(value, list | dict):
        return f"a list of {len(value)}" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
