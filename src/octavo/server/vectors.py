"""Vectors for one HTTP request: its prompts, the way through the engine, what the metrics learn.

Used by the routes of models that make vectors; knows no shape of an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request

from octavo.engine.encoded import most_tokens
from octavo.errors import RequestFailedError
from octavo.outputs import PoolingRequestOutput
from octavo.pooling_params import PoolingParams
from octavo.prompts import TokensPrompt
from octavo.server.chat_prompt import chat_prompt
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import shutting_down
from octavo.server.field_names import errors_name
from octavo.server.queue_bound import max_waiting
from octavo.server.schemas.chat import check_num_messages
from octavo.server.schemas.envelope import Usage
from octavo.server.schemas.pooling import InputFields, PoolingFields, has_messages, inputs_of
from octavo.server.serving import tenant_of
from octavo.server.state import ServerState, prompt_of
from octavo.server.trace_context import current_trace_headers


@dataclass(frozen=True, slots=True)
class VectorRequest:
    """Prompts that all want the same. `names` are fields that the request calls otherwise."""

    state: ServerState
    answer_id: str
    prompts: Sequence[TokensPrompt]
    params: PoolingParams
    priority: int = 0
    timeout: float | None = None
    names: Mapping[str, str] = field(default_factory=lambda: {"prompt": "input"})

    async def outputs(self, request: Request) -> list[PoolingRequestOutput]:
        """In the order of the prompts. A client that goes away ends the work.

        All prompts are checked before the first is queued. Raises InvalidRequestError,
        OverloadedError, RequestFailedError, DeadlineExceededError, NotReadyError.
        """
        tenant = tenant_of(request)
        num_tokens = sum(len(prompt["prompt_token_ids"]) for prompt in self.prompts)
        work = self._outputs(tenant)
        with self.state.open_answers.one():
            outputs = await until_disconnect(request.receive, work)
        self.state.quotas.spend(tenant, num_tokens)
        return outputs

    async def _outputs(self, tenant: str) -> list[PoolingRequestOutput]:
        engine = self.state.engine
        priority = self.state.allowed_priority(tenant, self.priority)
        with errors_name(self.names):
            checked = [
                await engine.check_pooling(
                    prompt,
                    self.params,
                    self.answer_id,
                    priority=priority,
                    timeout=self.timeout,
                    tenant=tenant,
                )
                for prompt in self.prompts
            ]
        outputs: list[PoolingRequestOutput] = []
        with self.state.admitted(len(checked)):
            streams = await engine.entrance.submit_pooling_together(
                checked,
                current_trace_headers(),
                max_waiting=max_waiting(self.state.config.max_queued_requests),
            )
            try:
                outputs += [await anext(stream) for stream in streams]
            except RequestFailedError:
                if engine.is_draining:  # cut off by it
                    raise shutting_down() from None
                raise
            finally:
                for stream in streams:
                    stream.close()
        for output in outputs:
            self._observe(output)
        return outputs

    def _observe(self, output: PoolingRequestOutput) -> None:
        observe, times = self.state.metrics.observe, output.metrics
        observe("request_prompt_tokens", len(output.prompt_token_ids))
        if times is None or times.admitted_s is None or times.last_token_s is None:
            return
        observe("request_queue_time_seconds", times.admitted_s - times.arrival_s)
        observe("request_prefill_time_seconds", times.last_token_s - times.admitted_s)
        observe("request_inference_time_seconds", times.last_token_s - times.admitted_s)
        observe("e2e_request_latency_seconds", times.last_token_s - times.arrival_s)


def usage_of(outputs: Sequence[PoolingRequestOutput]) -> Usage:
    """Tokens of all prompts."""
    count = sum(len(output.prompt_token_ids) for output in outputs)
    return Usage(prompt_tokens=count, total_tokens=count, completion_tokens=0)


def longest_of(state: ServerState, body: PoolingFields) -> int | None:
    """How many tokens of a text to keep, None for all.

    Raises InvalidRequestError for a `truncate_prompt_tokens` that cannot be meant.
    """
    keep = body.truncate_prompt_tokens
    return None if keep is None else most_tokens(keep, state.loaded.max_model_len)


async def token_prompts(state: ServerState, body: InputFields) -> list[TokensPrompt]:
    """The prompts of a body: its inputs, or its chat as the template renders it."""
    keep = longest_of(state, body)
    if has_messages(body):
        check_num_messages(body, state.config.max_messages)
        text = await chat_prompt(state, body)
        if keep is None:
            state.loaded.intake.check_text_length(text, "messages")
        ids = await state.tokenise(
            text,
            add_special_tokens=bool(body.add_special_tokens),
            enough=state.loaded.max_model_len if keep is None else keep,
        )
        return [prompt_of(ids if keep is None else ids[:keep], text, body.cache_salt)]
    adds_specials = body.add_special_tokens is not False
    prompts = []
    for given in inputs_of(body):
        if not isinstance(given, str):
            prompts.append(
                prompt_of(given if keep is None else given[:keep], None, body.cache_salt)
            )
            continue
        if keep is None:
            state.loaded.intake.check_text_length(given, "input")
            ids = await state.tokenise(
                given, add_special_tokens=adds_specials, enough=state.loaded.max_model_len
            )
        elif adds_specials:
            ids = await asyncio.to_thread(state.tokenizer.encode_cut, given, keep)
        else:
            ids = (await state.tokenise(given, add_special_tokens=False, enough=keep))[:keep]
        prompts.append(prompt_of(ids, given, body.cache_salt))
    return prompts
