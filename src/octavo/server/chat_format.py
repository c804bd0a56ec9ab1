"""How the model writes tool calls and thoughts, and what that means for one request.

Owns: which dialect and style are in force (flags, else the chat template), the form that a request
asks of its answer, and the splitter of each choice. Does not know how an answer is sent.
"""

from __future__ import annotations

import json
import secrets
import string
from dataclasses import dataclass, replace
from typing import Any

from octavo.chat.reasoning.registry import (
    ReasoningStyle,
    find_style,
    style_of_template,
    tagged_style,
)
from octavo.chat.stream import ChatStream
from octavo.chat.template import check_defaults
from octavo.chat.tools.base import ToolDialect
from octavo.chat.tools.forced import NamedCall, RequiredCalls, arguments_schema, required_schema
from octavo.chat.tools.registry import dialect_of_template, find_dialect
from octavo.config.server import ServerConfig
from octavo.contracts.grammar import ThinkingSpec
from octavo.errors import InvalidRequestError
from octavo.sampling_params import StructuredOutputsParams
from octavo.server.schemas.chat import ChatCompletionRequest
from octavo.server.schemas.structured import field_of, form_of
from octavo.server.schemas.tools import OfferedTools, ToolChoice, offered_tools, tool_choice_of
from octavo.structured.limits import check_json_size
from octavo.text.tokenizer import Tokenizer

NO_PARSER = "none"  # the value of either flag that turns parsing off
_SHORT_ID = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What the model speaks. None: nobody knows, or the flag says none."""

    dialect: ToolDialect | None = None
    style: ReasoningStyle | None = None
    dialect_name: str | None = None
    style_name: str | None = None

    @classmethod
    def of(cls, config: ServerConfig, template: str | None) -> ChatFormat:
        """By the flags, else by the template. Raises ConfigError for an unknown name."""
        dialect = config.tool_call_parser or dialect_of_template(template) or NO_PARSER
        tags = config.reasoning_tags
        named = config.reasoning_parser or tags.reasoning_parser
        style = named or style_of_template(template) or NO_PARSER
        return cls(
            None if dialect == NO_PARSER else find_dialect(dialect),
            tagged_style(
                None if style == NO_PARSER else find_style(style),
                tags.reasoning_start_str,
                tags.reasoning_end_str,
            ),
            None if dialect == NO_PARSER else dialect,
            None if style == NO_PARSER else style,
        )


def check_chat_options(config: ServerConfig) -> None:
    """What can be said of the options of chats before a model is loaded. Raises ConfigError."""
    ChatFormat.of(config, None)
    check_defaults(config.template_kwargs)


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """One request's answer: how it is split, and what it is held to."""

    offered: OfferedTools
    choice: ToolChoice
    dialect: ToolDialect | None  # None: no calls are looked for
    style: ReasoningStyle | None
    is_reasoning: bool  # the prompt has begun the thoughts
    one_call: bool  # further calls are dropped
    shows_reasoning: bool
    form: StructuredOutputsParams | None  # that the calls demand
    form_field: str  # the field that a refusal of it names

    @property
    def splits(self) -> bool:
        """Whether an answer has other parts than its text."""
        return self.dialect is not None or self.style is not None

    def needs_special_tokens(self, tokenizer: Tokenizer) -> bool:
        """Whether tags of the format are tokens that are not shown otherwise."""
        if any(part is not None and part.has_special_tags for part in (self.dialect, self.style)):
            return True
        special = tokenizer.special_ids
        return any(tokenizer.id_of(tag) in special for tag in self._tags)

    @property
    def _tags(self) -> set[str]:
        parts = (self.dialect, self.style)
        return {
            tag for part in parts if part is not None for tag in (*part.begins, part.end) if tag
        }

    def end_tags_by_id(self, tokenizer: Tokenizer) -> dict[int, str]:
        """Tags that a model may end its answer with: the last token of an answer has no text."""
        if self.dialect is None or not self.dialect.end:
            return {}
        token_id = tokenizer.id_of(self.dialect.end)
        return {} if token_id is None else {token_id: self.dialect.end}

    def splitter(self, dropped: tuple[str, ...]) -> ChatStream:
        """A fresh splitter, for one choice."""
        return ChatStream(
            self.dialect,
            self.style,
            self.offered.tools,
            is_reasoning=self.is_reasoning,
            dropped=dropped,
        )

    def _thinking(self, tokenizer: Tokenizer, budget: int) -> ThinkingSpec | None:
        """Where thoughts begin and end; None where no tokens tell."""
        if self.style is None:
            return None
        end = tokenizer.id_of(self.style.end)
        begins = [] if self.is_reasoning else map(tokenizer.id_of, self.style.begins)
        begin = next((token_id for token_id in begins if token_id is not None), -1)
        if end is None or not (self.is_reasoning or begin >= 0):
            return None
        return ThinkingSpec(
            end_token_id=end, begin_token_id=begin, is_open=self.is_reasoning, max_tokens=budget
        )

    def for_prompt(self, prompt: str) -> AnswerFormat:
        """The same for a rendered prompt, which may have begun the thoughts, or ended them.

        Templates end a prompt with the begin tag to make the model think, with the end tag to keep
        it from thinking.
        """
        if self.style is None:
            return self
        end = prompt.rstrip()
        if end.endswith(self.style.end):
            return replace(self, style=replace(self.style, opens=False))
        return replace(self, is_reasoning=self.style.opens or end.endswith(self.style.begins))

    def with_thinking(
        self, tokenizer: Tokenizer, budget: int | None
    ) -> tuple[AnswerFormat, ThinkingSpec | None]:
        """The thoughts that are free of the form, and may have a budget; and this, without them
        where they cannot be told from the answer.

        Raises InvalidRequestError for a `budget` where nobody can tell the end of thoughts.
        """
        spec = self._thinking(tokenizer, -1 if budget is None else budget)
        if spec is not None:
            return self, spec
        if budget not in (None, -1):
            raise InvalidRequestError(
                "thinking_token_budget needs a model whose thoughts begin and end with tokens of "
                "their own; start with --reasoning-parser NAME if this one has them",
                param="thinking_token_budget",
            )
        style = None if self.style is None else replace(self.style, opens=False)
        return replace(self, style=style, is_reasoning=False), None

    def call_id(self) -> str:
        """A fresh id of a call, as the model's own templates want it."""
        if self.dialect is not None and self.dialect.has_short_ids:
            return "".join(secrets.choice(_SHORT_ID) for _ in range(9))
        return f"chatcmpl-tool-{secrets.token_hex(16)}"


def answer_format(
    known: ChatFormat, body: ChatCompletionRequest, config: ServerConfig
) -> AnswerFormat:
    """What a request asks for. Raises InvalidRequestError that names the field."""
    offered = offered_tools(body.tools)
    choice = tool_choice_of(body.tool_choice, offered)
    dialect = _dialect_for(known, choice, allows_auto=config.enable_auto_tool_choice)
    is_parallel = body.parallel_tool_calls is not False
    form = form_of(body.response_format, body.structured_outputs)
    form_field = field_of(body.structured_outputs)
    if form is not None and choice.kind in ("required", "named"):
        message = (
            f"{form_field} cannot be combined with a demanded call: the answer would have to be "
            "both; set tool_choice to 'auto' or 'none', or leave one out"
        )
        raise InvalidRequestError(message, param=form_field)
    if form is not None and choice.kind == "auto" and form_field == "response_format":
        form = _form_or_calls(form, offered, dialect)
    elif form is None:
        form, form_field = (
            _form_of_calls(offered, choice, dialect, is_parallel=is_parallel),
            "tools",
        )
    return AnswerFormat(
        offered=offered,
        choice=choice,
        dialect=dialect,
        style=known.style,
        is_reasoning=False,
        one_call=not is_parallel,
        shows_reasoning=body.include_reasoning is not False,
        form=form,
        form_field=form_field,
    )


def _dialect_for(known: ChatFormat, choice: ToolChoice, *, allows_auto: bool) -> ToolDialect | None:
    """The dialect of an answer. Raises InvalidRequestError where the model's is not known."""
    if choice.kind == "none":
        return None
    if choice.kind == "named":
        return NamedCall(choice.name)
    if choice.kind == "required":
        return RequiredCalls()
    if not allows_auto:
        raise InvalidRequestError(
            "tool_choice 'auto' is turned off by --no-enable-auto-tool-choice; ask for 'none', "
            "'required' or a named function",
            param="tool_choice",
        )
    if known.dialect is None:
        raise InvalidRequestError(
            "tool_choice 'auto' cannot be served: the chat template does not tell how this model "
            "writes tool calls. Start with --tool-call-parser NAME, or ask for 'required', a named "
            "function or 'none'",
            param="tool_choice",
        )
    return known.dialect


def _form_of_calls(
    offered: OfferedTools, choice: ToolChoice, dialect: ToolDialect | None, *, is_parallel: bool
) -> StructuredOutputsParams | None:
    """What the answer is held to because of its tools; None: free text."""
    tools = offered.tools
    if choice.kind == "named":
        return _schema_form(arguments_schema(tools.parameters[choice.name]))
    if choice.kind == "required":
        return _schema_form(required_schema(tools, is_parallel=is_parallel))
    if choice.kind != "auto" or not offered.strict_places:
        return None
    if dialect is None or dialect.call_form is None:
        raise InvalidRequestError(
            f"tools[{offered.strict_places[0]}].function.strict cannot be kept with tool_choice "
            "'auto' for this model's way to write calls; set strict to false, or tool_choice to "
            "'required' or a function",
            param="tools",
        )
    tag = {"structures": _call_structures(offered, *dialect.call_form), "triggers": dialect.begins}
    return StructuredOutputsParams(structural_tag=_text(tag))


def _form_or_calls(
    form: StructuredOutputsParams, offered: OfferedTools, dialect: ToolDialect | None
) -> StructuredOutputsParams:
    """OpenAI's meaning of `response_format` beside tools: an answer has the form, or is calls."""
    if form.kind == "structural_tag":
        return form  # says itself what may stand beside its tags
    if dialect is None or dialect.call_form is None:
        raise InvalidRequestError(
            "response_format cannot be combined with tools that the model may call in its own way "
            "to write calls; set tool_choice to 'none', or leave one out",
            param="response_format",
        )
    schema = {"type": "object"} if form.json is None else _parsed(form.json)
    calls = [
        {
            "begin": one["begin"],
            "content": {"type": "json_schema", "json_schema": one["schema"]},
            "end": one["end"],
        }
        for one in _call_structures(offered, *dialect.call_form)
    ]
    either = [
        {"type": "json_schema", "json_schema": schema},
        {"type": "tags_with_separator", "tags": calls, "separator": "\n", "at_least_one": True},
    ]
    return StructuredOutputsParams(
        structural_tag=_text({"format": {"type": "or", "elements": either}})
    )


def _call_structures(offered: OfferedTools, begin: str, end: str) -> list[dict[str, Any]]:
    """A tag for each function; the arguments fit their schema where the tool is strict."""
    strict = {offered.names[place] for place in offered.strict_places}
    return [
        {
            "begin": begin % json.dumps(name, ensure_ascii=False),
            "schema": arguments_schema(parameters) if name in strict else {"type": "object"},
            "end": end,
        }
        for name, parameters in offered.tools.parameters.items()
    ]


def _schema_form(schema: dict[str, Any]) -> StructuredOutputsParams:
    return StructuredOutputsParams(json=_text(schema))


def _parsed(schema: Any) -> Any:
    """A schema that `form_of` has made a text of."""
    try:
        return json.loads(schema)
    except RecursionError:
        message = "response_format is nested too deep; flatten it"
        raise InvalidRequestError(message, param="response_format") from None


def _text(value: object) -> str:
    """JSON as a text, which travels without being copied level by level."""
    check_json_size(value, "tools")
    try:
        return json.dumps(value)
    except RecursionError:
        raise InvalidRequestError(
            "tools are nested too deep; flatten them", param="tools"
        ) from None
