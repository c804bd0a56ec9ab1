"""One HTTP request's generation: its prompts, its parameters, its outputs, what the metrics learn.

Used by the routes of completions and chats; knows neither's JSON.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from octavo.engine.async_engine import CheckedRequest
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.outputs import RequestOutput
from octavo.prompts import TokensPrompt
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.server.merge import merge
from octavo.server.schemas.envelope import PromptTokensDetails, Usage
from octavo.server.state import ServerState

MAX_CHOICES_PER_REQUEST = 1024


@dataclass(slots=True)
class TokenCounts:
    """What usage is made of."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0

    def usage(self, *, with_details: bool) -> Usage:
        """The counts as the API shows them."""
        details = PromptTokensDetails(cached_tokens=self.cached_tokens) if with_details else None
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
            prompt_tokens_details=details,
        )


@dataclass(slots=True)
class Generation:
    """The outputs of one or more prompts with the same parameters.

    A limit on tokens that the request did not ask for (`has_own_limit` false) gives way where the
    context has less room; one that it asked for is refused then.
    """

    state: ServerState
    answer_id: str
    prompts: Sequence[TokensPrompt]
    params: SamplingParams
    priority: int = 0
    has_own_limit: bool = True
    counts: TokenCounts = field(init=False)

    def __post_init__(self) -> None:
        num_choices = len(self.prompts) * self.params.n
        if num_choices > MAX_CHOICES_PER_REQUEST:
            raise InvalidRequestError(
                f"{len(self.prompts)} prompts with n={self.params.n} are {num_choices} choices; "
                f"a request may have at most {MAX_CHOICES_PER_REQUEST}",
                param="n",
            )
        num_tokens = sum(len(prompt["prompt_token_ids"]) for prompt in self.prompts)
        self.counts = TokenCounts(num_tokens)

    async def outputs(self) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """(number of the prompt, output) as they come. Closing it aborts what still runs.

        All prompts are checked before the first is queued. Raises InvalidRequestError,
        OverloadedError.
        """
        engine = self.state.engine
        checked = [
            await engine.check(
                prompt, self._params_for(prompt), self.answer_id, priority=self.priority
            )
            for prompt in self.prompts
        ]
        with self.state.admitted(len(checked) * self.params.n):
            streams = [self._stream(one) for one in checked]
            async with aclosing(merge(streams)) as merged:
                async for number, output in merged:
                    yield number, output

    def _params_for(self, prompt: TokensPrompt) -> SamplingParams:
        limit = self.params.max_tokens
        room = self.state.loaded.max_model_len - len(prompt["prompt_token_ids"])
        if self.has_own_limit or limit is None or limit <= room:
            return self.params
        return self.params.replace(max_tokens=None)

    async def _stream(self, checked: CheckedRequest) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one prompt, counted."""
        watch = _Stopwatch(self.state, self.params, len(checked.prompt.token_ids))
        async with self.state.engine.submit(checked) as outputs:
            async for output in outputs:
                num_tokens = sum(len(choice.token_ids) for choice in output.outputs)
                self.counts.completion_tokens += num_tokens
                watch.note(num_tokens)
                if output.finished:
                    self.counts.cached_tokens += output.num_cached_tokens or 0
                _raise_errors(output)
                yield output
        watch.finish()


class _Stopwatch:
    """Feeds the histograms of one request.

    The times of tokens are known of streams only: a whole answer has one output, at its end.
    """

    def __init__(self, state: ServerState, params: SamplingParams, num_prompt_tokens: int) -> None:
        self._metrics = state.metrics
        self._sees_tokens = params.output_kind is RequestOutputKind.DELTA
        self._start_s = self._last_s = time.monotonic()
        self._first_s: float | None = None
        self._num_tokens = 0
        self._metrics.observe("request_prompt_tokens", num_prompt_tokens)
        self._metrics.observe("request_params_n", params.n)
        if params.max_tokens is not None:
            self._metrics.observe("request_params_max_tokens", params.max_tokens)

    def note(self, num_tokens: int) -> None:
        """An output with so many new tokens has come."""
        if num_tokens == 0:
            return
        now_s = time.monotonic()
        if self._first_s is not None:
            self._metrics.observe("inter_token_latency_seconds", now_s - self._last_s)
        elif self._sees_tokens:
            self._first_s = now_s
            self._metrics.observe("time_to_first_token_seconds", now_s - self._start_s)
        self._num_tokens += num_tokens
        self._last_s = now_s

    def finish(self) -> None:
        """The request is complete."""
        observe = self._metrics.observe
        observe("e2e_request_latency_seconds", self._last_s - self._start_s)
        observe("request_generation_tokens", self._num_tokens)
        if self._first_s is not None:
            observe("request_decode_time_seconds", self._last_s - self._first_s)
            if self._num_tokens > 1:
                gap_s = (self._last_s - self._first_s) / (self._num_tokens - 1)
                observe("request_time_per_output_token_seconds", gap_s)


def _raise_errors(output: RequestOutput) -> None:
    """A choice that failed inside the engine fails the HTTP request, and no other."""
    for choice in output.outputs:
        if choice.finish_reason == "error":
            raise RequestFailedError(f"choice {choice.index} failed inside the engine")
