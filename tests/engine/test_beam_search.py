"""Beam search at the front: what it refuses, and the form of its results."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.contracts.delta import BeamSequence
from octavo.contracts.kv_plan import KVGroup, KVPlan
from octavo.contracts.request import BeamSpec
from octavo.engine.beam_search import (
    NOT_WITH_BEAMS,
    beam_search_output,
    beam_spec,
    check_beams_fit,
    check_combination,
    most_tokens_of_beams,
    num_blocks_of_beams,
    text_params,
)
from octavo.errors import InvalidRequestError, PromptTooLongError
from octavo.outputs import BeamSearchOutput
from octavo.sampling_params import (
    BeamSearchParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)
from tests.support.output_rig import OutputRig, logprobs_for
from tests.support.tiny_tokenizer import END, tiny_id, tiny_tokenizer

TOKENS = tiny_tokenizer()
GREEDY = SamplingParams(temperature=0, output_kind=RequestOutputKind.FINAL_ONLY)
PAIR = BeamSpec(beam_width=2, num_returned=2)
POOL = KVPlan(num_blocks=10, block_size=4, bytes_per_block=1)
OTHER_VALUES: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.1,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "seed": 7,
    "stop": ["x"],
    "min_tokens": 2,
    "prompt_logprobs": 1,
    "logprob_token_ids": [3],
    "logit_bias": {5: 1.0},
    "allowed_token_ids": [5],
    "bad_words": ["x"],
    "structured_outputs": StructuredOutputsParams(regex="x"),
    "extra_args": {"x": 1},
}


# ---- what it may be combined with


@pytest.mark.parametrize("name", NOT_WITH_BEAMS)
def test_a_field_that_a_search_cannot_have_is_refused_by_name(name: str) -> None:
    """Never ignored; its neutral value passes."""
    check_combination(GREEDY, PAIR)

    with pytest.raises(InvalidRequestError, match=f"with beam search {name} has no mean") as caught:
        check_combination(GREEDY.replace(**{name: OTHER_VALUES[name]}), PAIR)

    assert caught.value.param == name


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"temperature": 0.7}, "temperature"),
        ({"temperature": 1.0, "n": 2}, "temperature"),
        ({"output_kind": RequestOutputKind.DELTA}, "output_kind"),
        ({"stop_token_ids": list(range(17))}, "stop_token_ids"),
    ],
)
def test_a_search_draws_and_streams_nothing_and_has_few_ends(
    changes: dict[str, Any], param: str
) -> None:
    """The message names the field."""
    with pytest.raises(InvalidRequestError) as caught:
        check_combination(GREEDY.replace(**changes), PAIR)

    assert caught.value.param == param


def test_ends_lengths_and_logprobs_can_be_asked_for() -> None:
    """They do not change which tokens are compared."""
    check_combination(
        GREEDY.replace(
            max_tokens=5, ignore_eos=True, stop_token_ids=[3], logprobs=2, detokenize=False
        ),
        PAIR,
    )


# ---- what fits


def test_beams_share_the_full_blocks_of_the_prompt_and_nothing_else() -> None:
    """9 prompt tokens and 4 computed new ones: 2 shared blocks, and 2 for each beam."""
    assert num_blocks_of_beams(POOL, 1, 9, 5) == 4
    assert num_blocks_of_beams(POOL, 3, 9, 5) == 2 + 3 * 2


def test_what_a_window_shows_of_the_prompt_is_shared_too() -> None:
    """Until it has left the window; what beams have found is held by each."""
    windowed = KVPlan(
        num_blocks=100,
        block_size=4,
        bytes_per_block=1,
        groups=(KVGroup(layers=(0,)), KVGroup(layers=(1,), window=9)),
    )

    # 41 computed tokens: 10 blocks of the prompt, of which the window shows 2, and 1 for each beam.
    assert num_blocks_of_beams(windowed, 2, 40, 2) == (10 + 2 * 1) + (2 + 2 * 1)
    # 45: the window shows one less. 49: it shows no more of the prompt.
    assert num_blocks_of_beams(windowed, 2, 40, 6) == (10 + 2 * 2) + (1 + 2 * 2)
    assert num_blocks_of_beams(windowed, 2, 40, 10) == (10 + 2 * 3) + 2 * 3
    # One token is the prompt's own.
    assert num_blocks_of_beams(windowed, 2, 40, 1) == windowed.num_blocks_for(40)


def test_a_search_that_can_never_fit_is_refused_with_numbers() -> None:
    """And says what would help."""
    check_beams_fit(POOL, BeamSpec(beam_width=4, num_returned=4), 64, 9, 5)

    with pytest.raises(PromptTooLongError, match=r"5 beams of 9 prompt.* need 12 .* has 10") as one:
        check_beams_fit(POOL, BeamSpec(beam_width=5, num_returned=5), 64, 9, 5)
    with pytest.raises(InvalidRequestError, match=r"at most 4, .* got 5; .*--max-num-seqs") as two:
        check_beams_fit(POOL, BeamSpec(beam_width=5, num_returned=5), 4, 9, 1)

    assert (one.value.param, two.value.param) == ("max_tokens", "beam_width")


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_limit_that_nobody_asked_for_is_the_largest_that_fits(width: int) -> None:
    """One more token would not."""
    beam = BeamSpec(beam_width=width, num_returned=width)

    most = most_tokens_of_beams(POOL, beam, 9, 100)

    check_beams_fit(POOL, beam, 64, 9, most)
    with pytest.raises(PromptTooLongError):
        check_beams_fit(POOL, beam, 64, 9, most + 1)
    assert most_tokens_of_beams(POOL, beam, 9, 2) == 2


# ---- results


def searched(params: BeamSearchParams, *beams: BeamSequence) -> BeamSearchOutput:
    """The result of a search that found `beams`."""
    rig = OutputRig(text_params(params, -1), beam=beam_spec(params))
    output = rig.push(finish_reason="stop", beams=list(beams))
    assert output is not None
    return beam_search_output(output, params, TOKENS)


def found(*tokens: int, **fields: Any) -> BeamSequence:
    """A beam that found `tokens`."""
    given = {"cumulative_logprob": -1.5, "score": -0.5, "finish_reason": "length"} | fields
    return BeamSequence(token_ids=list(tokens), logprobs=logprobs_for(tokens), **given)


def test_a_sequence_has_prompt_and_answer_in_vllms_form() -> None:
    """Tokens and text with the prompt, logprobs without."""
    two, three = TOKENS.encode("two three")[:2]

    (sequence,) = searched(BeamSearchParams(1, 2), found(two, three)).sequences

    prompt = TOKENS.encode("One")
    assert sequence.tokens == [*prompt, two, three]
    assert sequence.text == TOKENS.decode(sequence.tokens, skip_special_tokens=False)
    assert (sequence.cum_logprob, sequence.finish_reason) == (-1.5, "length")
    assert [set(position) for position in sequence.logprobs] == [{two, 7}, {three, 7}]


@pytest.mark.parametrize("keeps", [False, True])
def test_the_end_token_is_left_out_unless_it_is_asked_for(keeps: bool) -> None:
    """It is the stop reason in any case."""
    end, two = tiny_id(END), TOKENS.encode("two")[0]
    params = BeamSearchParams(2, 5, include_stop_str_in_output=keeps)

    output = searched(params, found(two, end, finish_reason="stop"), found(two, two))

    first, second = output.sequences
    prompt = TOKENS.encode("One")
    assert first.tokens == [*prompt, two, end][: None if keeps else -1]
    assert (first.finish_reason, first.stop_reason) == ("stop", end)
    assert (second.tokens, second.stop_reason) == ([*prompt, two, two], None)


def test_logprobs_are_those_that_were_compared_up_to_the_cap() -> None:
    """Twice the width, as in vLLM."""
    assert text_params(BeamSearchParams(4, 5), 20).logprobs == 8
    assert text_params(BeamSearchParams(40, 5), 20).logprobs == 20
    assert text_params(BeamSearchParams(40, 5), -1).logprobs == 80
