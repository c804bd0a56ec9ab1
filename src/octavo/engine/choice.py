"""Choice: the token side of one answer becomes its text side.

Owns tokens, text, log-probabilities and the finish of one core request. Does not know the other
choices of the same prompt (`fan_out.py`), nor who reads the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.step import TokenLogprobs
from octavo.outputs import CompletionOutput, LogprobList
from octavo.sampling_params import RequestOutputKind, SamplingParams


class Detokenizer(Protocol):
    """Tokens of one answer -> text, whole characters only."""

    def push(self, token_id: int) -> str: ...
    def flush(self) -> str: ...


class StopMatcher(Protocol):
    """Text of one answer -> text that cannot be part of a stop string."""

    matched: str | None

    def push(self, text: str) -> str: ...
    def flush(self) -> str: ...


class Choice:
    """One answer while it grows. `push` takes deltas in, `take` gives outputs out."""

    __slots__ = (
        "_cumulative_logprob",
        "_decode",
        "_detokenizer",
        "_logprobs",
        "_matcher",
        "_params",
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
        detokenizer: Detokenizer | None,
        matcher: StopMatcher | None,
        decode: Callable[[int], str] | None,
    ) -> None:
        """No `detokenizer`: the text stays empty. `decode` names the tokens of log-probabilities."""
        self.index = index
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self._params = params
        self._detokenizer = detokenizer
        self._matcher = matcher
        self._decode = decode
        self._text = ""
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] | None = None if params.logprobs is None else []
        self._cumulative_logprob = 0.0

    def push(self, delta: TokenDelta) -> bool:
        """Take in the news of one step.

        True when a stop string ended the choice: then the core does not know yet that it is over.
        """
        token_ids = delta.token_ids
        used = len(token_ids)
        if self._detokenizer is not None and used:
            shown = used
            if delta.finish_reason == "stop" and not self._params.include_stop_str_in_output:
                shown -= 1  # the token that ended the answer has no text
            if self._matcher is None:
                for token_id in token_ids if shown == used else token_ids[:shown]:
                    self._text += self._detokenizer.push(token_id)
            else:
                used = self._push_matched(self._detokenizer, self._matcher, token_ids, shown)
        self.num_tokens += used
        self._token_ids += token_ids if used == len(token_ids) else token_ids[:used]
        if self._logprobs is not None and delta.logprobs is not None:
            self._logprobs += delta.logprobs[:used]
            self._cumulative_logprob += sum(entry.logprobs[0] for entry in delta.logprobs[:used])
        if self._matcher is not None and self._matcher.matched is not None:
            self._finish("stop", self._matcher.matched)
            return delta.finish_reason is None
        if delta.finish_reason is not None:
            self.end(delta.finish_reason, delta.stop_reason)
            # The last characters may still complete a stop string; then it is the reason.
        return False
