"""Beam ranking: which continuations of a beam search live, which have ended, and when it is over.

Owns: the arithmetic of beam search. Does not know: rows, blocks, plans.

Semantics are those of Hugging Face transformers (`GenerationMixin._beam_search`, version 5), so
that both return the same sequences. With width w, e ids that end a sequence, and g generated
tokens:

    candidates   the max(2, 1 + e) * w continuations of all beams with the best sums of
                 log-probabilities
    ended        of the best w candidates those with an ending id, or all of them when
                 g = max_tokens; their score is sum / g ** length_penalty; the w best are kept
    beams        the w best candidates that have not ended
    over         when no candidate can go on; with early_stopping True when w have ended; otherwise
                 when w have ended and the best beam cannot beat the worst of them: its sum is
                 divided by the length reached or, if `never` and the penalty is above 0, by the
                 longest length
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from octavo.contracts.delta import BeamSequence, FinishReason
from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.contracts.step import TokenLogprobs


class Continuation(NamedTuple):
    """A beam and one more token."""

    parent: int  # index of the beam that it continues
    token_id: int
    logprob: float
    rank: int  # of the token among all at this position, 1 is the best
    total: float  # sum of the log-probabilities of all generated tokens


class Beam(NamedTuple):
    """The generated part of a sequence that is still alive."""

    token_ids: tuple[int, ...] = ()
    total: float = 0.0  # sum of log-probabilities
    logprobs: tuple[TokenLogprobs, ...] = ()  # parallel to `token_ids` if the request wants them


def num_candidates(source: EngineRequest) -> int:
    """Best log-probabilities that each beam's row must bring, so that w of them go on."""
    spec = source.beam
    assert spec is not None
    num_ending = len({*source.eos_token_ids, *source.stop_token_ids})
    return spec.beam_width * max(2, 1 + num_ending)


class BeamRanking:
    """The state of one search between two steps: the beams, best first, and what has ended."""

    def __init__(self, source: EngineRequest, max_tokens: int) -> None:
        """`max_tokens` is the most that a beam may generate, the context's end considered."""
        assert source.beam is not None, f"{source.request_id} is not a beam search"
        self.spec: BeamSpec = source.beam
        self._max_tokens = max_tokens
        self._eos_token_ids = frozenset(source.eos_token_ids)
        self._stop_token_ids = frozenset(source.stop_token_ids)
        self._num_logprobs = source.sampling.num_logprobs
        self._num_kept = num_candidates(source)
        self.restart()

    def restart(self) -> None:
        """Begin again: one beam without tokens."""
        self.beams = [Beam()]
        self.is_over = False
        self._ended: list[BeamSequence] = []  # best first, at most `beam_width`

    def advance(self, entries: Sequence[TokenLogprobs]) -> list[Continuation]:
        """Take in the best next tokens of each beam; returns the continuations that live on.

        `entries` are parallel to `beams`, each with the sampled token first and then the best ones.
        The continuations are parallel to the new `beams`. Empty when the search is over.
        """
        length = len(self.beams[0].token_ids) + 1
        candidates = self._candidates(entries)
        width = self.spec.beam_width
        for place, one in enumerate(candidates):
            if place < width and self._ends(one, length):
                self._keep(self._sequence_of(one, entries[one.parent], length))
        going_on = [one for one in candidates if not self._ends(one, length)][:width]
        self.is_over = not going_on or self._cannot_improve(going_on[0].total, length)
        if self.is_over:
            return []
        self.beams = [self._beam_of(one, entries[one.parent]) for one in going_on]
        return going_on

    def results(self) -> list[BeamSequence]:
        """The best sequences that have ended, best first."""
        return self._ended[: self.spec.num_returned]

    def _candidates(self, entries: Sequence[TokenLogprobs]) -> list[Continuation]:
        """The best continuations of all beams together, best first."""
        found = [
            Continuation(parent, token_id, logprob, rank, beam.total + logprob)
            for parent, (beam, entry) in enumerate(zip(self.beams, entries, strict=True))
            for rank, (token_id, logprob) in enumerate(
                zip(entry.token_ids[1:], entry.logprobs[1:], strict=True), 1
            )
        ]
        found.sort(key=lambda one: -one.total)
        return found[: self._num_kept]

    def _ends(self, one: Continuation, length: int) -> bool:
        return (
            length >= self._max_tokens
            or one.token_id in self._eos_token_ids
            or one.token_id in self._stop_token_ids
        )

    def _cannot_improve(self, best_total: float, length: int) -> bool:
        """Whether what has ended stands, by the rule of `early_stopping`."""
        spec = self.spec
        if len(self._ended) < spec.beam_width:
            return False
        if spec.early_stopping is True:
            return True
        is_hopeful = spec.early_stopping == "never" and spec.length_penalty > 0.0
        longest = self._max_tokens if is_hopeful else length
        best_score = best_total / float(longest) ** spec.length_penalty
        return bool(best_score <= self._ended[-1].score)

    def _keep(self, sequence: BeamSequence) -> None:
        """Add an ended sequence; of two equal scores the older one stands first."""
        place = sum(1 for one in self._ended if one.score >= sequence.score)
        self._ended.insert(place, sequence)
        del self._ended[self.spec.beam_width :]

    def _beam_of(self, one: Continuation, entry: TokenLogprobs) -> Beam:
        parent = self.beams[one.parent]
        logprobs = parent.logprobs
        if self._num_logprobs >= 0:
            logprobs = (*logprobs, self._logprobs_of(one, entry))
        return Beam((*parent.token_ids, one.token_id), one.total, logprobs)

    def _sequence_of(self, one: Continuation, entry: TokenLogprobs, length: int) -> BeamSequence:
        beam = self._beam_of(one, entry)
        reason, stop_reason = self._finish_of(one.token_id)
        return BeamSequence(
            token_ids=list(beam.token_ids),
            cumulative_logprob=one.total,
            score=one.total / float(length) ** self.spec.length_penalty,
            finish_reason=reason,
            stop_reason=stop_reason,
            logprobs=list(beam.logprobs) if self._num_logprobs >= 0 else None,
        )

    def _finish_of(self, token_id: int) -> tuple[FinishReason, int | None]:
        """The same order of tests as in `stop.finish_of`."""
        if token_id in self._eos_token_ids:
            return "stop", None
        if token_id in self._stop_token_ids:
            return "stop", token_id
        return "length", None

    def _logprobs_of(self, one: Continuation, entry: TokenLogprobs) -> TokenLogprobs:
        """The chosen token first, then as many of the best as the request asked for."""
        end = 1 + self._num_logprobs
        return TokenLogprobs(
            token_ids=[one.token_id, *entry.token_ids[1:end]],
            logprobs=[one.logprob, *entry.logprobs[1:end]],
            rank=one.rank,
        )
