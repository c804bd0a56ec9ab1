"""ChatTemplate: a conversation -> the text of a prompt, by the model's own template.

Owns what a template is given, how a last message is continued, and what its failures mean.
Does not know: tokens. The text already has the special tokens: encode it without adding any.
Used by: engine and server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.chat.messages import ContentFormat, plain_value, template_messages
from octavo.chat.render_budget import RenderBudget, RenderStoppedError, TemplateRefusalError
from octavo.errors import ConfigError, CorruptFileError, InvalidRequestError
from octavo.foundation.clock import Clock, SystemClock
from octavo.foundation.registry import Registry

if TYPE_CHECKING:
    from octavo.chat.sandbox import CompiledTemplate

MAX_SOURCE = 128 * 2**10  # characters; the largest known are a quarter of that
# Jinja takes long to import, and only chats need it.
ENGINES: Registry[Callable[[str, Callable[[], datetime]], CompiledTemplate]] = Registry(
    "template engine", {"jinja": "octavo.chat.sandbox:CompiledTemplate"}
)
# What a template is given besides the caller's own variables.
OWN_INPUTS = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
RESERVED = frozenset(
    {"continue_final_message", "chat_template", "tokenize", "loop", "self", "caller"}
)
# Ends a message that is to be continued; whatever the template puts after it is cut off. The space
# at the end tells whether the template strips the content.
MARK = "<\ue0c7continues here\ue0c7> "


class ChatTemplate:
    """The template of one model. Threads share it."""

    def __init__(
        self,
        source: str | None,
        special_tokens: Mapping[str, str],
        *,
        content_format: ContentFormat | None = None,
        defaults: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """A source of None is a model without a template; rendering then says what to do.

        special_tokens: "bos_token" -> "<s>" and so on, as `Tokenizer.special_tokens` has it.
        content_format: how templates get contents; None finds it out.
        defaults: variables of the template where a caller sets none. Raises ConfigError for names
        that are not the caller's to set.
        now: the time that `strftime_now` shows.
        """
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._given_format = content_format
        self._defaults = dict(defaults or {})
        check_defaults(self._defaults, self._special_tokens)
        self._clock = clock or SystemClock()
        self._now = now

    @property
    def content_format(self) -> ContentFormat:
        """Whether the template reads contents as texts ("string") or as lists ("openai")."""
        if self._given_format is not None:
            return self._given_format
        return "openai" if self._compiled.wants_parts else "string"

    def uses(self, variable: str) -> bool:
        """Whether the template asks for a variable of the caller."""
        return self.source is not None and variable in self._compiled.variables

    def prepare(self) -> None:
        """Compile now what the first rendering would compile. Raises CorruptFileError."""
        if self.source is not None:
            _ = self._compiled

    def render(
        self,
        messages: object,
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt.

        messages: OpenAI's, see `messages.py`. template_kwargs: further variables of the template;
        those it does not know are ignored. Raises InvalidRequestError when the messages are
        malformed, when the template refuses them (with its own words), fails or takes too much;
        CorruptFileError when it is no template.
        """
        compiled = self._compiled
        if add_generation_prompt and continue_final_message:
            raise InvalidRequestError(
                "continue_final_message goes on with the last message; it needs "
                "add_generation_prompt set to false",
                param="continue_final_message",
            )
        built = template_messages(
            messages,
            content_format=self.content_format,
            knows_developer="developer" in compiled.constants,
        )
        continued = _mark_end(built[-1]) if continue_final_message else None
        variables = {
            **self._special_tokens,
            **self._own_variables(self._defaults | dict(template_kwargs or {})),
            "messages": built,
            "tools": _objects(tools, "tools"),
            "documents": _objects(documents, "documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        text = self._run(variables)
        return text if continued is None else _cut_at_mark(text, continued)

    @cached_property
    def _compiled(self) -> CompiledTemplate:
        if self.source is None:
            raise InvalidRequestError(
                "this model has no chat template: use completions with a finished prompt, or start "
                "with --chat-template",
                param="messages",
            )
        if len(self.source) > MAX_SOURCE:
            raise CorruptFileError(
                f"the chat template has {len(self.source)} characters, at most {MAX_SOURCE}"
            )
        try:
            return ENGINES.load("jinja")(self.source, self._now)
        except Exception as error:  # border: hostile syntax may fail in any way
            line = getattr(error, "lineno", None)
            place = "" if line is None else f" (line {line})"
            words = getattr(error, "message", None) or str(error) or type(error).__name__
            raise CorruptFileError(f"the chat template cannot be used{place}: {words}") from error

    def _own_variables(self, given: Mapping[str, object]) -> dict[str, object]:
        """The caller's variables that the template asks for.

        Raises InvalidRequestError for one that would shadow something else.
        """
        compiled = self._compiled
        taken = OWN_INPUTS | RESERVED | compiled.global_names | self._special_tokens.keys()
        for name in given:
            if name in taken:
                message = f"chat_template_kwargs must not set {name!r}, which is set already"
                raise InvalidRequestError(message, param=f"chat_template_kwargs.{name}")
        return {
            name: plain_value(value, f"chat_template_kwargs.{name}")
            for name, value in given.items()
            if name in compiled.variables
        }

    def _run(self, variables: Mapping[str, object]) -> str:
        budget = RenderBudget(self._clock, _num_characters(variables))
        compiled = self._compiled
        try:
            return compiled.render(variables, budget)
        except RenderStoppedError as error:
            message = f"the chat template was stopped: {error}"
            raise InvalidRequestError(message, param="messages") from error
        except TemplateRefusalError as error:
            message = f"the chat template refuses these messages: {error}"
            raise InvalidRequestError(message, param="messages") from error
        except Exception as error:  # border: a stranger's program may fail in any way
            line = compiled.line_of(error)
            place = "" if line is None else f" in line {line}"
            message = f"the chat template failed{place}: {str(error) or type(error).__name__}"
            raise InvalidRequestError(message, param="messages") from error


def check_defaults(names: Iterable[str], special_tokens: Iterable[str] = ()) -> None:
    """Whether variables may be set where no caller sets them. Raises ConfigError.

    What special tokens a model has is known when it is loaded; all else before.
    """
    taken = OWN_INPUTS | RESERVED | set(special_tokens)
    for name in names:
        if name in taken:
            raise ConfigError(
                f"--default-chat-template-kwargs must not set {name!r}, which is set already"
            )


def _objects(values: object, name: str) -> list[dict[str, Any]] | None:
    """A list of objects; templates take an empty one for none."""
    if values is None:
        return None
    if not isinstance(values, Sequence) or not all(isinstance(value, Mapping) for value in values):
        raise InvalidRequestError(f"{name} must be a list of objects", param=name)
    return [plain_value(value, f"{name}[{place}]") for place, value in enumerate(values)] or None


def _num_characters(value: object) -> int:
    """Characters of all texts in plain data."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_num_characters, value.values()))
    return sum(map(_num_characters, value)) if isinstance(value, list) else 0


def _mark_end(message: dict[str, Any]) -> str:
    """Put the mark behind the text of the last message; the text as it was.

    Raises InvalidRequestError when there is none.
    """
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content + MARK
        return content
    if content:
        text: str = content[-1]["text"]
        content[-1]["text"] = text + MARK
        return text
    raise InvalidRequestError(
        "continue_final_message needs a last message with a text to go on with",
        param="continue_final_message",
    )


def _cut_at_mark(text: str, continued: str) -> str:
    """The prompt up to the mark.

    Raises InvalidRequestError when the template changed the message.
    """
    bare = MARK.rstrip()
    place = text.rfind(bare)
    if place < 0 or continued.strip() not in text:
        raise InvalidRequestError(
            "continue_final_message cannot be used: the chat template changes or drops the last "
            "message",
            param="continue_final_message",
        )
    if text.startswith(MARK, place):
        return text[:place]
    return text[:place].rstrip()  # the template strips contents, so it would have stripped this one
