"""One HTTP request's generation: its prompts, its parameters, its outputs, what the metrics learn.

Used by the routes of completions and chats; knows neither's JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field

from octavo.contracts.grammar import ThinkingSpec
from octavo.contracts.request import BeamSpec
from octavo.engine.checked import CheckedRequest
from octavo.engine.entrance import TextStream
from octavo.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    OctavoError,
    OverloadedError,
    RequestFailedError,
)
from octavo.outputs import RequestMetrics, RequestOutput
from octavo.prompts import TokensPrompt
from octavo.sampling_params import SamplingParams
from octavo.server.errors import shutting_down
from octavo.server.field_names import errors_name
from octavo.server.merge import merge
from octavo.server.metrics import ServerMetrics
from octavo.server.queue_bound import max_waiting
from octavo.server.request_times import RequestTimes, mean_gap_s
from octavo.server.schemas.envelope import CompletionTokensDetails, PromptTokensDetails, Usage
from octavo.server.state import ServerState
from octavo.server.trace_context import current_trace_headers

MAX_CHOICES_PER_REQUEST = 1024
RENAMED = {"beam_width": "n", "extra_args": "vllm_xargs"}
"""Fields of SamplingParams that HTTP calls otherwise."""


@dataclass(slots=True)
class TokenCounts:
    """What usage is made of."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int | None = None  # where the model is known to think

    def usage(self, *, with_details: bool) -> Usage:
        """The counts as the API shows them."""
        details = PromptTokensDetails(cached_tokens=self.cached_tokens) if with_details else None
        thoughts = self.reasoning_tokens
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
            prompt_tokens_details=details,
            completion_tokens_details=None
            if thoughts is None
            else CompletionTokensDetails(reasoning_tokens=thoughts),
        )


@dataclass(slots=True)
class Generation:
    """The outputs of one or more prompts with the same parameters.

    A limit on tokens that the request did not ask for (`has_own_limit` false) gives way where the
    context has less room; one that it asked for is refused then. `names` are the fields that the
    request calls otherwise than the engine.
    """

    state: ServerState
    answer_id: str
    prompts: Sequence[TokensPrompt]
    params: SamplingParams
    priority: int = 0
    has_own_limit: bool = True
    names: Mapping[str, str] = field(default_factory=lambda: dict(RENAMED))
    timeout: float | None = None
    tenant: str = ""
    beam: BeamSpec | None = None
    thinking: ThinkingSpec | None = None
    counts: TokenCounts = field(init=False)
    times: RequestTimes = field(init=False)
    _checked: list[CheckedRequest] | None = field(init=False, default=None)
    _streams: list[TextStream] | None = field(init=False, default=None)  # once it is queued
    _open: ExitStack = field(init=False, default_factory=ExitStack)  # what the end of it closes

    def __post_init__(self) -> None:
        self.times = RequestTimes()
        num_choices = len(self.prompts) * self.num_choices
        if num_choices > MAX_CHOICES_PER_REQUEST:
            raise InvalidRequestError(
                f"{len(self.prompts)} prompts with n={self.num_choices} are {num_choices} choices; "
                f"a request may have at most {MAX_CHOICES_PER_REQUEST}",
                param="n",
            )
        num_tokens = sum(len(prompt["prompt_token_ids"]) for prompt in self.prompts)
        self.counts = TokenCounts(num_tokens)
        self.priority = self.state.allowed_priority(self.tenant, self.priority)

    @property
    def num_choices(self) -> int:
        """Choices of each prompt."""
        return self.params.n if self.beam is None else self.beam.num_returned

    async def outputs(self) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """(number of the prompt, output) as they come. Closing it aborts what still runs.

        All prompts are checked before the first is queued. Raises InvalidRequestError,
        OverloadedError, and where the request ended before any token came DeadlineExceededError
        when its time was up, NotReadyError when the server is ending.
        """
        if self._streams is None:
            await self.enter()
        assert self._streams is not None, "it has entered"
        empty: list[tuple[int, RequestOutput]] = []  # cut off before any token
        has_tokens = False
        with self._open:
            async with aclosing(merge([self._counted(one) for one in self._streams])) as merged:
                async for number, output in merged:
                    has_tokens = has_tokens or any(one.token_ids for one in output.outputs)
                    if not has_tokens and _is_cut_off(output):
                        empty.append((number, output))
                        continue
                    while empty:
                        yield empty.pop(0)
                    yield number, output
        if empty:
            raise self._unanswered(empty[0][1])

    async def enter(self) -> None:
        """Queue it in the engine, for who wants to know before `outputs` whether it is taken.

        `close` is due then, unless `outputs` is read. Raises as that does.
        """
        await enter_together([self])

    def close(self) -> None:
        """End what was queued and has not ended. May be called at any time."""
        self._open.close()

    def pay(self) -> None:
        """Take what was used from the tenant's budget: nothing if it left the queue unbegun."""
        streams = self._streams or ()
        if any(isinstance(one.stream.error, OverloadedError) for one in streams):
            return
        spent = self.counts.prompt_tokens + self.counts.completion_tokens
        self.state.quotas.spend(self.tenant, spent)

    async def check(self) -> list[CheckedRequest]:
        """Everything that the request itself may be refused for. Raises InvalidRequestError."""
        if self._checked is not None:
            return self._checked
        checked = []
        with errors_name(self.names):
            for prompt in self.prompts:
                await asyncio.sleep(0)  # hundreds in a row must not hold up others
                checked.append(
                    await self.state.engine.check(
                        prompt,
                        self._params_for(prompt),
                        self.answer_id,
                        priority=self.priority,
                        timeout=self.timeout,
                        tenant=self.tenant,
                        beam=self.beam,
                        thinking=self.thinking,
                    )
                )
        self._checked = checked
        return checked

    def has_entered(self, streams: list[TextStream], opened: ExitStack) -> None:
        """The engine has it: `streams` are the answers, `opened` is closed at their end."""
        self._streams, self._open = streams, opened

    def _unanswered(self, output: RequestOutput) -> OctavoError:
        """Why a request ended without a token: its deadline, or the end of the server."""
        if all(choice.stop_reason != "timeout" for choice in output.outputs):
            return shutting_down()
        reason = output.abort_reason or "it was not computed in time"
        return DeadlineExceededError(
            f"the timeout of {self.timeout:g} s could not be met and ended the request before its "
            f"first token: {reason}"
        )

    def _params_for(self, prompt: TokensPrompt) -> SamplingParams:
        limit = self.params.max_tokens
        room = self.state.loaded.max_model_len - len(prompt["prompt_token_ids"])
        if self.has_own_limit or limit is None or limit <= room:
            return self.params
        return self.params.replace(max_tokens=None)

    async def _counted(self, stream: TextStream) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one prompt."""
        histograms = _Histograms(self.state.metrics, self.params, self.num_choices)
        async with stream as outputs:
            async for output in outputs:
                self.counts.completion_tokens += sum(len(one.token_ids) for one in output.outputs)
                _raise_errors(output)
                histograms.note(output)
                if output.finished:
                    self.counts.cached_tokens += output.num_cached_tokens or 0
                    self.times.add(output)
                yield output


async def enter_together(generations: Sequence[Generation]) -> None:
    """Queue all of them in the engine, or none: to the bound of the queue they are one request.

    Each is to be read or closed. Raises InvalidRequestError, OverloadedError, NotReadyError.
    """
    state = generations[0].state
    checked = [await one.check() for one in generations]
    opened = [ExitStack() for _ in generations]
    with ExitStack() as until_taken:
        for one, prompts, stack in zip(generations, checked, opened, strict=True):
            until_taken.enter_context(stack)
            stack.enter_context(state.admitted(len(prompts) * one.num_choices))
        streams = await state.engine.entrance.submit_together(
            [prompt for prompts in checked for prompt in prompts],
            current_trace_headers(),
            max_waiting=max_waiting(state.config.max_queued_requests),
        )
        until_taken.pop_all()
    for one, prompts, stack in zip(generations, checked, opened, strict=True):
        own, streams = streams[: len(prompts)], streams[len(prompts) :]
        stack.callback(one.pay)
        for stream in own:
            stack.callback(stream.close)
        one.has_entered(own, stack)


class _Histograms:
    """Feeds the histograms of one request from the times that the engine kept."""

    def __init__(self, metrics: ServerMetrics, params: SamplingParams, num_choices: int) -> None:
        self._observe = metrics.observe
        self._params = params
        self._num_choices = num_choices
        self._last_token_s: float | None = None
        self._lengths: dict[int, int] = {}  # tokens of each choice

    def note(self, output: RequestOutput) -> None:
        """An output has come; the last one completes the picture."""
        times = output.metrics
        assert times is not None, "AsyncLLM keeps metrics"
        last_s = self._last_token_s
        if last_s is not None and times.last_token_s is not None and times.last_token_s > last_s:
            self._observe("inter_token_latency_seconds", times.last_token_s - last_s)
        self._last_token_s = times.last_token_s
        for choice in output.outputs:
            before = self._lengths.get(choice.index, 0)
            self._lengths[choice.index] = before + len(choice.token_ids)
        if output.finished:
            self._finish(len(output.prompt_token_ids), output.num_cached_tokens or 0, times)

    def _finish(self, num_prompt_tokens: int, num_cached: int, times: RequestMetrics) -> None:
        observe, params = self._observe, self._params
        observe("request_prompt_tokens", num_prompt_tokens)
        observe("request_prefill_kv_computed_tokens", num_prompt_tokens - num_cached)
        observe("request_max_num_generation_tokens", max(self._lengths.values(), default=0))
        observe("request_generation_tokens", times.num_generation_tokens)
        observe("request_params_n", self._num_choices)
        if params.max_tokens is not None:
            observe("request_params_max_tokens", params.max_tokens)
        first_s, last_s = times.first_token_s, times.last_token_s
        if times.admitted_s is None or first_s is None or last_s is None:
            return  # cut off before its first token
        observe("request_queue_time_seconds", times.admitted_s - times.arrival_s)
        observe("request_prefill_time_seconds", first_s - times.admitted_s)
        observe("request_decode_time_seconds", last_s - first_s)
        observe("request_inference_time_seconds", last_s - times.admitted_s)
        observe("time_to_first_token_seconds", first_s - times.arrival_s)
        observe("e2e_request_latency_seconds", last_s - times.arrival_s)
        gap_s = mean_gap_s(times, self._num_choices)
        if gap_s is not None:
            observe("request_time_per_output_token_seconds", gap_s)


def _is_cut_off(output: RequestOutput) -> bool:
    """Whether a deadline, or the end of the server, has ended what this output tells of."""
    return any(choice.finish_reason == "abort" for choice in output.outputs)


def _raise_errors(output: RequestOutput) -> None:
    """A choice that failed inside the engine fails the HTTP request, and no other."""
    for choice in output.outputs:
        if choice.finish_reason == "error":
            raise RequestFailedError(f"choice {choice.index} failed inside the engine")
