"""What a user gets back: RequestOutput, with one CompletionOutput per choice.

Names and meanings are vLLM's. Plain records without behaviour, except that log-probabilities stay
in the engine's compact form until somebody looks at them: most are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, overload

import msgspec

from octavo.contracts.delta import FinishReason
from octavo.contracts.step import TokenLogprobs

__all__ = [  # noqa: RUF022 - by kind of answer
    "PoolingOutput",
    "PoolingRequestOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "ClassificationOutput",
    "ClassificationRequestOutput",
    "ScoringOutput",
    "ScoringRequestOutput",
    "BeamSearchOutput",
    "BeamSearchSequence",
    "CompletionOutput",
    "FinishReason",
    "Logprob",
    "LogprobList",
    "PromptLogprobs",
    "RequestMetrics",
    "RequestOutput",
]


class Logprob(msgspec.Struct, frozen=True):
    """One token's natural log-probability at one position, before penalties and temperature."""

    logprob: float
    rank: int | None = None  # place in the vocabulary, 1 = most likely
    decoded_token: str | None = None


class LogprobList(Sequence[dict[int, Logprob]]):
    """Positions in order, each a dict: token id -> Logprob, the actual token first.

    An element is made when it is looked at. `raw` has the same without decoded tokens. Where
    `is_ranked` is false, the others are not the best ones and have no rank.
    """

    __slots__ = ("_decode", "_is_ranked", "raw")

    def __init__(
        self,
        raw: list[TokenLogprobs],
        decode: Callable[[int], str] | None,
        *,
        is_ranked: bool = True,
    ) -> None:
        self.raw = raw
        self._decode = decode
        self._is_ranked = is_ranked

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, index: int) -> dict[int, Logprob]: ...
    @overload
    def __getitem__(self, index: slice) -> LogprobList: ...
    def __getitem__(self, index: int | slice) -> dict[int, Logprob] | LogprobList:
        if isinstance(index, slice):
            return LogprobList(self.raw[index], self._decode, is_ranked=self._is_ranked)
        return by_token(self.raw[index], self._decode, is_ranked=self._is_ranked)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LogprobList):
            return self.raw == other.raw
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a pickle holds the decoded values, not the tokenizer


PromptLogprobs: TypeAlias = list[dict[int, Logprob] | None]


def by_token(
    entry: TokenLogprobs, decode: Callable[[int], str] | None, *, is_ranked: bool = True
) -> dict[int, Logprob]:
    """One position in the form that users read; only the best tokens have a rank of their own."""
    actual, *best = entry.token_ids
    text = decode(actual) if decode is not None else None
    found = {actual: Logprob(entry.logprobs[0], entry.rank, text)}
    for rank, token_id in enumerate(best, 1):
        if token_id != actual:
            text = decode(token_id) if decode is not None else None
            found[token_id] = Logprob(entry.logprobs[rank], rank if is_ranked else None, text)
    return found


@dataclass(slots=True)
class RequestMetrics:
    """Times of one request in seconds of the engine's clock, which counts from no fixed date."""

    arrival_s: float
    admitted_s: float | None = None  # when its first step began; None while it waits
    first_token_s: float | None = None
    last_token_s: float | None = None
    num_generation_tokens: int = 0  # over all choices
    num_preemptions: int = 0  # how often a choice yielded its place, and
    num_swaps: int = 0  # how often of these its blocks were kept instead of computed again


@dataclass(slots=True)
class CompletionOutput:
    """One choice. In a DELTA stream `text`, `token_ids` and `logprobs` hold only what is new."""

    index: int
    text: str
    token_ids: list[int]  # the token that ended the answer is included
    cumulative_logprob: float | None = None  # of the whole choice so far, if logprobs were asked
    logprobs: LogprobList | None = None  # parallel to `token_ids`
    finish_reason: FinishReason | None = None  # None while it runs
    stop_reason: int | str | None = None  # the stop token id or stop string; None for an end token

    def finished(self) -> bool:
        """Whether nothing follows."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """The state of one request."""

    request_id: str
    prompt: str | None  # None where token ids were given
    prompt_token_ids: list[int]
    prompt_logprobs: PromptLogprobs | None  # parallel to `prompt_token_ids`, the first is None
    outputs: list[CompletionOutput]  # by index; in a DELTA stream only choices with news
    finished: bool
    metrics: RequestMetrics | None = None  # if the engine was asked to keep them
    num_cached_tokens: int | None = (
        None  # prompt tokens taken from the prefix cache; None until known
    )
    abort_reason: str | None = None  # why the engine ended it early, where it did


@dataclass(slots=True)
class BeamSearchSequence:
    """One answer of a beam search."""

    tokens: list[int]  # prompt and answer; the end token only if it was asked for
    logprobs: LogprobList  # parallel to the generated tokens, an end token included
    cum_logprob: float = 0.0  # sum over the generated tokens
    text: str | None = None  # of all `tokens`, special ones included
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the end token


@dataclass(slots=True)
class BeamSearchOutput:
    """The answers to one prompt, the best first."""

    sequences: list[BeamSearchSequence]


@dataclass(slots=True)
class PoolingOutput:
    """Numbers that a model made of a prompt: one vector, or one for each of its tokens."""

    data: list[float] | list[list[float]]


@dataclass(slots=True)
class EmbeddingOutput:
    """One embedding."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """Numbers in it."""
        return len(self.embedding)


@dataclass(slots=True)
class ClassificationOutput:
    """What a classifier says of a prompt: a number for each label, in order."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        """Labels that it knows."""
        return len(self.probs)


@dataclass(slots=True)
class ScoringOutput:
    """How well two texts belong together."""

    score: float


O_co = TypeVar("O_co", covariant=True)


@dataclass(slots=True)
class PooledRequestOutput(Generic[O_co]):
    """What came of one prompt, or of one pair of texts."""

    request_id: str
    outputs: O_co
    prompt_token_ids: list[int]
    finished: bool
    num_cached_tokens: int | None = None
    metrics: RequestMetrics | None = None  # if the engine was asked to keep them


class PoolingRequestOutput(PooledRequestOutput[PoolingOutput]):
    """Of `encode`."""


class EmbeddingRequestOutput(PooledRequestOutput[EmbeddingOutput]):
    """Of `embed`."""


class ClassificationRequestOutput(PooledRequestOutput[ClassificationOutput]):
    """Of `classify`."""


class ScoringRequestOutput(PooledRequestOutput[ScoringOutput]):
    """Of `score`."""
