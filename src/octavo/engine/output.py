"""Output: token deltas of a step -> text, vectors and news of each request.

Owns the table of live core requests on the front end's side. A found stop string ends its request
here first; the core is told afterwards and stays silent about it. Does not know who reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.request import EngineRequest
from octavo.contracts.tracing import Tracer
from octavo.engine.choice import Choice
from octavo.engine.encoded import EncodedPrompt
from octavo.engine.fan_out import RequestStream
from octavo.engine.pooled_stream import PooledStream
from octavo.engine.pooler import Pooler
from octavo.engine.stats import EngineStats
from octavo.engine.tracing import OpenTrace
from octavo.errors import OctavoError, RequestFailedError
from octavo.foundation.clock import Clock
from octavo.outputs import RequestMetrics
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.stop_strings import StopStringMatcher
from octavo.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_Entry = tuple[RequestStream | PooledStream, Callable[[TokenDelta, float], bool], Choice | None]
"""Who takes the news of a core request, by what, and which of its choices it is."""

AbortInCore = Callable[[Sequence[str], FinishReason], None]
"""Ends core requests silently."""


class OutputProcessor:
    """Deltas in, news out. One thread makes all calls."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        abort: AbortInCore,
        clock: Clock,
        *,
        keeps_metrics: bool = False,
        stream_interval: int = 1,
        tracer: Tracer | None = None,
    ) -> None:
        """`stream_interval` is the number of tokens in an output of a stream."""
        self._tokenizer = tokenizer
        self._abort = abort
        self._clock = clock
        self._keeps_metrics = keeps_metrics or tracer is not None
        self._tracer = tracer
        self._traces: dict[RequestStream | PooledStream, OpenTrace] = {}
        self._stream_interval = stream_interval
        self._live: dict[str, _Entry] = {}
        self._num_generation_tokens = 0  # of answers

    def open(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: SamplingParams,
        requests: Sequence[EngineRequest],
        on_news: Callable[[RequestStream], None],
        *,
        kind: RequestOutputKind | None = None,
        trace_headers: Mapping[str, str] | None = None,
    ) -> RequestStream:
        """The stream that will gather the answers to `requests`: one choice for each, or all
        choices of a beam search, which is one request.
        """
        beam = requests[0].beam
        num_choices = len(requests) if beam is None else beam.num_returned
        decode = self._tokenizer.token_of if params.detokenize else None
        stream = RequestStream(
            request_id,
            prompt,
            params,
            [self._choice(index, prompt, params, decode) for index in range(num_choices)],
            core_ids=[request.request_id for request in requests],
            decode=decode,
            on_news=on_news,
            kind=kind,
            metrics=RequestMetrics(requests[0].arrival_s) if self._keeps_metrics else None,
            interval=self._stream_interval,
        )
        for core_id, choice in zip(stream.core_ids, stream.choices, strict=False):
            assert core_id not in self._live, core_id
            self._live[core_id] = (stream, partial(stream.push, choice), choice)
        if self._tracer is not None:
            self._traces[stream] = OpenTrace(
                request_id, params, len(prompt.token_ids), trace_headers
            )
        return stream

    def open_pooled(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: PoolingParams,
        request: EngineRequest,
        pooler: Pooler,
        on_news: Callable[[PooledStream], None],
        trace_headers: Mapping[str, str] | None = None,
    ) -> PooledStream:
        """The stream that will take the vector of `request`."""
        stream = PooledStream(
            request_id,
            prompt,
            params,
            pooler,
            core_id=request.request_id,
            on_news=on_news,
            metrics=RequestMetrics(request.arrival_s) if self._keeps_metrics else None,
        )
        assert request.request_id not in self._live, request.request_id
        self._live[request.request_id] = (stream, stream.push, None)
        if self._tracer is not None:
            self._traces[stream] = OpenTrace(
                request_id, params, len(prompt.token_ids), trace_headers
            )
        return stream

    @property
    def num_live(self) -> int:
        """Core requests whose end has not been seen."""
        return len(self._live)

    def counted(self, stats: EngineStats) -> EngineStats:
        """The same with the tokens of answers, where the core counts also those that came behind a
        stop string. Needs `keeps_metrics`.
        """
        return replace(stats, num_generation_tokens=self._num_generation_tokens)

    def process(self, deltas: list[TokenDelta]) -> None:
        """Hand the news of one step to their streams. Deltas of ended requests are dropped."""
        live = self._live
        now_s = self._clock.now_s() if self._keeps_metrics else 0.0
        ended: list[str] = []
        for delta in deltas:
            entry = live.get(delta.request_id)
            if entry is None:
                continue
            stream, push, choice = entry
            metrics = stream.metrics
            num_before = 0 if metrics is None else metrics.num_generation_tokens
            try:
                if push(delta, now_s):
                    ended.append(delta.request_id)
            except Exception as error:  # border: this request ends, the others go on
                logger.exception("request failed while its output was made")
                stream.fail(RequestFailedError(f"internal error: {error}"))
            if metrics is not None:
                self._num_generation_tokens += metrics.num_generation_tokens - num_before
            if self._tracer is not None and stream in self._traces:
                self._traces[stream].note(delta)
            if stream.error is not None:
                self.close(stream)
            elif (choice is not None and choice.is_finished) or stream.is_finished:
                del live[delta.request_id]
                if self._tracer is not None and stream.is_finished:
                    self._end_trace(stream)
        if ended:
            self._abort(ended, "stop")

    def close(self, stream: RequestStream | PooledStream, reason: FinishReason = "abort") -> None:
        """Forget a stream; what still runs of it is ended in the core, without further news."""
        running = [core_id for core_id in stream.core_ids if self._live.pop(core_id, None)]
        if running:
            self._abort(running, reason)
        self._end_trace(stream, reason)

    def fail_all(self, make_error: Callable[[], OctavoError]) -> None:
        """Every live stream ends with an error of its own; the core is not told, it is gone."""
        streams = {id(stream): stream for stream, _, _ in self._live.values()}
        self._live.clear()
        for stream in streams.values():
            stream.fail(make_error())
            self._end_trace(stream)

    def _end_trace(
        self, stream: RequestStream | PooledStream, reason: FinishReason = "error"
    ) -> None:
        """Tell the tracer of a stream, once. `reason` is for choices that have none."""
        trace = self._traces.pop(stream, None)
        if trace is None or self._tracer is None:
            return
        assert stream.metrics is not None, "a tracer needs the times"
        record = trace.ended(
            stream.metrics,
            self._clock.now_s(),
            finish_reasons=stream.finish_reasons(reason),
            error=None if stream.error is None else str(stream.error),
        )
        try:
            self._tracer.record(record)
        except Exception:  # border: a tracer is not worth a request
            logger.exception("a trace was lost")

    def _choice(
        self,
        index: int,
        prompt: EncodedPrompt,
        params: SamplingParams,
        decode: Callable[[int], str] | None,
    ) -> Choice:
        if not params.detokenize:
            return Choice(index, params, None, None, decode)
        detokenizer = IncrementalDetokenizer(
            self._tokenizer,
            prompt.token_ids,
            skip_special_tokens=params.skip_special_tokens,
            spaces_between_special_tokens=params.spaces_between_special_tokens,
        )
        matcher = None
        if params.stop_strings:
            matcher = StopStringMatcher(params.stop_strings, params.include_stop_str_in_output)
        return Choice(index, params, detokenizer, matcher, decode)
