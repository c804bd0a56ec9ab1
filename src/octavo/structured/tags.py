"""Structural tags: free text, in which a trigger begins a part that must fit a schema.

Reads both public forms: vLLM's older `{"structures": [{"begin", "schema", "end"}], "triggers":
[...]}` and the `{"type": "structural_tag", "format": {...}}` object with `triggered_tags`, or with
`tag`, `tags_with_separator`, `const_string` and `json_schema`, or an `or` of these. Everything else
in a format is refused by name.
"""

from __future__ import annotations

import json
from typing import Any

import llguidance

from octavo.errors import InvalidRequestError
from octavo.structured.schema import checked_schema, json_rule

MAX_TAGS = 256


def tag_grammar(source: str, param: str, *, closes: bool) -> str:
    """The grammar of a text with structural tags; `closes` is for their schemas.

    Raises InvalidRequestError that names what is wrong.
    """
    try:
        document = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{param} is not valid JSON: {error}", param=param) from None
    tags = _Tags(param, closes=closes)
    return llguidance.LLMatcher.grammar_from_lark(tags.of_document(document))


class _Tags:
    """Writes the Lark text of one document."""

    def __init__(self, param: str, *, closes: bool) -> None:
        self._param = param
        self._closes = closes

    def of_document(self, document: Any) -> str:
        if not isinstance(document, dict):
            raise self._wrong("must be an object")
        if "structures" in document:
            return self._triggered(
                [self._structure(entry) for entry in self._list(document, "structures")],
                self._texts(document, "triggers"),
                at_least_one=False,
            )
        if "format" in document:
            return self._format(document["format"])
        raise self._wrong("must have `structures` and `triggers`, or `format`")

    def _format(self, form: Any) -> str:
        if not isinstance(form, dict):
            raise self._wrong("`format` must be an object")
        kind = form.get("type")
        if kind == "triggered_tags":
            entries = [self._tag(entry) for entry in self._list(form, "tags")]
            return self._triggered(
                entries,
                self._texts(form, "triggers"),
                at_least_one=form.get("at_least_one") is True,
            )
        return f"start: {self._expression(form)}"

    def _expression(self, form: Any) -> str:
        """The body of a rule."""
        kind = form.get("type") if isinstance(form, dict) else None
        if kind == "tag":
            return _sequence(*self._tag(form))
        if kind == "json_schema":
            return json_rule(self._schema(form.get("json_schema")))
        if kind == "const_string":
            return json.dumps(self._text(form, "value"))
        if kind == "or":
            elements = self._bounded(self._list(form, "elements"))
            return " | ".join(f"({self._expression(element)})" for element in elements)
        if kind == "tags_with_separator":
            tags = self._bounded(self._list(form, "tags"))
            one = " | ".join(f"({_sequence(*self._tag(tag))})" for tag in tags)
            separator = self._text(form, "separator")
            between = f"{json.dumps(separator)} " if separator else ""
            often = f"({one}) ({between}({one}))*"
            return often if form.get("at_least_one") is True else f"({often})?"
        raise self._wrong(
            f"the format {str(kind)[:60]!r} is not supported; use triggered_tags, tag, or, "
            "tags_with_separator, json_schema or const_string"
        )

    def _bounded(self, entries: list[Any]) -> list[Any]:
        if not 0 < len(entries) <= MAX_TAGS:
            raise self._wrong(f"has {len(entries)} alternatives, 1 to {MAX_TAGS} are allowed")
        return entries

    def _triggered(
        self, tags: list[tuple[str, Any, str]], triggers: list[str], *, at_least_one: bool
    ) -> str:
        """Text up to a trigger, the rest of one of its tags, and so on; then text to the end."""
        if not tags or not triggers:
            raise self._wrong("needs at least one tag and one trigger")
        if len(tags) > MAX_TAGS:
            raise self._wrong(f"has {len(tags)} tags, at most {MAX_TAGS} are allowed")
        rules, names = [], []
        for number, trigger in enumerate(triggers):
            branches = [
                _sequence(begin[len(trigger) :], schema, end)
                for begin, schema, end in tags
                if begin.startswith(trigger)
            ]
            if not branches:
                continue
            names.append(f"part_{number}")
            bodies = " | ".join(f"({branch})" for branch in branches)
            rules.append(f"head_{number}[lazy]: /(.|\\n)*/ {json.dumps(trigger)}")
            rules.append(f"part_{number}: head_{number} ({bodies})")
        for begin, _schema, _end in tags:
            if not any(begin.startswith(trigger) for trigger in triggers):
                raise self._wrong(f"the tag {begin!r} begins with none of the triggers")
        often = "+" if at_least_one else "*"
        start = f"start: ({' | '.join(names)}){often} rest"
        return "\n".join([start, "rest: REST", "REST: /(.|\\n)*/", *rules])

    def _structure(self, entry: Any) -> tuple[str, Any, str]:
        if not isinstance(entry, dict):
            raise self._wrong("each of `structures` must be an object")
        return (
            self._text(entry, "begin"),
            self._schema(entry.get("schema", {})),
            self._text(entry, "end"),
        )

    def _tag(self, entry: Any) -> tuple[str, Any, str]:
        if not isinstance(entry, dict):
            raise self._wrong("each tag must be an object")
        content = entry.get("content")
        if not isinstance(content, dict) or content.get("type") != "json_schema":
            raise self._wrong("the content of a tag must be of the type json_schema")
        schema = self._schema(content.get("json_schema"))
        return self._text(entry, "begin"), schema, self._text(entry, "end")

    def _schema(self, schema: Any) -> dict[str, Any]:
        return checked_schema(schema, self._param, closes=self._closes)

    def _list(self, holder: dict[str, Any], name: str) -> list[Any]:
        value = holder.get(name)
        if not isinstance(value, list):
            raise self._wrong(f"`{name}` must be a list")
        return value

    def _texts(self, holder: dict[str, Any], name: str) -> list[str]:
        value = self._list(holder, name)
        if not all(isinstance(text, str) and text for text in value):
            raise self._wrong(f"`{name}` must be a list of texts that are not empty")
        return value

    def _text(self, holder: dict[str, Any], name: str) -> str:
        value = holder.get(name, "")
        if not isinstance(value, str):
            raise self._wrong(f"`{name}` must be a text")
        return value

    def _wrong(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(f"{self._param}: {what}", param=self._param)


def _sequence(begin: str, schema: Any, end: str) -> str:
    parts = [json.dumps(begin) if begin else "", json_rule(schema), json.dumps(end) if end else ""]
    return " ".join(part for part in parts if part)
