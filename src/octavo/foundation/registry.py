"""Registry: a name -> "module:object" table, imported on first use.

Growth is one file and one line. An unknown name lists the choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from octavo.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Lazy table of implementations of one contract."""

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def load(self, name: str) -> T:
        """The implementation of `name`.

        Raises ConfigError with the nearest and all known names.
        """
        try:
            target = self._entries[name]
        except KeyError:
            raise ConfigError(self.unknown(name)) from None
        module, _, attribute = target.partition(":")
        found: Any = getattr(import_module(module), attribute)
        return cast(T, found)

    def unknown(self, name: str) -> str:
        """The sentence that refuses `name`."""
        import difflib  # noqa: PLC0415 - only a mistake needs it

        near = difflib.get_close_matches(name, self._entries, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"unknown {self.kind} {name!r}.{hint} Supported: {', '.join(sorted(self._entries))}"
