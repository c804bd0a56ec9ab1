"""The driver: arrivals, latencies, families of sequences."""

from __future__ import annotations

import pytest

from benchmarks.drive import Drive, FinalLengths, Outcome, VirtualPacer, prompt_tokens, sequences
from octavo.contracts.delta import TokenDelta
from octavo.contracts.request import EngineRequest
from tests.benchmarks.support import entry, serve


def test_latencies_are_counted_from_the_arrival() -> None:
    """One second a step, six tokens; the second request comes while a step runs."""
    outcome, _ = serve("paged", [entry(0.0), entry(2.5)])

    assert [6.0, 9 - 2.5] == list(outcome.latency_s)
    assert [1.0, 4 - 2.5] == list(outcome.first_token_s)
    assert (6.0 / 6 + 6.5 / 6) / 2 == outcome.normalised_latency_s


def test_an_idle_engine_waits_for_the_next_arrival() -> None:
    """Virtual time jumps."""
    outcome, _ = serve("paged", [entry(100.0)])

    assert 106.0 == outcome.end_s
    assert [6.0] == list(outcome.latency_s)


def test_a_family_ends_with_its_last_sequence() -> None:
    """And counts as one request of the trace."""
    outcome, _ = serve("orca-oracle", [entry(0.0, n=3)])

    assert 1 == len(outcome.latency_s)
    assert 18 == outcome.num_tokens_out


def test_systems_that_cannot_share_get_sequences_of_their_own() -> None:
    """The others get forks, and one beam search instead of as many requests as beams."""
    alone = sequences(4, entry(n=3), vocab_size=1000, knows_sharing=False)
    family = sequences(4, entry(n=3), vocab_size=1000, knows_sharing=True)
    beams = sequences(4, entry(beam_width=3), vocab_size=1000, knows_sharing=True)

    assert [None, None, None] == [request.fork_of for request in alone]
    assert [None, "4", "4"] == [request.fork_of for request in family]
    assert 3 == len({request.request_id for request in family})
    assert 3 == len({request.sampling.seed for request in family})
    assert [3] == [request.beam.beam_width for request in beams if request.beam]
    assert 3 == len(sequences(4, entry(beam_width=3), vocab_size=1000, knows_sharing=False))


@pytest.mark.parametrize("vocab_size", [70, 49152, 1 << 30])
def test_prompts_share_their_prefix_and_nothing_else(vocab_size: int) -> None:
    """Of any length, within the vocabulary."""
    first, second = (
        prompt_tokens(number, entry(prompt_len=30, prefix_len=12), vocab_size) for number in (3, 4)
    )

    assert first[:12] == second[:12]
    assert first[12] != second[12]
    assert 30 == len(first)
    assert all(0 <= token < vocab_size for token in first)
    assert prompt_tokens(3, entry(), vocab_size)[0] != prompt_tokens(4, entry(), vocab_size)[0]


class FailingCore:
    """Ends its request with an error."""

    def __init__(self) -> None:
        self._live: list[str] = []

    def add_request(self, request: EngineRequest) -> None:
        self._live.append(request.request_id)

    def has_work(self) -> bool:
        return bool(self._live)

    def step(self) -> list[TokenDelta]:
        return [TokenDelta(self._live.pop(), [], finish_reason="error", error="no luck")]


def test_a_request_that_fails_is_no_result() -> None:
    """A latency of an answer that was never given would be a lie."""
    drive = Drive(
        FailingCore(),
        VirtualPacer(),
        lambda number, asked: sequences(number, asked, vocab_size=100, knows_sharing=True),
        FinalLengths(),
    )

    with pytest.raises(RuntimeError, match="no luck"):
        drive.run([entry()])


def test_an_outcome_of_nothing_has_a_summary() -> None:
    """Zeros, not an error."""
    assert 0 == Outcome().summary()["normalised_latency_s"]
