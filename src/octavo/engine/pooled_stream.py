"""PooledStream: the answer to one prompt of a model that makes vectors.

Owns the end of such a request: a vector, or why there is none. Does not know threads or loops.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.engine.encoded import EncodedPrompt
from octavo.engine.pooler import Pooler
from octavo.errors import DeadlineExceededError, OctavoError, OverloadedError, RequestFailedError
from octavo.outputs import PoolingRequestOutput, RequestMetrics
from octavo.pooling_params import PoolingParams

_MANY_BYTES = 2**16  # of vectors


class PooledStream:
    """The answer to one prompt: nothing, and then one vector. `OutputProcessor` feeds it."""

    def __init__(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: PoolingParams,
        pooler: Pooler,
        *,
        core_id: str,
        on_news: Callable[[PooledStream], None],
        metrics: RequestMetrics | None = None,
    ) -> None:
        self.request_id = request_id
        self.core_ids = [core_id]
        self.error: OctavoError | None = None
        self.is_finished = False
        self._prompt, self._params, self._pooler = prompt, params, pooler
        self._on_news = on_news
        self.metrics = metrics
        self._delta: TokenDelta | None = None  # with the vectors as they were computed

    @property
    def takes_long(self) -> bool:
        """Whether `take` works for milliseconds, on vectors of many tokens."""
        delta = self._delta
        return delta is not None and len(delta.pooled or b"") > _MANY_BYTES

    def push(self, delta: TokenDelta, now_s: float) -> bool:
        """Take in the news of the core, which need not be told anything."""
        if self.metrics is not None:
            self.metrics.admitted_s = self.metrics.admitted_s or delta.admitted_s
            self.metrics.first_token_s = self.metrics.last_token_s = now_s
        if delta.pooled is not None:
            self._delta, self.is_finished = delta, True
            self._on_news(self)
        elif delta.finish_reason is not None:
            self.fail(_failure(delta))
        return False

    def finish_reasons(self, otherwise: FinishReason) -> tuple[FinishReason, ...]:
        """As those of a text: one, `otherwise` while it runs."""
        if not self.is_finished:
            return (otherwise,)
        return ("stop",) if self.error is None else ("error",)

    def end(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Finish without a vector."""
        if not self.is_finished:
            self.fail(RequestFailedError(f"the request ended before it was computed ({reason})"))

    def fail(self, error: OctavoError) -> None:
        """Nothing follows; the next `take` raises `error`."""
        self.error, self.is_finished = error, True
        self._on_news(self)

    def take(self) -> PoolingRequestOutput | None:
        """The output once, None while there is none. Raises why the request failed."""
        if self.error is not None:
            raise self.error
        delta, self._delta = self._delta, None
        if delta is None:
            return None
        assert delta.pooled is not None, "others end with an error"
        return PoolingRequestOutput(
            self.request_id,
            self._pooler.finish(delta.pooled, self._params),
            self._prompt.token_ids,
            finished=True,
            num_cached_tokens=delta.num_cached_tokens,
            metrics=self.metrics,
        )


def _failure(delta: TokenDelta) -> OctavoError:
    if delta.retry_after_s is not None:
        return OverloadedError(delta.error or "", retry_after_s=delta.retry_after_s)
    if delta.stop_reason == "timeout":
        message = f"the timeout ended the request: {delta.error or 'it was not computed in time'}"
        return DeadlineExceededError(message)
    reason = delta.error or f"it ended with {delta.finish_reason}"
    return RequestFailedError(f"the request failed inside the engine: {reason}")
