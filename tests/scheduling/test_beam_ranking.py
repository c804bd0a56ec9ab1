"""Beam ranking returns what transformers returns, for every rule of stopping."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.contracts.step import SamplingSpec, TokenLogprobs
from octavo.scheduling.beam_ranking import BeamRanking, num_candidates

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PROMPT = [1, 7, 3]


def make_model(seed: int) -> Any:
    """A tiny random Llama; large logits, so that ranks are far apart."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.6,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [make_model(seed) for seed in range(1)]


def make_source(
    spec: BeamSpec, eos: list[int], stop: list[int], num_logprobs: int = -1
) -> EngineRequest:
    return EngineRequest(
        request_id="a",
        prompt_token_ids=PROMPT,
        sampling=SamplingSpec(num_logprobs=num_logprobs),
        max_tokens=6,
        eos_token_ids=eos,
        stop_token_ids=stop,
        beam=spec,
    )


def search(model: Any, source: EngineRequest) -> BeamRanking:
    """Drive the ranking with the model's log-probabilities."""
    ranking = BeamRanking(source, source.max_tokens)
    while not ranking.is_over:
        sequences = torch.tensor([[*PROMPT, *beam.token_ids] for beam in ranking.beams])
        with torch.no_grad():
            logprobs = model(sequences).logits[:, -1].float().log_softmax(-1)
        best = logprobs.topk(min(num_candidates(source), 40))
        ranking.advance(
            [
                TokenLogprobs([ids[0], *ids], [values[0], *values], 1)
                for values, ids in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            ]
        )
    return ranking


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize("ends", [([], []), ([5], []), ([5, 11], [17])])
@pytest.mark.parametrize("width", [3])
def test_sequences_and_scores_are_those_of_transformers(
    models: list[Any],
    width: int,
    ends: tuple[list[int], list[int]],
    length_penalty: float,
    early_stopping: Any,
):
    spec = BeamSpec(
        beam_width=width,
        num_returned=width,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
    )
    for model in models:
        ranking = search(model, make_source(spec, *ends))
        expected = model.generate(
            torch.tensor([PROMPT]),
            attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=6,
            do_sample=False,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            eos_token_id=[*ends[0], *ends[1]] or None,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        results = ranking.results()
        assert len(results) == width
        for place, result in enumerate(results):
            tokens = expected.sequences[place, len(PROMPT) :].tolist()
            length = len(result.token_ids)
            assert tokens[:length] == result.token_ids
            assert not any(tokens[length:])
            score = expected.sequences_scores[place].item()
            assert result.score == pytest.approx(score, abs=1e-4)


def entry(*best: tuple[int, float]) -> TokenLogprobs:
    """The best tokens of one beam."""
    ids, values = [one[0] for one in best], [one[1] for one in best]
    return TokenLogprobs([ids[0], *ids], [values[0], *values], 1)


def make_ranking(width: int = 2, num_returned: int = 2, num_logprobs: int = -1) -> BeamRanking:
    spec = BeamSpec(beam_width=width, num_returned=num_returned)
    return BeamRanking(make_source(spec, [5], [6], num_logprobs), max_tokens=2)


def test_continuations_name_the_beams_that_they_continue():
    ranking = make_ranking()
    ranking.advance([entry((1, -0.1), (2, -0.2), (3, -3.0), (4, -4.0))])
    assert [beam.token_ids for beam in ranking.beams] == [(1,), (2,)]
    assert ranking.beams[1].total == pytest.approx(-0.2)


def test_results_say_why_they_ended():
    ranking = make_ranking(width=3, num_returned=3)
    ranking.advance([entry((6, -0.1), (1, -0.2), (2, -0.3), (3, -0.4))])
    ranking.advance([entry((5, -0.1), (1, -9.0)), entry((1, -0.1)), entry((1, -9.0))])
    results = ranking.results()
    assert [(one.finish_reason, one.stop_reason) for one in results] == [
        ("stop", 6),
        ("stop", None),
        ("length", None),
    ]
    assert results[1].token_ids == [1, 5]
    assert results[1].cumulative_logprob == pytest.approx(-0.3)
    assert results[1].score == pytest.approx(-0.15)


def test_fewer_sequences_than_beams_may_be_returned():
    ranking = make_ranking(width=3, num_returned=1)
    ranking.advance([entry((1, -0.1), (2, -0.2), (3, -0.3))])
    ranking.advance([entry((1, -0.1))] * 3)
    assert [one.token_ids for one in ranking.results()] == [[1, 1]]


def test_logprobs_are_kept_as_asked_the_chosen_token_first():
    ranking = make_ranking(num_logprobs=1)
    ranking.advance([entry((1, -0.1), (2, -0.2), (3, -0.3), (4, -0.4))])
    ranking.advance([entry((1, -5.0), (2, -6.0)), entry((7, -0.1), (8, -0.2))])
    best = ranking.results()[0]
    assert best.token_ids == [2, 7]
    assert best.logprobs is not None
    assert [one.token_ids for one in best.logprobs] == [[2, 1], [7, 7]]
    assert [one.rank for one in best.logprobs] == [2, 1]


def test_without_a_wish_for_logprobs_there_are_none():
    ranking = make_ranking()
    ranking.advance([entry((5, -0.1), (6, -0.2))])
    assert ranking.results()[0].logprobs is None
