"""Intake: prompts and parameters become requests, or errors that name the field and the limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.contracts.step import SamplingSpec
from octavo.engine.intake import Intake
from octavo.errors import InvalidRequestError, PromptTooLongError
from octavo.foundation.clock import ManualClock
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.scripted_engine import scripted_engine
from tests.support.tiny_tokenizer import END, START, TURN, tiny_id, tiny_tokenizer

VOCAB = tiny_tokenizer().vocab_size
IDS = [10, 20, 30]


def make_intake(**options: Any) -> Intake:
    """The intake of a scripted engine: context 256, pool of 1024 tokens."""
    return scripted_engine(**options).intake


def requests_for(
    params: SamplingParams | None = None,
    *,
    prompt: Any = IDS,
    priority: int = 0,
    terms: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[EngineRequest]:
    """What a prompt becomes."""
    intake = make_intake(**options)
    return intake.requests(
        "r", intake.encode(prompt), params or SamplingParams(), priority=priority, **(terms or {})
    )


def spec_of(params: SamplingParams) -> SamplingSpec:
    """What the sampler is told."""
    return requests_for(params)[0].sampling


# ---- prompts


def test_a_text_is_tokenised_and_kept() -> None:
    """The output can show the prompt as the user wrote it."""
    prompt = make_intake().encode("One two")

    assert prompt.token_ids == tiny_tokenizer().encode("One two")
    assert prompt.text == "One two"


@pytest.mark.parametrize("prompt", [IDS, tuple(IDS), range(10, 31, 10), {"prompt_token_ids": IDS}])
def test_token_ids_are_taken_in_any_sequence(prompt: Any) -> None:
    """Lists, tuples, ranges and the dict form are the same; there is no text to show."""
    encoded = make_intake().encode(prompt)

    assert encoded.token_ids == IDS
    assert encoded.text is None


def test_a_dict_may_hold_text_ids_and_salt() -> None:
    """With ids the text is only shown."""
    encoded = make_intake().encode({"prompt": "shown", "prompt_token_ids": IDS, "cache_salt": "s"})

    assert (encoded.text, encoded.token_ids, encoded.cache_salt) == ("shown", IDS, "s")
    assert requests_for(prompt={"prompt": "One", "cache_salt": "s"})[0].cache_salt == "s"


@pytest.mark.parametrize(
    "prompt",
    [5, None, True, b"bytes", {}, {"prompt": 5}, {"prompt_token_ids": "abc"}, {"prompt": None}],
)
def test_a_prompt_of_another_form_is_refused(prompt: Any) -> None:
    """The message says which forms there are."""
    with pytest.raises(InvalidRequestError, match="must be") as caught:
        make_intake().encode(prompt)

    assert caught.value.param in ("prompt", "prompt_token_ids")


def test_media_in_a_prompt_is_refused_by_name() -> None:
    """A field that would be ignored is an error."""
    prompt: Any = {"prompt": "x", "multi_modal_data": {}}
    with pytest.raises(InvalidRequestError, match="'multi_modal_data' is not supported"):
        make_intake().encode(prompt)


@pytest.mark.parametrize("salt", ["", 5, ["a"]])
def test_a_salt_is_a_text_with_something_in_it(salt: Any) -> None:
    """An empty salt would silently mean none."""
    with pytest.raises(InvalidRequestError, match="cache_salt must be") as caught:
        make_intake().encode({"prompt": "x", "cache_salt": salt})

    assert caught.value.param == "cache_salt"


@pytest.mark.parametrize("prompt", ["", [], {"prompt": ""}, {"prompt_token_ids": []}])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    """There is no token to start from."""
    with pytest.raises(InvalidRequestError, match="prompt must not be empty"):
        make_intake().encode(prompt)


def test_an_empty_text_is_served_where_the_model_begins_with_a_token() -> None:
    """BOS alone is a prompt."""
    intake = make_intake(tokenizer=tiny_tokenizer(adds_bos=True))

    assert intake.encode("").token_ids == [tiny_id(START)]


@pytest.mark.parametrize("wrong", [VOCAB, -1, 10**30])
def test_an_id_outside_the_vocabulary_is_refused_with_both_numbers(wrong: int) -> None:
    """The first wrong id and the size of the vocabulary are in the message."""
    with pytest.raises(InvalidRequestError, match=rf"id {wrong} is out of .* {VOCAB} tokens"):
        make_intake().encode([1, wrong, 2])


@pytest.mark.parametrize("wrong", ["a", 1.5, True, None, [1]])
def test_an_id_that_is_no_whole_number_is_refused(wrong: Any) -> None:
    """Also a boolean, which Python takes for a number."""
    with pytest.raises(InvalidRequestError, match="a token id must be a whole number"):
        make_intake().encode([1, wrong])


def test_ids_of_another_library_are_ids() -> None:
    """A list of numpy integers works."""
    numpy = pytest.importorskip("numpy")

    assert make_intake().encode(list(numpy.array(IDS))).token_ids == IDS


def test_half_a_surrogate_pair_is_refused() -> None:
    """Such a text cannot be encoded; the place is in the message."""
    with pytest.raises(InvalidRequestError, match="surrogate"):
        make_intake().encode("ab\ud83d")


# ---- lengths


def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers() -> None:
    """The message begins with the limit, then the length, then what to do."""
    intake = make_intake(max_model_len=20)
    assert len(intake.encode([7] * 19).token_ids) == 19

    with pytest.raises(PromptTooLongError) as caught:
        intake.encode([7] * 20)

    message = caught.value.message
    assert message.startswith(
        "This model's maximum context length is 20 tokens, but the prompt has 20"
    )
    assert "larger max_model_len" in message
    assert caught.value.param == "prompt"


def test_a_hopelessly_long_text_is_refused_before_it_is_tokenised() -> None:
    """No known token has more than 256 characters."""
    intake = make_intake(max_model_len=20)

    with pytest.raises(PromptTooLongError, match=r"context length is 20 .* 5121 characters"):
        intake.encode("x" * 5121)
    with pytest.raises(PromptTooLongError, match="but the prompt has 5120 and"):
        intake.encode("x" * 5120)


def test_an_answer_beyond_the_context_is_refused_with_the_largest_that_fits() -> None:
    """Nothing is cut silently."""
    with pytest.raises(PromptTooLongError) as caught:
        requests_for(SamplingParams(max_tokens=18), max_model_len=20)

    assert "maximum context length is 20 tokens" in caught.value.message
    assert "the prompt has 3 and max_tokens asks for 18 more" in caught.value.message
    assert "at most 17" in caught.value.message
    assert caught.value.param == "max_tokens"
    assert requests_for(SamplingParams(max_tokens=17), max_model_len=20)[0].max_tokens == 17


def test_no_max_tokens_means_the_rest_of_the_context() -> None:
    """Prompt and answer fill it exactly."""
    assert requests_for(SamplingParams(max_tokens=None), max_model_len=20)[0].max_tokens == 17


def test_a_request_that_the_pool_can_never_hold_is_refused_at_once() -> None:
    """It would wait for ever. 5 blocks of 4 tokens hold 20; the last token needs no place."""
    with pytest.raises(PromptTooLongError, match=r"20 tokens \(5 blocks of 4\)"):
        requests_for(SamplingParams(max_tokens=19), num_blocks=5)

    assert requests_for(SamplingParams(max_tokens=18), num_blocks=5)[0].max_tokens == 18
    assert requests_for(SamplingParams(max_tokens=None), num_blocks=5)[0].max_tokens == 18
    with pytest.raises(PromptTooLongError, match="the prompt has 21 tokens"):
        requests_for(SamplingParams(max_tokens=None), num_blocks=5, prompt=[7] * 21)


def test_without_chunks_a_prompt_must_fit_one_step() -> None:
    """Otherwise it could never be computed."""
    scheduler = {"max_num_batched_tokens": 8, "enable_chunked_prefill": False}

    with pytest.raises(PromptTooLongError, match="at most 8"):
        requests_for(prompt=[7] * 9, scheduler=scheduler)


# ---- parameters against the model


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(stop_token_ids=[VOCAB]),
        SamplingParams(allowed_token_ids=[1, VOCAB]),
        SamplingParams(logit_bias={VOCAB: 1.0}),
    ],
)
def test_ids_in_parameters_are_checked_against_the_vocabulary(params: SamplingParams) -> None:
    """An id that does not exist is refused by the field's name."""
    with pytest.raises(InvalidRequestError, match=f"{VOCAB} is out of vocabulary") as caught:
        requests_for(params)

    assert caught.value.param in ("stop_token_ids", "allowed_token_ids", "logit_bias")


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
def test_logprobs_are_capped_by_the_engine(name: str) -> None:
    """-1 asks for the whole vocabulary and needs an engine without a cap."""
    for value in (21, -1, 10**30):
        with pytest.raises(InvalidRequestError, match=f"{name} may be at most 20") as caught:
            requests_for(SamplingParams.from_optional({name: value}))
        assert caught.value.param == name

    for value, expected in ((0, 0), (20, 20)):
        spec = spec_of(SamplingParams.from_optional({name: value}))
        assert getattr(spec, f"num_{name}") == expected
    unlimited = requests_for(SamplingParams.from_optional({name: -1}), model={"max_logprobs": -1})
    assert getattr(unlimited[0].sampling, f"num_{name}") == VOCAB


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_token_ids": [9], "stop_token_ids": [9], "min_tokens": 2},
        {"allowed_token_ids": [5], "min_tokens": 3},
        {"allowed_token_ids": [5], "min_tokens": 3, "ignore_eos": True},
    ],
)
def test_an_allow_list_that_leaves_no_token_is_refused(fields: dict[str, Any]) -> None:
    """Stop tokens wait for min_tokens, so an answer of nothing else cannot begin."""
    with pytest.raises(InvalidRequestError, match="allowed_token_ids leaves no token"):
        requests_for(SamplingParams(max_tokens=4, **fields), facts=facts_with_end(5))


def test_a_field_that_was_spoiled_later_is_found() -> None:
    """Parameters are checked again when they are used."""
    params = SamplingParams()
    params.top_p = 7.0

    with pytest.raises(InvalidRequestError, match="top_p must be"):
        requests_for(params)


@pytest.mark.parametrize("priority", ["1", 1.0, True, None, 2**63])
def test_a_priority_is_a_whole_number_of_64_bits(priority: Any) -> None:
    """What the scheduler compares must be comparable."""
    with pytest.raises(InvalidRequestError, match="priority must be"):
        requests_for(priority=priority)


def test_a_priority_that_would_be_ignored_is_refused() -> None:
    """Under first come, first served only 0 is honest; the message has the flag to change that."""
    with pytest.raises(InvalidRequestError, match="--scheduling-policy priority") as caught:
        requests_for(priority=1)

    assert caught.value.param == "priority"


def test_priority_and_time_of_arrival_are_noted() -> None:
    """The scheduler orders by them."""
    clock, scheduler = ManualClock(5.0), {"scheduling_policy": "priority"}

    (request,) = requests_for(priority=-3, clock=clock, scheduler=scheduler)

    assert (request.priority, request.arrival_s) == (-3, 5.0)


# ---- what the sampler is told


def test_greedy_turns_all_filters_off() -> None:
    """Below 1e-5 the best token is taken, whatever top_p and its like say."""
    spec = spec_of(SamplingParams(temperature=1e-6, top_p=0.5, top_k=3, min_p=0.1, seed=1))

    assert spec == SamplingSpec(seed=1)


def test_small_temperatures_are_raised() -> None:
    """Smaller ones would overflow the softmax."""
    assert spec_of(SamplingParams(temperature=0.001)).temperature == 0.01
    assert spec_of(SamplingParams(temperature=0.02)).temperature == 0.02


@pytest.mark.parametrize("top_k", [-1, 0, VOCAB, 10**30])
def test_a_top_k_that_excludes_nothing_is_off(top_k: int) -> None:
    """-1, 0 and anything from the vocabulary's size up."""
    assert spec_of(SamplingParams(top_k=top_k)).top_k == 0
    assert spec_of(SamplingParams(top_k=3)).top_k == 3


def test_every_parameter_reaches_the_sampler() -> None:
    """Names and values as given."""
    params = SamplingParams(
        temperature=0.5,
        top_p=0.9,
        min_p=0.1,
        seed=4,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
        logit_bias={3: 1.5, 4: -2.0},
        allowed_token_ids=[1, 3, 4],
    )

    assert spec_of(params) == SamplingSpec(
        temperature=0.5,
        top_p=0.9,
        min_p=0.1,
        seed=4,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
        bias_token_ids=[3, 4],
        bias_values=[1.5, -2.0],
        allowed_token_ids=[1, 3, 4],
    )


def test_bad_words_are_banned_at_the_start_and_after_a_space() -> None:
    """Both spellings of a word are token sequences of their own."""
    tokenizer = tiny_tokenizer()
    spec = spec_of(SamplingParams(bad_words=["two", " the"]))

    expected = [
        tokenizer.encode(text, add_special_tokens=False) for text in ("two", " two", " the")
    ]
    assert spec.bad_words == expected


def facts_with_end(*ids: int) -> Mapping[str, Any]:
    return {"eos_token_ids": ids}


def test_the_end_tokens_of_model_and_tokenizer_are_joined() -> None:
    """An answer ends with any of them, each once."""
    (request,) = requests_for(facts=facts_with_end(9, tiny_id(TURN), 9))

    assert request.eos_token_ids == [9, tiny_id(TURN), tiny_id(END)]
    assert request.stop_token_ids == []


def test_ignore_eos_leaves_the_users_own_stop_tokens() -> None:
    """Only the model's end tokens lose their meaning."""
    (request,) = requests_for(SamplingParams(ignore_eos=True, stop_token_ids=[5]))

    assert request.eos_token_ids == []
    assert request.stop_token_ids == [5]


def test_min_tokens_masks_every_token_that_could_end_the_answer() -> None:
    """The end tokens and the user's stop tokens; without min_tokens nothing is masked."""
    params = SamplingParams(min_tokens=3, stop_token_ids=[5, 9])
    (request,) = requests_for(params, facts=facts_with_end(9))

    assert request.sampling.min_tokens == 3
    assert request.sampling.stop_token_ids == [9, tiny_id(END), 5]
    assert spec_of(SamplingParams(stop_token_ids=[5])).stop_token_ids == []


# ---- seeds and choices


def test_a_seed_is_passed_on() -> None:
    """Negative ones wrap into 64 bits."""
    assert spec_of(SamplingParams(seed=7)).seed == 7
    assert spec_of(SamplingParams(seed=-2)).seed == 2**64 - 2


def test_without_a_seed_the_engine_draws_one_for_each_request() -> None:
    """Repeats differ; an engine that is started anew repeats the whole sequence."""

    def draw(seed: int) -> list[int]:
        intake = make_intake(model={"seed": seed})
        prompt = intake.encode(IDS)
        return [intake.requests("r", prompt, SamplingParams())[0].sampling.seed for _ in range(3)]

    first = draw(0)
    assert len(set(first)) == 3
    assert draw(0) == first
    assert set(draw(1)).isdisjoint(first)


def test_choices_share_the_prompt_and_differ_in_seed() -> None:
    """The i-th choice is a request of its own, seeded with `seed + i`."""
    requests = requests_for(SamplingParams(n=3, seed=2**64 - 2))

    assert [request.request_id for request in requests] == ["r/0", "r/1", "r/2"]
    assert [request.sampling.seed for request in requests] == [2**64 - 2, 2**64 - 1, 0]
    assert all(request.prompt_token_ids == IDS for request in requests)


def test_prompt_logprobs_are_computed_once_and_past_the_prefix_cache() -> None:
    """Every position must be computed for the first choice; the others may use its blocks."""
    requests = requests_for(SamplingParams(n=2, prompt_logprobs=1))

    assert [request.skip_prefix_cache for request in requests] == [True, False]
    assert [request.sampling.num_prompt_logprobs for request in requests] == [1, -1]


def test_choices_after_the_first_are_forks_of_it() -> None:
    """So that the prompt is computed once; a single answer is no fork and keeps its name."""
    requests = requests_for(SamplingParams(n=3))

    assert [request.fork_of for request in requests] == [None, "r/0", "r/0"]
    (alone,) = requests_for(SamplingParams(n=1))
    assert (alone.request_id, alone.fork_of) == ("r", None)


# ---- deadlines and tenants


def test_a_timeout_counts_from_the_arrival() -> None:
    """All choices share it; without one there is no deadline."""
    clock = ManualClock(5.0)

    requests = requests_for(SamplingParams(n=2), terms={"timeout": 2}, clock=clock)

    assert [(request.arrival_s, request.deadline_s) for request in requests] == [(5.0, 7.0)] * 2
    assert requests_for()[0].deadline_s is None


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e10, True, "2", [2]])
def test_a_timeout_that_is_no_time_is_refused(timeout: Any) -> None:
    """The message names the field and what it may be."""
    with pytest.raises(InvalidRequestError, match="timeout must be a number of seconds") as caught:
        requests_for(terms={"timeout": timeout})

    assert caught.value.param == "timeout"


def test_the_tenant_is_passed_on() -> None:
    """To every choice; nobody is the tenant without a name."""
    requests = requests_for(SamplingParams(n=2), terms={"tenant": "ann"})

    assert [request.tenant for request in requests] == ["ann", "ann"]
    assert requests_for()[0].tenant == ""


# ---- beam search

GREEDY = SamplingParams(
    temperature=0, max_tokens=5, output_kind=RequestOutputKind.FINAL_ONLY, logprobs=2
)
TRIO = BeamSpec(beam_width=3, num_returned=3)


def test_a_beam_search_is_one_request() -> None:
    """Greedy, with the logprobs that were asked for."""
    (request,) = requests_for(GREEDY, terms={"beam": TRIO})

    assert request.beam == TRIO
    assert (request.max_tokens, request.fork_of) == (5, None)
    assert (request.sampling.temperature, request.sampling.num_logprobs) == (0.0, 2)


def test_a_beam_search_that_cannot_be_is_refused() -> None:
    """By what it is combined with, and by what it would need."""
    with pytest.raises(InvalidRequestError, match="with beam search top_k has no meaning"):
        requests_for(GREEDY.replace(top_k=5), terms={"beam": TRIO})
    with pytest.raises(InvalidRequestError, match="beam_width must be at most 2"):
        requests_for(GREEDY, terms={"beam": TRIO}, scheduler={"max_num_seqs": 2})
    with pytest.raises(PromptTooLongError, match="3 beams of 3 prompt tokens and up to 100 new"):
        requests_for(GREEDY.replace(max_tokens=100), terms={"beam": TRIO}, num_blocks=30)


def test_without_a_limit_beams_may_fill_the_pool_together() -> None:
    """30 blocks of 4: 10 for each beam, so 40 computed tokens of which 3 are the prompt."""
    (request,) = requests_for(GREEDY.replace(max_tokens=None), terms={"beam": TRIO}, num_blocks=30)

    assert request.max_tokens == 38
