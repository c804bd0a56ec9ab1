"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.outputs import CompletionOutput, RequestOutput
from octavo.server.chat_choices import ChatChoices
from octavo.server.chat_run import prepare_chat
from octavo.server.chunks import ChunkWriter
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, HELLO, MODEL_ERRORS, described
from octavo.server.generation import Generation
from octavo.server.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.routes.reading import read_request
from octavo.server.schemas.chat import ChatCompletionRequest, echoed_text
from octavo.server.schemas.chat_answer import ChatCompletion, ChatCompletionChunk
from octavo.server.schemas.envelope import Usage
from octavo.server.serving import Answer, respond, tenant_of
from octavo.server.sse import EVENTS
from octavo.server.state import new_id

ROLE = "assistant"


@described(
    body=ChatCompletionRequest,
    required=("messages",),
    examples={
        "whole": {"messages": HELLO, "max_tokens": 16},
        "streamed": {
            "messages": HELLO,
            "max_tokens": 16,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        "JSON": {
            "messages": HELLO,
            "max_tokens": 16,
            "response_format": {"type": "json_object"},
        },
    },
    answer=ChatCompletion,
    stream=(EVENTS, ChatCompletionChunk),
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_chat_completion(request: Request) -> Response | ASGIApp:
    """Answer a conversation."""
    state, body, model = await read_request(request, ChatCompletionRequest)
    answer_id = new_id("chatcmpl", body.request_id)
    run = await prepare_chat(state, body, answer_id=answer_id, tenant=tenant_of(request))
    return await respond(request, ChatAnswer(run.generation, body, model, run.choices))


class ChatAnswer(Answer):
    """Turns outputs into the body, or the chunks, of one request."""

    def __init__(
        self,
        generation: Generation,
        body: ChatCompletionRequest,
        model: str,
        choices: ChatChoices,
    ) -> None:
        kind = "chat.completion.chunk" if body.stream else "chat.completion"
        super().__init__(generation, body, model, kind=kind)
        self._body = body
        self._choices = choices
        self._num_best = -1 if body.logprob_token_ids else body.top_logprobs or 0
        self._echo = echoed_text(body)
        self._beside: dict[str, Any] = {}

    async def whole(self) -> dict[str, Any]:
        """With what is told of the prompt, which all choices share."""
        return await super().whole() | self._beside

    def choice(
        self, number: int, output: RequestOutput, choice: CompletionOutput
    ) -> dict[str, Any]:
        """One choice: a message, or the delta of one."""
        shown: dict[str, Any] = {"index": choice.index}
        if not self.streams:
            shown["message"] = message = self._choices.message_of(choice, ROLE)
            if self._echo:
                message["content"] = self._echo + (message["content"] or "")
            self._beside = {"prompt_logprobs": None, "prompt_token_ids": None}
            self._beside |= self._of_prompt(output)
            shown["token_ids"] = None
        elif self._choices.splits:
            part = self._choices.part_of(choice)
            shown["delta"] = self._choices.delta_of(choice.index, part)
        else:
            shown["delta"] = {"content": choice.text}
        shown["logprobs"] = self._logprobs_of(choice)
        shown["finish_reason"] = self._choices.finish_of(choice)
        shown["stop_reason"] = choice.stop_reason
        if self._body.return_token_ids:
            shown["token_ids"] = choice.token_ids
        return shown

    def parted(self, shown: dict[str, Any]) -> list[dict[str, Any]]:
        """A call never comes with the end: OpenAI's client looks for calls before the end only."""
        if shown["finish_reason"] is None or "tool_calls" not in shown["delta"]:
            return [shown]
        end = {"finish_reason": shown["finish_reason"], "stop_reason": shown["stop_reason"]}
        call = shown | {"finish_reason": None, "stop_reason": None}
        return [call, {"index": shown["index"], "delta": {}, "logprobs": None, **end}]

    def _of_prompt(self, output: RequestOutput) -> dict[str, Any]:
        """What was asked for about the prompt."""
        shown: dict[str, Any] = {}
        if self._body.return_token_ids:
            shown["prompt_token_ids"] = output.prompt_token_ids
        if self._body.prompt_logprobs is not None and not self.streams:
            shown["prompt_logprobs"] = prompt_logprobs(self.tokenizer, output)
        return shown

    def usage(self) -> Usage:
        """With the thoughts' tokens, where the model has any."""
        self.generation.counts.reasoning_tokens = self._choices.num_reasoning_tokens
        return super().usage()

    def plain_chunk(
        self, writer: ChunkWriter, number: int, choice: CompletionOutput
    ) -> bytes | None:
        """The quick form of a chunk, where nothing but text is new."""
        if self._body.logprobs or self._body.return_token_ids:
            return None
        if not self._choices.splits:
            return writer.content(choice.index, choice.text)
        part = self._choices.part_of(choice)
        if not part:
            return b""
        if not part.reasoning and not part.calls:
            return writer.content(choice.index, part.content)
        delta = self._choices.delta_of(choice.index, part)
        return writer.choice(
            {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}
        )

    def first_chunks(self, writer: ChunkWriter, output: RequestOutput) -> list[bytes]:
        """The role of each choice, once, and the beginning that is repeated."""
        beside = self._of_prompt(output)
        return [
            writer.choice(
                {
                    "index": index,
                    "delta": {"role": ROLE, "content": self._echo},
                    "logprobs": None,
                    "finish_reason": None,
                },
                self.first_usage(),
                beside,
            )
            for index in range(self.generation.num_choices)
        ]

    def _logprobs_of(self, choice: CompletionOutput) -> dict[str, Any] | None:
        if not self._body.logprobs or choice.logprobs is None:
            return None
        return chat_logprobs(self.tokenizer, choice.logprobs.raw, self._num_best, self.token_names)
