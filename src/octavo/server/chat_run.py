"""A checked chat -> its generation and the splitter of its choices: what every chat API shares.

Owns the order: what the answer is held to, sampling, rendering, tokens, the generation. Does not
know how an answer looks; each API converts its own body to a ChatCompletionRequest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from octavo.chat.stream import ChatPart
from octavo.outputs import CompletionOutput
from octavo.server.chat_choices import ChatChoices
from octavo.server.chat_format import AnswerFormat, ChatFormat, answer_format
from octavo.server.chat_prompt import chat_prompt, effort_kwargs
from octavo.server.field_names import errors_name
from octavo.server.generation import RENAMED, Generation
from octavo.server.schemas.chat import (
    ChatCompletionRequest,
    check_chat,
    check_num_messages,
    limit_of,
)
from octavo.server.schemas.sampling import beam_of, check_served, sampling_params, tokens_of
from octavo.server.state import ServerState, prompt_of
from octavo.server.told_tools import with_tools
from octavo.server.truncation import encoded


@dataclass(frozen=True, slots=True)
class ChatRun:
    """Everything that a chat's answer is made of; nothing is started yet."""

    generation: Generation
    choices: ChatChoices

    def part_of(self, choice: CompletionOutput) -> ChatPart:
        """What the new text of a choice brought."""
        if self.choices.splits:
            return self.choices.part_of(choice)
        return ChatPart(content=choice.text)


async def prepare_chat(
    state: ServerState,
    body: ChatCompletionRequest,
    *,
    answer_id: str,
    tenant: str,
    names: Mapping[str, str] | None = None,
    raw: str | None = None,
) -> ChatRun:
    """Check, render and tokenise a chat.

    `names`: what a chat calls it -> what this API calls it, for errors. The words of a template
    stay as they are. `raw` is a prompt that takes the place of the rendered one; its answer is text
    and nothing else. Raises InvalidRequestError that names the field.
    """
    state.loaded.intake.require_text()
    known = state.format if raw is None else ChatFormat()
    words = dict(names or {})
    with errors_name(words):
        check_served(body)
        check_num_messages(body, state.config.max_messages)
        check_chat(body)
        answer = answer_format(known, body, state.config)
        effort_kwargs(state, body.reasoning_effort)
    inner = _names_in(body, answer)
    inner = words | {engine: words.get(chat, chat) for engine, chat in inner.items()}
    with errors_name(inner):
        params = sampling_params(
            body,
            defaults=state.defaults,
            max_tokens=limit_of(body),
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            form=answer.form,
        )
        known_ids = tokens_of(body)
    text = await _text_of(state, body, answer, known_ids) if raw is None else raw
    answer = answer.for_prompt(text)
    thinking = None
    if answer.form is not None or body.thinking_token_budget not in (None, -1):
        with errors_name(words):
            answer, thinking = answer.with_thinking(state.tokenizer, body.thinking_token_budget)
    ids = known_ids or await chat_token_ids(state, body, text, inner)
    choices = ChatChoices(answer, params, state.tokenizer)
    generation = Generation(
        state,
        answer_id,
        [prompt_of(ids, None, body.cache_salt)],
        params,
        priority=body.priority or 0,
        timeout=body.timeout,
        tenant=tenant,
        beam=beam_of(body),
        thinking=thinking,
        has_own_limit=limit_of(body) is not None,
        names=inner,
    )
    return ChatRun(generation, choices)


async def _text_of(
    state: ServerState, body: ChatCompletionRequest, answer: AnswerFormat, ids: list[int] | None
) -> str:
    """The prompt's text; where its tokens are known, theirs."""
    if ids is None:
        return await rendered_chat(state, body, answer)
    decode = partial(state.tokenizer.decode, skip_special_tokens=False)
    return await asyncio.to_thread(decode, ids)


async def rendered_chat(
    state: ServerState, body: ChatCompletionRequest, answer: AnswerFormat
) -> str:
    """The prompt's text; of a demanded call a model without words for tools is told in ours."""
    messages = None
    demands = answer.choice.kind in ("required", "named")
    if demands and body.messages and not state.chat_template().uses("tools"):
        messages = with_tools(body.messages, body.tools or (), answer.choice.name)
    return await chat_prompt(
        state,
        body,
        messages=messages,
        effort=body.reasoning_effort,
        shows_tools=answer.choice.kind != "none"
        or not state.config.exclude_tools_when_tool_choice_none,
    )


async def chat_token_ids(
    state: ServerState, body: ChatCompletionRequest, text: str, names: Mapping[str, str]
) -> list[int]:
    """The prompt's tokens, cut where the request says so."""
    ids, _ = await encoded(
        state, text, body, adds_specials=bool(body.add_special_tokens), names=names
    )
    return ids


def _names_in(body: ChatCompletionRequest, answer: AnswerFormat) -> dict[str, str]:
    """What the engine calls it -> what this chat calls it."""
    names = {
        "prompt": "messages",
        "logprobs": "top_logprobs",
        **RENAMED,
        "structured_outputs": answer.form_field,
    }
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    return names
