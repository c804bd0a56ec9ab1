"""SyncEngine: an engine that runs in its caller's thread, one step at a time.

Owns the loop of `LLM.generate`, and the calls of those who step by hand (vLLM's LLMEngine names).
Does not know asyncio. One thread at a time; `run` makes others wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TypeVar

import msgspec

from octavo.contracts.delta import FinishReason
from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.engine.build import Engine
from octavo.engine.encoded import EncodedPrompt
from octavo.engine.fan_out import RequestStream
from octavo.engine.interrupt import BetweenSteps
from octavo.engine.output import OutputProcessor
from octavo.engine.pooled_stream import PooledStream
from octavo.engine.progress import PromptProgress
from octavo.errors import EngineDeadError, InvalidRequestError
from octavo.foundation.clock import Clock
from octavo.outputs import PoolingRequestOutput, RequestOutput
from octavo.pooling_params import PoolingParams
from octavo.prompts import PromptType
from octavo.sampling_params import RequestOutputKind, SamplingParams

logger = logging.getLogger(__name__)


class Job(msgspec.Struct, frozen=True):
    """One checked prompt with its core requests, not yet added."""

    request_id: str
    prompt: EncodedPrompt
    params: SamplingParams
    requests: list[EngineRequest]


class PoolingJob(msgspec.Struct, frozen=True):
    """The same for a vector."""

    request_id: str
    prompt: EncodedPrompt
    params: PoolingParams
    requests: list[EngineRequest]  # one


J = TypeVar("J", Job, PoolingJob)
S = TypeVar("S", RequestStream, PooledStream)
O = TypeVar("O", RequestOutput, PoolingRequestOutput)  # noqa: E741


class SyncEngine:
    """Adds requests, steps, hands out outputs."""

    def __init__(self, engine: Engine, clock: Clock, *, keeps_metrics: bool = False) -> None:
        self.engine = engine
        self._clock = clock
        self._outputs = OutputProcessor(
            engine.tokenizer,
            self._abort_in_core,
            clock,
            keeps_metrics=keeps_metrics,
            stream_interval=engine.config.scheduler.stream_interval,
            tracer=engine.tracer,
        )
        self._streams: dict[str, RequestStream] = {}  # of `add_request`, live ones by id
        self._news: list[RequestStream] = []
        self._numbers = count()
        self._lock = threading.Lock()
        self._is_stopped = False

    def stop(self) -> None:
        """Stop the executor. May be called twice."""
        self._is_stopped = True
        self.engine.core.stop()
        if self.engine.tracer is not None:
            self.engine.tracer.close()

    def check(
        self,
        prompt: PromptType,
        params: SamplingParams,
        *,
        priority: int = 0,
        timeout: float | None = None,
        beam: BeamSpec | None = None,
    ) -> Job:
        """Tokenise and check one prompt; nothing starts yet, but `timeout` counts from now.

        Raises InvalidRequestError, or EngineDeadError after `stop`.
        """
        encoded = self._encode(prompt)
        if params.structured_outputs is not None:
            self.engine.grammars.check(params.structured_outputs)
        request_id = str(next(self._numbers))
        requests = self.engine.intake.requests(
            request_id, encoded, params, priority=priority, timeout=timeout, beam=beam
        )
        return Job(request_id, encoded, params, requests)

    def check_pooling(self, prompt: PromptType, params: PoolingParams) -> PoolingJob:
        """The same for the vector of a prompt."""
        encoded = self._encode(prompt)
        request_id = str(next(self._numbers))
        request = self.engine.intake.pooling_request(request_id, encoded, params)
        return PoolingJob(request_id, encoded, params, [request])

    def add_request(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams,
        *,
        priority: int = 0,
        timeout: float | None = None,
        trace_headers: Mapping[str, str] | None = None,
    ) -> None:
        """Start one request; `step` hands out its outputs.

        Raises InvalidRequestError, also for an id that is live.
        """
        if request_id in self._streams:
            raise InvalidRequestError(f"request_id {request_id!r} is live", param="request_id")
        job = self.check(prompt, params, priority=priority, timeout=timeout)
        stream = self._open(request_id, job, self._news.append, params.output_kind, trace_headers)
        self._streams[request_id] = stream
        self._add(stream, job)

    def abort_request(self, request_ids: str | Iterable[str]) -> None:
        """End requests without further output. Unknown ids are skipped."""
        for request_id in [request_ids] if isinstance(request_ids, str) else request_ids:
            stream = self._streams.get(request_id)
            if stream is not None:
                del self._streams[request_id]
                self._outputs.close(stream)

    def has_unfinished_requests(self) -> bool:
        """Whether `step` would hand out anything, now or later."""
        return bool(self._streams)

    def step(self) -> list[RequestOutput]:
        """Run one step; an output for each request that has news."""
        self._outputs.process(self.engine.core.step())
        outputs = [self._output_of(stream) for stream in self._news]
        self._news.clear()
        for output in outputs:
            if output.finished:
                del self._streams[output.request_id]
        return outputs

    def run(self, jobs: Sequence[Job], *, shows_progress: bool = False) -> list[RequestOutput]:
        """Answer all jobs; the final outputs in the order of the jobs.

        Leaving early by any exception ends what still runs; Ctrl-C waits for the step in flight.
        """

        def open_stream(job: Job, on_news: Callable[[RequestStream], None]) -> RequestStream:
            return self._open(job.request_id, job, on_news, RequestOutputKind.FINAL_ONLY)

        def num_tokens(output: RequestOutput) -> int:
            return sum(len(choice.token_ids) for choice in output.outputs)

        return self._run(jobs, open_stream, self._output_of, num_tokens, shows_progress)

    def run_pooling(
        self, jobs: Sequence[PoolingJob], *, shows_progress: bool = False
    ) -> list[PoolingRequestOutput]:
        """The same for vectors. Raises RequestFailedError when one of them could not be made."""
        pooler = self.engine.intake.limits.pooler

        def open_stream(job: PoolingJob, on_news: Callable[[PooledStream], None]) -> PooledStream:
            assert pooler is not None, "a checked job comes from a model that makes vectors"
            [request] = job.requests
            return self._outputs.open_pooled(
                job.request_id, job.prompt, job.params, request, pooler, on_news
            )

        def output_of(stream: PooledStream) -> PoolingRequestOutput:
            output = stream.take()
            assert output is not None, f"{stream.request_id} has no news"
            return output

        def num_tokens(output: PoolingRequestOutput) -> int:
            return len(output.prompt_token_ids)

        return self._run(jobs, open_stream, output_of, num_tokens, shows_progress)

    def _run(
        self,
        jobs: Sequence[J],
        open_stream: Callable[[J, Callable[[S], None]], S],
        output_of: Callable[[S], O],
        num_tokens: Callable[[O], int],
        shows_progress: bool,
    ) -> list[O]:
        with self._lock, BetweenSteps() as interrupts:
            progress = PromptProgress(len(jobs), self._clock) if shows_progress else None
            running: dict[S, int] = {}
            outputs: dict[int, O] = {}
            finished: list[S] = []
            try:
                for place, job in enumerate(jobs):
                    stream = open_stream(job, finished.append)
                    running[stream] = place
                    self._add(stream, job)
                while running:
                    self._outputs.process(self.engine.core.step())
                    for stream in finished:
                        output = output_of(stream)
                        outputs[running.pop(stream)] = output
                        if progress is not None:
                            progress.advance(num_tokens(output))
                    finished.clear()
                    interrupts.check()
            finally:
                for stream in running:
                    self._outputs.close(stream)
                if progress is not None:
                    progress.close()
            return [outputs[place] for place in range(len(jobs))]

    def _open(
        self,
        request_id: str,
        job: Job,
        on_news: Callable[[RequestStream], None],
        kind: RequestOutputKind,
        trace_headers: Mapping[str, str] | None = None,
    ) -> RequestStream:
        return self._outputs.open(
            *(request_id, job.prompt, job.params, job.requests, on_news),
            kind=kind,
            trace_headers=trace_headers,
        )

    def _encode(self, prompt: PromptType) -> EncodedPrompt:
        if self._is_stopped:
            raise EngineDeadError("the engine has been shut down")
        return self.engine.intake.encode(prompt)

    def _add(self, stream: RequestStream | PooledStream, job: Job | PoolingJob) -> None:
        try:
            for request in job.requests:
                self.engine.core.add_request(request)
        except BaseException:
            self._outputs.close(stream)
            raise

    def _output_of(self, stream: RequestStream) -> RequestOutput:
        if stream.error is not None:
            logger.error("request %s failed: %s", stream.request_id, stream.error)
        output = stream.take_output()
        assert output is not None, f"{stream.request_id} has no news"
        return output

    def _abort_in_core(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for request_id in request_ids:
            self.engine.core.abort(request_id, reason=reason, silent=True)
