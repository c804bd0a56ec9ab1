"""AsyncLLM: an engine for asyncio programs, such as the server.

Owns the way between an event loop and the engine's thread: requests and aborts go over as commands,
deltas come back with one call per step, text is made on the loop's side. Does not know HTTP.

    engine = AsyncLLM.start(config)      # returns at once, loads in the background
    await engine.ready()
    async for output in engine.generate("Hello", SamplingParams()): ...
    await engine.shutdown(drain_s=5)

All calls come from one event loop. Closing the iterator, or ending the task that reads it, ends the
request; its blocks are free before the next step is planned.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

from octavo.config.engine import EngineConfig
from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.grammar import ThinkingSpec
from octavo.contracts.progress import ReportProgress
from octavo.contracts.request import BeamSpec
from octavo.engine.beam_search import beam_search_output, beam_spec, text_params
from octavo.engine.build import Engine, build_engine, build_frozen
from octavo.engine.checked import CheckedPooling, CheckedRequest
from octavo.engine.core import EngineCore
from octavo.engine.debug_view import debug_view
from octavo.engine.detached import EngineListener, EngineThread
from octavo.engine.encoded import EncodedPrompt
from octavo.engine.entrance import Entrance, TextStream, VectorStream
from octavo.engine.health import STALLED_AFTER_S
from octavo.engine.intake import Intake
from octavo.engine.open_requests import OpenRequests
from octavo.engine.output import OutputProcessor
from octavo.engine.output_stream import OutputStream
from octavo.engine.stats import EngineStats
from octavo.errors import EngineDeadError, OverloadedError
from octavo.foundation.clock import Clock, SystemClock
from octavo.outputs import BeamSearchOutput, PoolingRequestOutput, RequestOutput
from octavo.pooling_params import PoolingParams
from octavo.prompts import PromptType
from octavo.sampling_params import BeamSearchParams, SamplingParams
from octavo.text.tokenizer import LONG_TEXT, Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Where loading stands. The phase is "ready" once requests can be served."""

    phase: str
    share: float  # of this phase, between 0 and 1


class AsyncLLM:
    """An engine in a thread of its own, used from one event loop."""

    def __init__(
        self, build: Callable[[ReportProgress], Engine], clock: Clock | None = None
    ) -> None:
        """`build` runs in the engine's thread. Most callers want `start`."""
        self._clock = clock or SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outputs: OutputProcessor | None = None
        self._entrance: Entrance | None = None
        self._engine: Engine | None = None
        self.open_requests = OpenRequests()  # their readers have not seen the end
        self._news: deque[list[TokenDelta]] = deque()  # steps that the event loop has not seen yet
        self._is_loop_called = False
        self._numbers = count()
        self._death: BaseException | None = None
        self._is_draining = False
        self._progress = LoadProgress("starting", 0.0)
        listener = EngineListener(self._note_progress, self._post_deltas, self._note_death)
        self._thread = EngineThread(partial(build_frozen, build), listener, self._clock)

    @classmethod
    def start(cls, config: EngineConfig) -> Self:
        """Begin to load; returns at once. `ready` waits for the end of it."""
        clock = SystemClock()
        return cls(lambda report: build_engine(config, clock, report), clock)

    async def ready(self) -> Engine:
        """Wait until requests can be served; the parts of the engine.

        Raises what loading raised: ModelFileError, DownloadError, ConfigError, DoesNotFitError.
        """
        if self._engine is None:
            engine = await asyncio.wrap_future(self._thread.loaded)
            if self._engine is None:  # another waiter may have been first
                self._outputs = OutputProcessor(
                    engine.tokenizer,
                    self._thread.abort,
                    self._clock,
                    keeps_metrics=True,
                    stream_interval=engine.config.scheduler.stream_interval,
                    tracer=engine.tracer,
                )
                self._entrance = Entrance(
                    self._thread,
                    self._outputs,
                    self.open_requests,
                    pooler=engine.intake.limits.pooler,
                    require_open=self._require_open,
                    close=self._close,
                )
                self._engine = engine
        return self._engine

    @property
    def load_progress(self) -> LoadProgress:
        """How far loading has come."""
        return self._progress

    @property
    def is_ready(self) -> bool:
        """Whether loading has ended well."""
        return self._thread.loaded.done() and self._load_error() is None

    @property
    def is_running(self) -> bool:
        """Whether the engine loads or serves."""
        return self._thread.is_alive and self._death is None

    @property
    def errored(self) -> bool:
        """Whether the engine ended by a fault."""
        return self._death is not None or self._load_error() is not None

    @property
    def is_draining(self) -> bool:
        """Whether `shutdown` has begun: no further request is taken."""
        return self._is_draining

    @property
    def entrance(self) -> Entrance:
        """Where checked requests go in: see there for several at once. Only after `ready`."""
        assert self._entrance is not None, "ready comes first"
        return self._entrance

    async def check(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams,
        request_id: str | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        tenant: str = "",
        beam: BeamSpec | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> CheckedRequest:
        """Tokenise and check a request; nothing is queued, but `timeout` counts from now.

        A grammar is compiled outside the event loop. `thinking` bounds thoughts, and keeps a
        grammar from them.

        Raises InvalidRequestError that names the field and the limit, EngineDeadError,
        OverloadedError.
        """
        engine = await self.ready()
        intake = engine.intake
        encoded = await self._encode(intake, prompt)
        if sampling_params.structured_outputs is not None:
            await asyncio.to_thread(engine.grammars.check, sampling_params.structured_outputs)
        core_id = self._core_id(request_id)
        requests = intake.requests(
            core_id,
            encoded,
            sampling_params,
            priority=priority,
            timeout=timeout,
            tenant=tenant,
            beam=beam,
            thinking=thinking,
        )
        return CheckedRequest(request_id or core_id, encoded, sampling_params, requests)

    async def check_pooling(
        self,
        prompt: PromptType,
        params: PoolingParams,
        request_id: str | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        tenant: str = "",
    ) -> CheckedPooling:
        """The same for the vector of a prompt. Raises as `check` does."""
        intake = (await self.ready()).intake
        encoded = await self._encode(intake, prompt)
        core_id = self._core_id(request_id)
        request = intake.pooling_request(
            core_id, encoded, params, priority=priority, timeout=timeout, tenant=tenant
        )
        return CheckedPooling(request_id or core_id, encoded, params, request)

    def submit(
        self, checked: CheckedRequest, trace_headers: Mapping[str, str] | None = None
    ) -> TextStream:
        """Queue a checked request. It runs until its stream is read to the end or closed.

        `trace_headers` are the W3C trace context of the caller, for traces.

        Raises EngineDeadError, OverloadedError.
        """
        return self.entrance.submit(checked, trace_headers)

    def submit_pooling(
        self, checked: CheckedPooling, trace_headers: Mapping[str, str] | None = None
    ) -> VectorStream:
        """The same for a vector."""
        return self.entrance.submit_pooling(checked, trace_headers)

    async def generate(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams,
        request_id: str | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        tenant: str = "",
        trace_headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one request, in the form that `sampling_params.output_kind` asks for.

        Lower `priority` runs first under the priority policy. After `timeout` seconds the answer
        ends as it is, with the finish reason "abort" and the stop reason "timeout". Different
        tenants share no cached blocks. Raises InvalidRequestError, RequestFailedError,
        OverloadedError, EngineDeadError.
        """
        checked = await self.check(
            prompt, sampling_params, request_id, priority=priority, timeout=timeout, tenant=tenant
        )
        async with self.submit(checked, trace_headers) as outputs:
            async for output in outputs:
                yield output

    async def encode(
        self,
        prompt: PromptType,
        pooling_params: PoolingParams,
        request_id: str | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        tenant: str = "",
        trace_headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """The vector of one prompt, as vLLM's generator of one output. Raises as `generate`."""
        checked = await self.check_pooling(
            prompt, pooling_params, request_id, priority=priority, timeout=timeout, tenant=tenant
        )
        async with self.submit_pooling(checked, trace_headers) as outputs:
            async for output in outputs:
                yield output

    async def beam_search(
        self,
        prompt: PromptType,
        params: BeamSearchParams,
        request_id: str | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        tenant: str = "",
    ) -> BeamSearchOutput:
        """The likeliest answers to a prompt, the best first. Raises as `generate` does."""
        engine = await self.ready()
        checked = await self.check(
            prompt,
            text_params(params, engine.intake.limits.max_logprobs),
            request_id,
            priority=priority,
            timeout=timeout,
            tenant=tenant,
            beam=beam_spec(params),
        )
        async with self.submit(checked) as outputs:
            output = await anext(outputs)
        return beam_search_output(output, params, engine.tokenizer)

    async def abort(self, request_id: str | Sequence[str]) -> None:
        """End live requests by name; their readers get a last output with reason "abort"."""
        names = {request_id} if isinstance(request_id, str) else set(request_id)
        for output in self.open_requests:
            if output.request_id in names:
                self._abort(output)

    async def check_health(self) -> None:
        """Return if the engine loads, waits or gets on with its work.

        Raises EngineDeadError if it has ended, or if a step has been running for minutes.
        """
        self._raise_if_dead()
        age_s = self._thread.heartbeat.step_age_s()
        if age_s > STALLED_AFTER_S:
            raise EngineDeadError(f"the engine is stuck: a step has been running for {age_s:.0f} s")

    async def stats(self) -> EngineStats:
        """Counts and gauges, read between two steps. Raises EngineDeadError."""
        stats = await self._call(EngineCore.stats)
        return stats if self._outputs is None else self._outputs.counted(stats)

    async def reset_prefix_cache(self, *, reset_external: bool = False) -> bool:
        """Forget all cached blocks; False, and nothing happens, while any request runs.

        `reset_external` also clears the folder of `--kv-offload-dir`.
        """
        reset = partial(EngineCore.reset_prefix_cache, reset_external=reset_external)
        return await self._call(reset)

    async def debug_view(self) -> dict[str, Any]:
        """Requests and blocks for people, read between two steps. Raises EngineDeadError."""
        return await self._call(partial(debug_view, now_s=self._clock.now_s))

    async def get_tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return (await self.ready()).tokenizer

    async def shutdown(self, drain_s: float = 0.0) -> None:
        """Take no further request, give live ones `drain_s` seconds, end the rest, stop the thread.

        Readers of requests that are cut off get a last output with reason "abort".
        """
        self._is_draining = True
        if drain_s > 0 and self.is_running:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.open_requests.wait_idle(), drain_s)
        self._abort_all()
        await asyncio.to_thread(self._end)

    def close(self) -> None:
        """`shutdown` without a drain, for who cannot await: it blocks until the end of the step.

        To be called where the event loop runs, or after its end. May be called twice.
        """
        self._is_draining = True
        self._abort_all()
        self._end()

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    # Calls of the engine's thread

    def _note_progress(self, phase: str, share: float) -> None:
        self._progress = LoadProgress(phase, share)

    def _post_deltas(self, deltas: list[TokenDelta]) -> None:
        """The news of a step. A loop that has not come yet is not called again.

        A loop that is called faster than it can come would do nothing but read the calls.
        """
        self._news.append(deltas)
        if not self._is_loop_called or (self._loop is not None and self._loop.is_closed()):
            self._is_loop_called = True
            self._on_loop(self._take_news)

    def _note_death(self, error: BaseException) -> None:
        self._death = error
        self._on_loop(self._fail_readers)

    def _on_loop(self, action: Callable[[], None]) -> None:
        if self._loop is None:
            return  # nobody has ever sent a request
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop is closed: there is nobody left to serve
            self._thread.request_stop()

    # Calls on the event loop

    def _take_news(self) -> None:
        assert self._outputs is not None
        self._is_loop_called = False  # before the look: whatever comes after it calls again
        for _ in range(len(self._news)):
            self._outputs.process(self._news.popleft())

    def _fail_readers(self) -> None:
        assert self._outputs is not None
        self._outputs.fail_all(self._death_notice)

    def _death_notice(self) -> EngineDeadError:
        notice = EngineDeadError(f"the engine has died: {self._death}")
        notice.__cause__ = self._death
        return notice

    def _load_error(self) -> BaseException | None:
        loaded = self._thread.loaded
        return loaded.exception() if loaded.done() else None

    def _raise_if_dead(self) -> None:
        if self._death is not None:
            raise self._death_notice()
        load_error = self._load_error()
        if load_error is not None:
            raise EngineDeadError(f"the engine could not be loaded: {load_error}") from load_error
        if not self._thread.is_alive:
            raise EngineDeadError("the engine has been shut down")

    def _raise_if_ending(self) -> None:
        """Whether requests are taken at all."""
        self._raise_if_dead()
        if self._is_draining:
            raise OverloadedError("the engine is shutting down and takes no further request")

    def _require_open(self) -> None:
        """The same for a request of the running event loop, which is the engine's from now on."""
        self._raise_if_ending()
        self._use_loop(asyncio.get_running_loop())

    async def _encode(self, intake: Intake, prompt: PromptType) -> EncodedPrompt:
        """Token ids; a long text does not hold up the event loop."""
        self._raise_if_ending()
        text = prompt.get("prompt") if isinstance(prompt, dict) else prompt
        if isinstance(text, str) and len(text) >= LONG_TEXT:
            return await asyncio.to_thread(intake.encode, prompt)
        return intake.encode(prompt)

    def _core_id(self, name: str | None) -> str:
        """An id that never comes again: two live requests may carry the same name."""
        return f"{name or 'request'}-{next(self._numbers)}"

    def _use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:
            if self.open_requests:
                raise RuntimeError("an AsyncLLM serves one event loop at a time")
            self._loop = loop
            self._is_loop_called = False  # the call may have gone to a loop that has ended

    def _abort(self, output: OutputStream[Any, Any]) -> None:
        """End a request; its reader finds the last output."""
        self._end_in_core(output)
        if not output.stream.is_finished:
            output.stream.end("abort")

    def _abort_all(self) -> None:
        for output in self.open_requests:
            self._abort(output)

    def _end(self) -> None:
        """Wait for the thread, then for the last spans. Needs no event loop."""
        self._thread.stop()
        if self._engine is not None and self._engine.tracer is not None:
            self._engine.tracer.close()

    def _close(self, output: OutputStream[Any, Any]) -> None:
        """The reader has gone, or has seen the end."""
        self._end_in_core(output)
        self.open_requests.discard(output)

    def _end_in_core(self, output: OutputStream[Any, Any], reason: FinishReason = "abort") -> None:
        assert self._outputs is not None
        self._outputs.close(output.stream, reason)

    async def _call(self, action: Callable[[EngineCore], T]) -> T:
        await self.ready()
        self._raise_if_dead()
        return await asyncio.wrap_future(self._thread.call(action))
