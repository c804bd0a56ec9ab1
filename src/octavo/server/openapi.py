"""The API as an OpenAPI 3.1 document: made from the table of routes and the types beside them.

Owns paths, operations, responses, components. Knows no route by name: what a route takes and gives
is said on its handler (`described.py`), errors follow from its path. A route that says nothing
appears with its path, its docstring and the form of its errors.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from octavo.server.auth import ADMIN_PATHS, OPEN_PATHS
from octavo.server.described import Operation, Query, description_of
from octavo.server.error_shapes import MESSAGES_PATH, OLLAMA_PREFIX, speaks_anthropic
from octavo.server.openapi_fields import add_meanings
from octavo.server.openapi_texts import allow_texts
from octavo.server.pages import PAGE_PATHS
from octavo.server.schemas.errors import ErrorAnswer, MessagesErrorAnswer, OllamaErrorAnswer
from octavo.version import version

RouteTable: TypeAlias = tuple[tuple[str, str, Callable[..., Awaitable[Any]]], ...]
Json = dict[str, Any]
SCHEMAS = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_GUARD_ERRORS = (401, 403)
_ANY_ERRORS = (431, 500)
_INTRODUCTION = """\
OpenAI's, Anthropic's and Ollama's APIs over one model, with vLLM's extensions. A field that is
known and not served is refused by name. Errors have the form of the API the path belongs to."""
TAGS = {
    "OpenAI": "Chats, completions and what belongs to them, with vLLM's extensions.",
    "Anthropic": "The Messages API.",
    "Ollama": "Ollama's API; names of models may end in `:latest`.",
    "Server": "Probes, metrics, tokens, and what this server can do.",
    "Operators": "For administrators: they want a key of their own.",
    "Pages": "The chat page and this reference.",
}
_ERROR_SHAPES: Mapping[str, type] = {
    "OpenAI": ErrorAnswer,
    "Messages": MessagesErrorAnswer,
    "Ollama": OllamaErrorAnswer,
}


def openapi_document(routes: RouteTable, *, root_path: str = "") -> Json:
    """The document of some routes; `root_path` is the prefix of a proxy."""
    routes = tuple(route for route in routes if _is_shown(route[2]))
    types = [*_ERROR_SHAPES.values(), *_types_of(routes)]
    schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    known = dict(zip(types, schemas, strict=True))
    bodies = set(_bodies_of(routes))
    allow_texts(
        [known[kind] for kind in bodies],
        [schema for kind, schema in known.items() if kind not in bodies],
        components,
    )
    builder = _Paths(known, components)
    counts = _counts(handler.__name__ for _, _, handler in routes)
    paths: Json = {}
    for method, path, handler in routes:
        shown = shown_path(path)
        name = handler.__name__
        if counts[name] > 1:
            name += "_" + re.sub(r"\W+", "_", f"{method.lower()}{shown}").strip("_")
        paths.setdefault(shown, {})[method.lower()] = builder.operation(path, handler, name)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Octavo", "version": version(), "description": _INTRODUCTION},
        "servers": [{"url": root_path or "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": dict(sorted(builder.responses.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _is_shown(handler: Callable[..., Any]) -> bool:
    said = description_of(handler)
    return said is None or said.is_shown


def _types_of(routes: RouteTable) -> Iterator[Any]:
    """Every type that a description names, once for each place."""
    for _, _, handler in routes:
        said = description_of(handler)
        if said is not None:
            stream = None if said.stream is None else said.stream[1]
            yield from (
                kind for kind in (said.body, said.answer, stream, *said.also.values()) if kind
            )


def _bodies_of(routes: RouteTable) -> Iterator[Any]:
    """Types of the bodies that requests have."""
    for _, _, handler in routes:
        said = description_of(handler)
        if said is not None and said.body:
            yield said.body


def _counts(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


class _Paths:
    """Makes operations; collects the error responses that they refer to."""

    def __init__(self, known: Mapping[Any, Json], components: Json) -> None:
        self._known, self._components = known, components
        self.responses: Json = {}

    def operation(self, path: str, handler: Callable[..., Any], name: str) -> Json:
        said = description_of(handler)
        summary, _, more = (inspect.getdoc(handler) or name).partition("\n\n")
        made: Json = {
            "operationId": name,
            "summary": " ".join(summary.split()).removesuffix("."),
            "tags": [tag_of(path)],
            "responses": self._responses(path, said),
        }
        if more:
            made["description"] = more
        parameters = [_path_parameter(found) for found in _PARAMETER.findall(path)]
        if said is not None:
            parameters += map(_query_parameter, said.query)
            if said.body is not None:
                made["requestBody"] = self._body(said)
        if parameters:
            made["parameters"] = parameters
        # No key is wanted where the server was started without one: the empty choice.
        made["security"] = [] if path in OPEN_PATHS else [{"bearer": []}, {"apiKey": []}, {}]
        return made

    def _body(self, said: Operation) -> Json:
        schema = self._schema(said.body)
        target = self._components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for name in said.required:
            if name not in target.get("required", ()):
                target["required"] = sorted([*target.get("required", ()), name])
            target["properties"][name] = _without_null(target["properties"][name])
        add_meanings(target)
        content: Json = {"schema": schema}
        if said.examples:
            content["examples"] = {name: {"value": one} for name, one in said.examples.items()}
        return {"required": True, "content": {"application/json": content}}

    def _responses(self, path: str, said: Operation | None) -> Json:
        if said is None:
            return {
                "200": {"description": "What was asked for"},
                "default": self._error(path, None),
            }
        made: Json = {}
        if said.succeeds:
            made["200"] = {"description": "OK", **self._content(said)}
        for status, kind in said.also.items():
            content = {"application/json": {"schema": self._schema(kind)}}
            made[str(status)] = {"description": HTTPStatus(status).phrase} | (
                {"content": content} if kind else {}
            )
        guarded = () if path in OPEN_PATHS else _GUARD_ERRORS
        for status in sorted({*said.errors, *guarded, *_ANY_ERRORS}):
            made.setdefault(str(status), self._error(path, status))
        return made

    def _content(self, said: Operation) -> Json:
        if said.text:
            return {"content": {kind: {"schema": {"type": "string"}} for kind in said.text}}
        if said.answer is None:
            return {}
        content: Json = {"application/json": {"schema": self._schema(said.answer)}}
        if said.stream is not None:
            media_type, piece = said.stream
            # OpenAPI 3.1 has no word for the items of a stream; 3.2 calls it itemSchema.
            content[media_type.partition(";")[0]] = {"x-itemSchema": self._schema(piece)}
        return {"content": content}

    def _error(self, path: str, status: int | None) -> Json:
        """A reference to the error of a status in the form of the path; None: any status."""
        style = _style_of(path)
        name = f"{style}{status or 'Error'}"
        if name not in self.responses:
            text = "An error" if status is None else HTTPStatus(status).phrase
            schema = self._schema(_ERROR_SHAPES[style])
            response: Json = {
                "description": text,
                "content": {"application/json": {"schema": schema}},
            }
            if status in (429, 503):
                seconds = {"type": "integer", "minimum": 1}
                text = "Seconds after which another try makes sense, where they are known"
                response["headers"] = {"Retry-After": {"description": text, "schema": seconds}}
            self.responses[name] = response
        return {"$ref": f"#/components/responses/{name}"}

    def _schema(self, kind: Any) -> Json:
        return dict(self._known[kind]) if kind is not None else {}


def shown_path(path: str) -> str:
    """A path of the table as documents write it: `{name:path}` is `{name}`."""
    return _PARAMETER.sub(r"{\1}", path)


def tag_of(path: str) -> str:
    """The group that a path is shown in."""
    if path in ADMIN_PATHS:
        return "Operators"
    if speaks_anthropic(path):
        return "Anthropic"
    if path.startswith(OLLAMA_PREFIX):
        return "Ollama"
    if path.startswith("/v1/") and path != "/v1/capabilities":
        return "OpenAI"
    return "Pages" if path in PAGE_PATHS else "Server"


def _style_of(path: str) -> str:
    """Whose form errors have."""
    if path.startswith(MESSAGES_PATH) and speaks_anthropic(path):
        return "Messages"
    return "Ollama" if path.startswith(OLLAMA_PREFIX) else "OpenAI"


def _path_parameter(name: str) -> Json:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }


def _query_parameter(query: Query) -> Json:
    return {
        "name": query.name,
        "in": "query",
        "description": query.description,
        "schema": {"type": query.kind},
    }


def _without_null(schema: Json) -> Json:
    """A field that must be there: neither null nor a default."""
    made = {name: value for name, value in schema.items() if name != "default"}
    choices = [one for one in made.pop("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1:
        made.update(choices[0])
    elif choices:
        made["anyOf"] = choices
    return made
