"""The form of an answer in a request: OpenAI's `response_format`, vLLM's `structured_outputs`.

Owns the shapes of both, and which of them a request may have. What a schema means, and whether it
can be enforced, is the compiler's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError
from octavo.sampling_params import STRUCTURED_KINDS, StructuredOutputsParams
from octavo.server.schemas.switches import switch_at
from octavo.structured.limits import check_choices, check_json_size

# Options of vLLM's `structured_outputs` whose value changes nothing here.
NEUTRAL_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "disable_any_whitespace": (False,),
    "disable_additional_properties": (False, True),  # a schema that names properties is closed
    "whitespace_pattern": (),
    "disable_fallback": (),
}
REMOVED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
FORMATS = ("text", "json_object", "json_schema", "structural_tag")
LONGEST_NAME = 64  # of a schema, as OpenAI has it


def form_of(response_format: Any, structured_outputs: Any) -> StructuredOutputsParams | None:
    """What the answer must look like; None for any text.

    Raises InvalidRequestError that names the field.
    """
    form = _of_response_format(response_format)
    if structured_outputs in (None, {}):
        return form
    if form is not None:
        message = (
            "response_format and structured_outputs both say what the answer must look like; "
            "leave one out"
        )
        raise InvalidRequestError(message, param="structured_outputs")
    return _of_structured_outputs(structured_outputs)


def field_of(structured_outputs: Any) -> str:
    """The field that a refusal of the form names."""
    return "structured_outputs" if structured_outputs not in (None, {}) else "response_format"


def _of_structured_outputs(given: Any) -> StructuredOutputsParams:
    if not isinstance(given, dict):
        message = f"structured_outputs must be an object, not a {type(given).__name__}"
        raise InvalidRequestError(message, param="structured_outputs")
    for name, value in given.items():
        if name in NEUTRAL_OPTIONS:
            where, neutral = f"structured_outputs.{name}", NEUTRAL_OPTIONS[name]
            if value is not None and not (neutral and switch_at(value, where) in neutral):
                message = f"structured_outputs.{name} is not supported by this server"
                raise InvalidRequestError(message, param=where)
        elif name not in STRUCTURED_KINDS:
            message = (
                f"structured_outputs has no {name[:40]!r}; it has {', '.join(STRUCTURED_KINDS)}"
            )
            raise InvalidRequestError(message, param="structured_outputs")
    fields = {name: given.get(name) for name in STRUCTURED_KINDS}
    check_choices(fields["choice"], "structured_outputs")
    for name in ("json", "structural_tag"):
        if isinstance(fields[name], dict):
            fields[name] = _text(fields[name], f"structured_outputs.{name}")
    return StructuredOutputsParams(**fields)


def _of_response_format(given: Any) -> StructuredOutputsParams | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise _wrong("response_format", "must be an object with a type")
    kind = given.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    if kind == "json_schema":
        return StructuredOutputsParams(json=_schema_of(given.get("json_schema")))
    if kind == "structural_tag":
        tag = {name: value for name, value in given.items() if name != "type"}
        if "format" in tag:
            tag["type"] = "structural_tag"
        return StructuredOutputsParams(structural_tag=_text(tag, "response_format"))
    shown = "missing" if kind is None else repr(kind)[:60]
    raise _wrong("response_format.type", f"is {shown}; it must be one of {', '.join(FORMATS)}")


def _schema_of(given: Any) -> str:
    """The schema's text. `strict` changes nothing: every schema is enforced, or refused by name."""
    where = "response_format.json_schema"
    if not isinstance(given, dict):
        raise _wrong(where, "must be an object with a name and a schema")
    name, schema = given.get("name"), given.get("schema")
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= LONGEST_NAME):
        raise _wrong(f"{where}.name", f"must be a text of at most {LONGEST_NAME} characters")
    switch_at(given.get("strict"), f"{where}.strict")
    if not isinstance(schema, dict | bool):
        raise _wrong(f"{where}.schema", "must be a JSON schema, which is an object")
    return _text(schema, f"{where}.schema")


def _text(value: Any, where: str) -> str:
    """JSON as a text, which travels without being copied level by level."""
    check_json_size(value, where)
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise _wrong(where, "is nested too deep; flatten it") from None


def _wrong(where: str, rule: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where} {rule}", param=where)
