"""A chat that is longer than the context loses its oldest messages, when the request says so.

Owns what may go: never the instructions at its beginning nor its last message, and no result of a
call without the call. Whole turns go before parts of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import PromptTooLongError
from octavo.server.chat_format import AnswerFormat, answer_format
from octavo.server.chat_prompt import effort_kwargs
from octavo.server.chat_run import chat_token_ids, rendered_chat
from octavo.server.field_names import errors_name
from octavo.server.schemas.chat import (
    ChatCompletionRequest,
    check_chat,
    check_num_messages,
    limit_of,
)
from octavo.server.state import ServerState

ROOM_FOR_ANSWER = 1024  # tokens, where the request has no limit of its own; at most a quarter


async def fit_chat(
    state: ServerState, chat: ChatCompletionRequest, names: Mapping[str, str]
) -> None:
    """Drop messages until the prompt and its answer fit, or nothing is left that may go.

    Raises InvalidRequestError as `prepare_chat` does.
    """
    with errors_name(names):
        check_num_messages(chat, state.config.max_messages)
        check_chat(chat)
        form = answer_format(state.format, chat, state.config)
        effort_kwargs(state, chat.reasoning_effort)
    context, wanted = state.loaded.max_model_len, limit_of(chat)
    messages = chat.messages or []
    starts = starts_of(messages)
    if not starts or await _fits(state, chat, form, context - (wanted or 1)):
        return
    room = context - (wanted or min(ROOM_FOR_ANSWER, context // 4))
    head = messages[: num_instructions(messages)]
    too_early, enough = -1, len(starts) - 1  # the last one has to do
    while enough - too_early > 1:
        middle = (too_early + enough) // 2
        chat.messages = head + messages[starts[middle] :]
        if await _fits(state, chat, form, room):
            enough = middle
        else:
            too_early = middle
    chat.messages = head + messages[starts[enough] :]


async def _fits(
    state: ServerState, chat: ChatCompletionRequest, form: AnswerFormat, room: int
) -> bool:
    text = await rendered_chat(state, chat, form)
    try:
        return len(await chat_token_ids(state, chat, text, {})) <= room
    except PromptTooLongError:
        return False


def num_instructions(messages: Sequence[Mapping[str, Any]]) -> int:
    """Messages at the beginning that say how to answer."""
    for place, message in enumerate(messages):
        if message["role"] not in ("system", "developer"):
            return place
    return len(messages)


def starts_of(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where what is kept may begin, the earliest first: at a user's message; within the last turn
    at any message that is no result of a call."""
    first = num_instructions(messages) + 1
    places = range(first, len(messages))
    users = [place for place in places if messages[place]["role"] == "user"]
    within = [place for place in places if messages[place]["role"] != "tool"]
    last_user = users[-1] if users else first - 1
    return users + [place for place in within if place > last_user]
