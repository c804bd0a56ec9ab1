"""Fan out: one prompt with `n` choices is `n` core requests, and one stream of outputs again.

A beam search is one core request, whose last delta brings all choices at once.

Owns the answer of one prompt while it grows: the choices by index, what they share, and whether
there is news for whoever reads. News that nobody has taken yet merges, so a slow reader costs no
memory beyond the answer itself. Does not know threads or event loops: `on_news` is called, once,
when news comes in after the last was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.contracts.delta import BeamSequence, FinishReason, TokenDelta
from octavo.contracts.step import TokenLogprobs
from octavo.engine.choice import Choice
from octavo.engine.encoded import EncodedPrompt
from octavo.errors import OctavoError, OverloadedError, RequestFailedError, UnanswerableError
from octavo.outputs import PromptLogprobs, RequestMetrics, RequestOutput, by_token
from octavo.sampling_params import RequestOutputKind, SamplingParams


class RequestStream:
    """The growing answer to one prompt."""

    __slots__ = (
        "_abort_reason",
        "_decode",
        "_has_news",
        "_interval",
        "_kind",
        "_num_cached_tokens",
        "_num_open",
        "_prompt_entries",
        "_prompt_logprobs",
        "choices",
        "core_ids",
        "error",
        "metrics",
        "on_news",
        "prompt",
        "request_id",
    )

    def __init__(  # noqa: PLR0913 - one keyword per property
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: SamplingParams,
        choices: list[Choice],
        *,
        core_ids: list[str],
        decode: Callable[[int], str] | None,
        on_news: Callable[[RequestStream], None],
        kind: RequestOutputKind | None = None,
        metrics: RequestMetrics | None = None,
        interval: int = 1,
    ) -> None:
        """`core_ids` are parallel to `choices`, or one for all. `kind` overrides `params`.

        An output before the end brings a choice's first token, or `interval` tokens or more.
        """
        self.request_id = request_id
        self.prompt = prompt
        self.choices = choices
        self.core_ids = core_ids
        self.on_news = on_news
        self.metrics = metrics
        self.error: OctavoError | None = None
        self._abort_reason: str | None = None
        self._decode = decode
        self._kind = kind or params.output_kind
        self._num_open = len(choices)
        self._has_news = False
        self._interval = interval
        self._num_cached_tokens: int | None = None
        self._prompt_entries: list[TokenLogprobs] | None = (
            None if params.prompt_logprobs is None else []
        )
        self._prompt_logprobs: PromptLogprobs | None = None

    @property
    def is_finished(self) -> bool:
        """Whether nothing will be added any more; news may still be waiting to be taken."""
        return self._num_open == 0

    @property
    def takes_long(self) -> bool:
        """Never: texts grow step by step."""
        return False

    def finish_reasons(self, otherwise: FinishReason) -> tuple[FinishReason, ...]:
        """Of each choice; `otherwise` of those that still run."""
        return tuple(choice.finish_reason or otherwise for choice in self.choices)

    def push(self, choice: Choice, delta: TokenDelta, now_s: float) -> bool:
        """Take in the news of one choice. True when the core must be told to end it."""
        if delta.finish_reason == "error":
            kind = UnanswerableError if delta.is_unanswerable else RequestFailedError
            self.fail(kind(delta.error or "the request failed inside the engine"))
            return False
        if delta.retry_after_s is not None:
            self.fail(OverloadedError(delta.error or "", retry_after_s=delta.retry_after_s))
            return False
        if delta.error is not None:
            self._abort_reason = delta.error
        if choice.index == 0:
            self._note_prompt(delta)
        if self.metrics is not None:
            _note_times(self.metrics, delta, now_s)
        if not delta.token_ids and delta.finish_reason is None:
            return False
        if delta.beams is not None:
            self._take_beams(delta.beams)
            return False
        if len(self.core_ids) < len(self.choices):  # a search that ended without a result
            self.end(delta.finish_reason or "error", delta.stop_reason)
            return False
        num_tokens = choice.num_tokens + len(delta.token_ids)
        ended_here = choice.push(delta)
        if self.metrics is not None:  # what came after a stop string does not belong to the answer
            self.metrics.num_generation_tokens -= num_tokens - choice.num_tokens
        if choice.is_finished:
            self._num_open -= 1
        if self._num_open == 0 or (
            self._kind is not RequestOutputKind.FINAL_ONLY and choice.is_due(self._interval)
        ):
            self._tell()
        return ended_here

    def end(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Finish all choices that still run."""
        for choice in self.choices:
            if not choice.is_finished:
                choice.end(reason, stop_reason)
        self._num_open = 0
        self._tell()

    def fail(self, error: OctavoError) -> None:
        """Nothing follows; the next `take` raises `error`."""
        self.error = error
        self.end("error")

    def take(self) -> RequestOutput | None:
        """An output with all news since the last, None while there is none.

        Raises RequestFailedError, OverloadedError or EngineDeadError if the request could not be
        served.
        """
        if self.error is not None:
            raise self.error
        return self.take_output()

    def take_output(self) -> RequestOutput | None:
        """The same, where a failed request is one that ended with the reason "error"."""
        if not self._has_news:
            return None
        self._has_news = False
        choices = self.choices
        if self._kind is RequestOutputKind.DELTA and len(choices) > 1:
            choices = [choice for choice in choices if choice.is_due(self._interval)]
        return RequestOutput(
            self.request_id,
            self.prompt.text,
            self.prompt.token_ids,
            self._prompt_logprobs_so_far(),
            [choice.take(self._kind) for choice in choices],
            self._num_open == 0,
            self.metrics,
            self._num_cached_tokens,
            self._abort_reason,
        )

    def _take_beams(self, beams: Sequence[BeamSequence]) -> None:
        """The end of a beam search; it may have found fewer answers than were asked for."""
        self.choices = self.choices[: len(beams)]
        for choice, beam in zip(self.choices, beams, strict=False):
            choice.push_beam(beam)
        self._num_open = 0
        self._tell()

    def _tell(self) -> None:
        if not self._has_news:
            self._has_news = True
            self.on_news(self)

    def _note_prompt(self, delta: TokenDelta) -> None:
        if self._num_cached_tokens is None or delta.num_cached_tokens:
            self._num_cached_tokens = delta.num_cached_tokens
        if self._prompt_entries is not None and delta.prompt_logprobs:
            self._prompt_entries += delta.prompt_logprobs

    def _prompt_logprobs_so_far(self) -> PromptLogprobs | None:
        """Complete with the first token; decoded once."""
        if self._prompt_entries is None:
            return None
        if self._prompt_logprobs is None:
            entries = (by_token(entry, self._decode) for entry in self._prompt_entries)
            self._prompt_logprobs = [None, *entries]
        return self._prompt_logprobs


def _note_times(metrics: RequestMetrics, delta: TokenDelta, now_s: float) -> None:
    """Of several choices the one that was first to run, and to have a token, counts."""
    if metrics.admitted_s is None:
        metrics.admitted_s = delta.admitted_s
    num_tokens = len(delta.token_ids)
    if delta.beams is not None:
        num_tokens += sum(len(beam.token_ids) for beam in delta.beams)
    if num_tokens:
        metrics.last_token_s = now_s
        metrics.num_generation_tokens += num_tokens
        if metrics.first_token_s is None:
            metrics.first_token_s = now_s
    if delta.finish_reason is not None:
        metrics.num_preemptions += delta.num_preemptions
        metrics.num_swaps += delta.num_swaps
