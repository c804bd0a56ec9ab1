"""Functions and objects that templates may name: as Transformers offers them.

Used by: sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from octavo.chat.render_budget import TemplateRefusalError

MAX_FORMAT = 200  # characters of a date format
WIDTH = re.compile(r"%[^%A-Za-z]*\d")


def raise_exception(message: object = "") -> NoReturn:
    """How a template says that it cannot show these messages."""
    raise TemplateRefusalError(str(message))


def strftime_now(now: Callable[[], datetime]) -> Callable[[str], str]:
    """The function that shows the time of `now`."""

    def strftime_now(format: str) -> str:
        # Some C libraries take a width after the percent sign, of any size.
        if len(format) > MAX_FORMAT or WIDTH.search(format):
            raise SecurityError("strftime_now takes a short format without widths")
        return now().strftime(format)

    return strftime_now


class TemplateDict:
    """`dict(...)` and `dict.fromkeys(...)`, without the rest of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """A dict of these keys and one value."""
        return dict.fromkeys(*args)


class TemplateNamespace(Namespace):
    """`namespace(...)`: variables that outlive a loop; no private names."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` is a name that templates may use
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # its values may be endless


def _check_name(name: object) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute {name!r} in chat templates")
