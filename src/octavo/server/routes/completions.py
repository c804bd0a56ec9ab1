"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.contracts.step import TokenLogprobs
from octavo.errors import InvalidRequestError
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.prompts import TokensPrompt
from octavo.server.chunks import ChunkWriter
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, MODEL_ERRORS, described
from octavo.server.generation import RENAMED, Generation
from octavo.server.logprobs import CompletionLogprobs, prompt_entries, prompt_logprobs
from octavo.server.routes.reading import read_request
from octavo.server.schemas.completion_answer import Completion, CompletionChunk
from octavo.server.schemas.completions import CompletionRequest, check_logprobs, prompts_of
from octavo.server.schemas.sampling import beam_of, check_served, sampling_params, tokens_of
from octavo.server.schemas.structured import field_of, form_of
from octavo.server.serving import Answer, respond, tenant_of
from octavo.server.sse import EVENTS
from octavo.server.state import ServerState, new_id, prompt_of
from octavo.server.truncation import cut_prompt, encoded, tokens_kept

DEFAULT_MAX_TOKENS = 16


@described(
    body=CompletionRequest,
    required=("prompt",),
    examples={
        "whole": {"prompt": "Once upon a time", "max_tokens": 16, "logprobs": 1},
        "streamed": {"prompt": "Once upon a time", "max_tokens": 16, "stream": True},
    },
    answer=Completion,
    stream=(EVENTS, CompletionChunk),
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_completion(request: Request) -> Response | ASGIApp:
    """Continue one or more prompts."""
    state, body, model = await read_request(request, CompletionRequest)
    check_served(body)
    if tokens_of(body) is not None:
        message = "kv_transfer_params is for chats; give the tokens as prompt"
        raise InvalidRequestError(message, param="kv_transfer_params")
    if body.suffix:
        raise InvalidRequestError("suffix is not supported by this server", param="suffix")
    check_logprobs(body)
    if body.thinking_token_budget not in (None, -1):
        message = "thinking_token_budget is for chats; leave it out"
        raise InvalidRequestError(message, param="thinking_token_budget")
    answer = await _CompletionAnswer.of(state, body, model, tenant_of(request))
    return await respond(request, answer)


class _CompletionAnswer(Answer):
    """Turns outputs into the body, or the chunks, of one request."""

    def __init__(
        self, generation: Generation, body: CompletionRequest, model: str, *, scores_only: bool
    ) -> None:
        super().__init__(generation, body, model, kind="text_completion")
        self._body = body
        self._scores_only = scores_only  # max_tokens 0 with echo: the prompt alone
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._echoed: set[int] = set()

    @classmethod
    async def of(
        cls, state: ServerState, body: CompletionRequest, model: str, tenant: str
    ) -> _CompletionAnswer:
        """Check and tokenise everything; nothing is started yet."""
        scores_only = bool(body.echo) and body.max_tokens == 0
        max_tokens = 1 if scores_only else body.max_tokens
        if max_tokens is None:
            max_tokens = state.defaults.get("max_tokens", DEFAULT_MAX_TOKENS)
        params = sampling_params(
            body,
            defaults=state.defaults,
            max_tokens=max_tokens,
            logprobs=body.logprobs,
            form=form_of(body.response_format, body.structured_outputs),
        )
        if body.use_beam_search and body.echo and body.logprobs is not None:
            message = "echo with logprobs cannot be combined with use_beam_search; leave one out"
            raise InvalidRequestError(message, param="echo")
        if body.echo and body.logprobs is not None and params.prompt_logprobs is None:
            params.prompt_logprobs = body.logprobs
        prompts = await _token_prompts(state, body, body.cache_salt)
        generation = Generation(
            state,
            new_id("cmpl", body.request_id),
            prompts,
            params,
            priority=body.priority or 0,
            timeout=body.timeout,
            tenant=tenant,
            beam=beam_of(body),
            has_own_limit=body.max_tokens is not None,
            names={**RENAMED, "structured_outputs": field_of(body.structured_outputs)},
        )
        return cls(generation, body, model, scores_only=scores_only)

    def choice(
        self, number: int, output: RequestOutput, choice: CompletionOutput
    ) -> dict[str, Any]:
        """One choice of the whole answer, or what is new of it in a chunk."""
        index = number * self.generation.num_choices + choice.index
        token_ids = [] if self._scores_only else choice.token_ids
        shown: dict[str, Any] = {
            "index": index,
            "text": "" if self._scores_only else choice.text,
            "logprobs": None,
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        is_first = index not in self._echoed
        self._echoed.add(index)
        echoes = bool(self._body.echo) and is_first
        if echoes:
            shown["text"] = self._prompt_text(number, output) + shown["text"]
        if self._body.logprobs is not None:
            shown["logprobs"] = self._logprobs_of(number, output, choice, echoes=echoes)
        if self._body.return_token_ids:
            shown["token_ids"] = token_ids
            if is_first:
                shown["prompt_token_ids"] = output.prompt_token_ids
        if not self.streams:  # its fields are there whether they are asked for or not, as vLLM's
            shown.setdefault("token_ids", None)
            shown.setdefault("prompt_token_ids", None)
            shown["prompt_logprobs"] = prompt_logprobs(self.tokenizer, output)
        return shown

    def plain_chunk(
        self, writer: ChunkWriter, number: int, choice: CompletionOutput
    ) -> bytes | None:
        """The quick form of a chunk, where nothing but text is new."""
        index = number * self.generation.num_choices + choice.index
        wants_more = self._body.logprobs is not None or self._body.return_token_ids
        if wants_more or (self._body.echo and index not in self._echoed):
            return None
        return writer.text(index, choice.text)

    def usage_tokens(self) -> int:
        return 0 if self._scores_only else self.generation.counts.completion_tokens

    def _prompt_text(self, number: int, output: RequestOutput) -> str:
        text = self.generation.prompts[number].get("prompt")
        if text is not None:
            return text
        return self.tokenizer.decode(output.prompt_token_ids, skip_special_tokens=False)

    def _logprobs_of(
        self, number: int, output: RequestOutput, choice: CompletionOutput, *, echoes: bool
    ) -> dict[str, Any]:
        index = number * self.generation.num_choices + choice.index
        builder = self._logprobs.get(index)
        if builder is None:
            hides_special = self.generation.params.skip_special_tokens
            builder = CompletionLogprobs(
                self.tokenizer,
                self.token_names,
                -1 if self._body.logprob_token_ids else self._body.logprobs or 0,
                hides_special=hides_special,
            )
            self._logprobs[index] = builder
        token_ids: list[int] = []
        entries: list[TokenLogprobs | None] = []
        prompt = (0, "")
        if echoes:
            prompt = (len(output.prompt_token_ids), self._prompt_text(number, output))
            token_ids += output.prompt_token_ids
            entries += prompt_entries(output)
        if not self._scores_only and choice.logprobs is not None:
            token_ids += choice.token_ids
            entries += choice.logprobs.raw
        return builder.add(token_ids, entries, prompt)


async def _token_prompts(
    state: ServerState, body: CompletionRequest, salt: str | None
) -> list[TokensPrompt]:
    prompts = []
    adds_specials = body.add_special_tokens is not False
    for given in prompts_of(body):
        if isinstance(given, str):
            ids, was_cut = await encoded(state, given, body, adds_specials=adds_specials, names={})
        else:
            keep = tokens_kept(body, state.loaded.max_model_len)
            ids, was_cut = cut_prompt(given, keep, body.truncation_side)
        text = given if isinstance(given, str) and not was_cut else None
        prompts.append(prompt_of(ids, text, salt))
    return prompts
