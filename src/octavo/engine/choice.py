"""Choice: the token side of one answer becomes its text side.

Owns tokens, text, log-probabilities and the finish of one core request. Does not know the other
choices of the same prompt (`fan_out.py`), nor who reads the outputs.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.contracts.delta import BeamSequence, FinishReason, TokenDelta
from octavo.contracts.step import TokenLogprobs
from octavo.outputs import CompletionOutput, LogprobList
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.stop_strings import StopStringMatcher


class Choice:
    """One answer while it grows. `push` takes deltas in, `take` gives outputs out."""

    __slots__ = (
        "_are_best",
        "_cumulative_logprob",
        "_decode",
        "_detokenizer",
        "_has_news",
        "_is_beam",
        "_logprobs",
        "_matcher",
        "_min_tokens",
        "_num_taken",
        "_push_plain",
        "_shows_stop",
        "_text",
        "_token_ids",
        "finish_reason",
        "index",
        "num_tokens",
        "stop_reason",
    )

    def __init__(
        self,
        index: int,
        params: SamplingParams,
        detokenizer: IncrementalDetokenizer | None,
        matcher: StopStringMatcher | None,
        decode: Callable[[int], str] | None,
    ) -> None:
        """Without a `detokenizer` the text stays empty. `decode` names tokens of logprobs."""
        self.index = index
        self.num_tokens = 0
        self._num_taken = 0  # tokens at the last `take`
        self._has_news = False  # since then
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        # Copied out, because a script may change its parameters for the next request meanwhile.
        self._min_tokens = params.min_tokens
        self._shows_stop = params.include_stop_str_in_output
        self._detokenizer = detokenizer
        self._matcher = matcher
        self._decode = decode
        self._text = ""
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] | None = [] if params.wants_logprobs else None
        self._are_best = not params.logprob_token_ids
        self._cumulative_logprob = 0.0
        self._is_beam = False
        is_plain = matcher is None and self._logprobs is None
        self._push_plain = detokenizer.push if detokenizer is not None and is_plain else None

    @property
    def is_finished(self) -> bool:
        """Whether nothing follows."""
        return self.finish_reason is not None

    def is_due(self, interval: int) -> bool:
        """Whether there is news to send: the first token, `interval` tokens or more, or the end."""
        if interval == 1 or not self._num_taken or self.finish_reason is not None:
            return self._has_news
        return self.num_tokens - self._num_taken >= interval

    def push(self, delta: TokenDelta) -> bool:
        """Take in the news of one step.

        True when a stop string ended the choice before the core did: the core must be told.
        """
        self._has_news = True
        token_ids = delta.token_ids
        if self._push_plain is not None and delta.finish_reason is None:  # most tokens
            for token_id in token_ids:
                self._text += self._push_plain(token_id)
            self._token_ids += token_ids
            self.num_tokens += len(token_ids)
            return False
        used = self._add_text(delta) if self._detokenizer is not None else len(token_ids)
        if used < len(token_ids):
            token_ids = token_ids[:used]
        self.num_tokens += used
        self._token_ids += token_ids
        if self._logprobs is not None and delta.logprobs is not None:
            entries = delta.logprobs[:used]
            self._logprobs += entries
            self._cumulative_logprob += sum(entry.logprobs[0] for entry in entries)
        if self.is_finished:
            return delta.finish_reason is None
        if delta.finish_reason is not None:
            self.end(delta.finish_reason, delta.stop_reason)
        return False

    def push_beam(self, beam: BeamSequence) -> None:
        """Take in the whole of an answer that a beam search found."""
        self.push(
            TokenDelta(
                "", beam.token_ids, beam.finish_reason, beam.stop_reason, logprobs=beam.logprobs
            )
        )
        self._cumulative_logprob = beam.cumulative_logprob
        self._is_beam = True

    def end(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Nothing follows: let go of the text that was held back."""
        self._has_news = True
        self.finish_reason, self.stop_reason = reason, stop_reason
        if self._detokenizer is None or reason == "error":
            return
        self._text += self._shown(self._detokenizer.flush(), self.num_tokens)
        if self._matcher is not None:
            self._text += self._matcher.flush()

    def take(self, kind: RequestOutputKind) -> CompletionOutput:
        """The state as an output: what is new for DELTA, else everything."""
        self._has_news = False
        self._num_taken = self.num_tokens
        text, token_ids, logprobs = self._text, self._token_ids, self._logprobs
        if kind is RequestOutputKind.DELTA:
            self._text, self._token_ids = "", []
            self._logprobs = None if logprobs is None else []
        elif not self.is_finished:
            token_ids = list(token_ids)
            logprobs = None if logprobs is None else list(logprobs)
        return CompletionOutput(
            self.index,
            text,
            token_ids,
            self._cumulative_logprob if logprobs is not None or self._is_beam else None,
            None
            if logprobs is None
            else LogprobList(logprobs, self._decode, is_ranked=self._are_best),
            self.finish_reason,
            self.stop_reason,
        )

    def _add_text(self, delta: TokenDelta) -> int:
        """Append the text of new tokens; the number of them that belong to the answer."""
        assert self._detokenizer is not None
        token_ids, push = delta.token_ids, self._detokenizer.push
        with_text = token_ids
        if delta.finish_reason == "stop" and not (self._shows_stop or delta.is_complete):
            with_text = token_ids[:-1]  # the token that ended the answer has no text
        if self._matcher is None:
            for token_id in with_text:
                self._text += push(token_id)
            return len(token_ids)
        for place, token_id in enumerate(with_text, 1):
            self._text += self._shown(push(token_id), self.num_tokens + place)
            if self.is_finished:
                return place
        return len(token_ids)

    def _shown(self, text: str, num_tokens: int) -> str:
        """The part of new text that may be shown now. A stop string in it ends the choice.

        `num_tokens` is the number of tokens behind all text up to here.
        """
        matcher = self._matcher
        if matcher is None:
            return text
        text = matcher.push(text, may_stop=num_tokens > self._min_tokens)
        if matcher.matched is not None:
            self.finish_reason, self.stop_reason = "stop", matcher.matched
        return text
