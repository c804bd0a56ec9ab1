"""POST /v1/chat/completions/batch: several conversations with the same fields, one answer.

Owns how the answers are joined: choice number i answers conversation number i, and holds what is
told of its prompt. Times of one of the requests are not those of the answer, and are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.errors import InvalidRequestError
from octavo.server.bodies import read_json
from octavo.server.chat_run import prepare_chat
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, HELLO, MODEL_ERRORS, described
from octavo.server.generation import Generation, enter_together
from octavo.server.routes.chat_completions import ChatAnswer
from octavo.server.routes.health import state_of
from octavo.server.routes.reading import take_headers
from octavo.server.schemas.chat import BatchedChatRequest, ChatCompletionRequest
from octavo.server.schemas.chat_answer import BatchedChatCompletion
from octavo.server.schemas.completions import MAX_PROMPTS
from octavo.server.serving import respond, tenant_of
from octavo.server.state import new_id

# What one answer to many conversations cannot have.
_NOT_IN_BATCHES = ("stream", "tools", "use_beam_search")
_SHARED = ("object", "created", "model")  # by all answers
_OF_PROMPT = ("prompt_token_ids", "prompt_logprobs")


@described(
    body=BatchedChatRequest,
    required=("messages",),
    examples={"two": {"messages": [HELLO, HELLO], "max_tokens": 16}},
    answer=BatchedChatCompletion,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_batched_chats(request: Request) -> Response | ASGIApp:
    """Answer each of several conversations."""
    state = state_of(request)
    body = await read_json(request, BatchedChatRequest, state.config.max_body_bytes)
    take_headers(request, body)
    state.require_ready()
    model, tenant = state.require_model(body.model), tenant_of(request)
    answer_id = new_id("chatcmpl", body.request_id)
    answers = []
    for number, chat in enumerate(_chats_of(body)):
        own_id = f"{answer_id}-{number}"
        run = await prepare_chat(state, chat, answer_id=own_id, tenant=tenant)
        await run.generation.check()
        answers.append(ChatAnswer(run.generation, chat, model, run.choices))
    return await respond(request, _JoinedAnswer(answer_id, answers))


def _chats_of(body: BatchedChatRequest) -> list[ChatCompletionRequest]:
    """One request for each conversation. Raises InvalidRequestError."""
    conversations = body.messages
    if not conversations:
        message = "messages must be a list of conversations, at least one"
        raise InvalidRequestError(message, param="messages")
    if len(conversations) > MAX_PROMPTS:
        message = f"messages may hold at most {MAX_PROMPTS} conversations, got {len(conversations)}"
        raise InvalidRequestError(message, param="messages")
    for name in _NOT_IN_BATCHES:
        if getattr(body, name):
            message = f"{name} is not for batches of chats; leave it out or send one conversation"
            raise InvalidRequestError(message, param=name)
    if body.n not in (None, 1):
        raise InvalidRequestError("n must be 1 in batches of chats", param="n")
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    return [ChatCompletionRequest(**fields | {"messages": chat}) for chat in conversations]


class _JoinedAnswer:
    """The answers of all conversations, as the choices of one."""

    def __init__(self, answer_id: str, answers: Sequence[ChatAnswer]) -> None:
        self._id, self._answers = answer_id, answers

    @property
    def generation(self) -> Generation:
        return self._answers[0].generation

    @property
    def streams(self) -> bool:
        return False

    async def whole(self) -> dict[str, Any]:
        """All of them; one that fails ends the others."""
        generations = [answer.generation for answer in self._answers]
        await enter_together(generations)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(answer.whole()) for answer in self._answers]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for generation in generations:
                generation.close()
        bodies = [task.result() for task in tasks]
        choices = [_choice_of(body, index) for index, body in enumerate(bodies)]
        usage: dict[str, Any] = {}
        for body in bodies:
            usage = _summed(usage, msgspec.to_builtins(body["usage"]))
        shared = {name: bodies[0][name] for name in _SHARED}
        return {"id": self._id, **shared, "choices": choices, "usage": usage}

    def chunks(self) -> AsyncGenerator[bytes, None]:
        raise AssertionError("a batch of chats is not streamed")


def _choice_of(body: dict[str, Any], index: int) -> dict[str, Any]:
    """The only choice of an answer, with what was asked for about its prompt."""
    of_prompt = {name: body[name] for name in _OF_PROMPT if body.get(name) is not None}
    return {**body["choices"][0], **of_prompt, "index": index}


def _summed(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Usage of both; details are summed as well."""
    total = dict(one)
    for name, value in other.items():
        if isinstance(value, dict):
            total[name] = _summed(one.get(name) or {}, value)
        else:
            total[name] = value if value is None else (one.get(name) or 0) + value
    return total
