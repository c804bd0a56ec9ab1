"""What becomes of an option of vLLM's that Octavo lacks: the two verdicts, and how they are told.

Without effect: said so once, because answers, placement and safety are the same without it.
Refused: the error has the way out; a value that asks for nothing passes. Knows no single option.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.config.field import flag_name
from octavo.config.texts import SHORT, Shape, switch_of
from octavo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class VllmOption:
    """One row. `asks_nothing` are the values that are as good as leaving the option out.

    `without_effect` are values of a refused one that pass, and are told to change nothing.
    """

    name: str
    shape: Shape
    reason: str
    is_refused: bool
    asks_nothing: tuple[object, ...]
    is_removed: bool
    is_secret: bool = False
    short: tuple[str, ...] = ()
    without_effect: tuple[object, ...] = ()

    @property
    def passing(self) -> tuple[str, ...]:
        """The values that a refused option lets pass, beside the empty ones of its shape."""
        only = (
            ()
            if self.is_secret or not self.is_refused
            else self.asks_nothing[len(_IDLE[self.shape]) :]
        )
        return tuple(dict.fromkeys(_short_text(value) for value in (*only, *self.without_effect)))

    @property
    def default(self) -> object:
        """A value that asks for nothing, of the option's type where it has one."""
        only = self.asks_nothing[len(_IDLE[self.shape]) :]
        if self.shape == "switch":
            return False
        return only[0] if only and self.is_refused and self.shape == "value" else None

    def is_idle(self, value: object) -> bool:
        """Whether a value, typed or as a text, asks for nothing."""
        return self._is_among(value, self.asks_nothing)

    def _is_among(self, value: object, known: tuple[object, ...]) -> bool:
        if self.shape == "switch" and isinstance(value, str):
            value = switch_of(value, flag_name(self.name))
        if self.shape == "object" and isinstance(value, str):
            value = _object_of(value)
        return _text_of(value) in {_text_of(one) for one in known}

    def no_effect(self, shown_name: str) -> str:
        """What is said of an option without effect."""
        removed = "vLLM removed it; " if self.is_removed else ""
        return f"{shown_name} has no effect: {removed}{self.reason}"

    def refusal(self, shown: str) -> str:
        """What is said of an option that is refused; `shown` is name and value."""
        only = f"; only {' or '.join(self.passing)} is" if self.passing else ""
        return f"{shown} is not supported: {self.reason}{only}"

    def check(self, value: object, shown_name: str, joined: str) -> str | None:
        """What has to be said of an option with a value; None where it asks for nothing.

        `joined` stands between name and value in messages. Raises ConfigError for a refused one.
        """
        if self.is_idle(value):
            return None
        if not self.is_refused:
            return self.no_effect(shown_name)
        is_shown = not (self.is_secret or self.shape == "switch")
        shown = f"{shown_name}{joined}{_short_text(value)}" if is_shown else shown_name
        if self._is_among(value, self.without_effect):
            return self.no_effect(shown)
        raise ConfigError(self.refusal(shown))


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return value.lower().strip()
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str)
    return str(value).lower()


def _object_of(text: str) -> object:
    """What a text holds; the text itself where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _short_text(value: object) -> str:
    text = _text_of(value) if isinstance(value, Mapping | list | tuple) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_IDLE: Mapping[Shape, tuple[object, ...]] = {
    "switch": (None, False),
    "value": (None, ""),
    "list": (None, (), "[]"),
    "object": (None, {}),
}


def _rows(
    reason: str,
    names: Mapping[Shape, str],
    *,
    is_refused: bool,
    only: tuple[object, ...],
    **more: Any,
) -> Iterable[VllmOption]:
    for shape, listed in names.items():
        for name in listed.split():
            yield VllmOption(
                name=name,
                shape=shape,
                reason=reason,
                is_refused=is_refused,
                asks_nothing=(*_IDLE[shape], *only),
                short=SHORT.get(name, ()),
                is_removed=more.get("removed", False),
                is_secret=more.get("secret", False),
                without_effect=more.get("without_effect", ()),
            )


def idle(reason: str, *, removed: bool = False, **names: str) -> Iterable[VllmOption]:
    """Options without effect; their names by shape: `switch`, `value`, `list`, `object`."""
    shapes: Any = names
    return _rows(reason, shapes, is_refused=False, only=(0, 0.0), removed=removed)


def refused(
    reason: str,
    only: tuple[object, ...] = (),
    *,
    removed: bool = False,
    secret: bool = False,
    without_effect: tuple[object, ...] = (),
    **names: str,
) -> Iterable[VllmOption]:
    """Options that are refused unless their value is in `only`, or passes without effect."""
    shapes: Any = names
    more: Any = {"removed": removed, "secret": secret, "without_effect": without_effect}
    return _rows(reason, shapes, is_refused=True, only=only, **more)
