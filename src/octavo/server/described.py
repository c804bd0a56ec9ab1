"""What a route takes and gives, said beside its handler: `@described(body=..., answer=...)`.

Owns the words of a description. Does not know JSON Schema (`openapi.py`), nor which paths there are
(`app.py`). A handler without a description is a route all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

H = TypeVar("H", bound=Callable[..., Any])
_ATTRIBUTE = "__described__"

# Statuses that a kind of route may answer with, besides those that any route may.
READY_ERRORS = (503,)
BODY_ERRORS = (400, 413, 415)
MODEL_ERRORS = (404, 503)
ENGINE_ERRORS = (408, 429)
HELLO = [{"role": "user", "content": "Name three colours."}]  # messages of examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parameter in the query of the URL."""

    name: str
    description: str
    kind: Literal["string", "boolean", "integer"] = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route, as a decorator of its handler.

    Types are structs, or anything else that msgspec has a schema for.
    `required` are fields of the body that the struct leaves open, so that their absence is told in
    our words; `examples` are bodies by name. `answer` is that of status 200: a type for JSON, None
    for an empty body; `text` has its media types where it is no JSON. `stream` is the media type of
    a streamed answer and the type of its pieces. `also` has answers of other statuses that are no
    errors.
    """

    body: Any = None
    required: tuple[str, ...] = ()
    examples: Mapping[str, Any] = field(default_factory=dict)
    answer: Any = None
    text: tuple[str, ...] = ()
    stream: tuple[str, Any] | None = None
    query: tuple[Query, ...] = ()
    errors: tuple[int, ...] = ()
    also: Mapping[int, Any] = field(default_factory=dict)
    is_shown: bool = True  # False: the route is no part of the API
    succeeds: bool = True  # False: the route refuses everything

    def __call__(self, handler: H) -> H:
        """Put the description on a handler."""
        setattr(handler, _ATTRIBUTE, self)
        return handler


described = Operation


def description_of(handler: Callable[..., Any]) -> Operation | None:
    """What was put on a handler, if anything."""
    found = getattr(handler, _ATTRIBUTE, None)
    assert isinstance(found, Operation | None)
    return found
