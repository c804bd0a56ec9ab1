"""Choice: tokens become text; ends, stop strings, log-probabilities."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.contracts.step import TokenLogprobs
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.output_rig import OutputRig, logprobs_for
from tests.support.tiny_tokenizer import END, TURN, tiny_id, tiny_tokenizer

DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
TOKENS = tiny_tokenizer()


# ---- how an answer ends


def test_an_end_token_has_no_text_and_no_stop_reason() -> None:
    """It is among the token ids."""
    rig = OutputRig(SamplingParams(skip_special_tokens=False))

    choice = rig.choice(tiny_id(END), finish_reason="stop")

    assert (choice.text, choice.token_ids) == ("", [tiny_id(END)])
    assert (choice.finish_reason, choice.stop_reason) == ("stop", None)
    assert rig.processor.num_live == 0
    assert rig.aborted == []


def test_a_stop_token_is_the_stop_reason() -> None:
    """An ordinary token that was asked to stop at leaves no text either."""
    (stop,) = TOKENS.encode("x")
    rig = OutputRig(SamplingParams(stop_token_ids=[stop]))
    rig.push(5)

    choice = rig.choice(stop, finish_reason="stop", stop_reason=stop)

    assert choice.stop_reason == stop
    assert choice.text == TOKENS.decode([5])
    assert choice.token_ids == [5, stop]


def test_the_text_of_a_stop_token_can_be_included() -> None:
    """As for stop strings; a special token stays hidden unless those are shown."""
    (stop,) = TOKENS.encode("x")
    rig = OutputRig(SamplingParams(stop_token_ids=[stop], include_stop_str_in_output=True))
    assert rig.choice(stop, finish_reason="stop", stop_reason=stop).text == "x"

    rig = OutputRig(SamplingParams(include_stop_str_in_output=True))
    assert rig.choice(tiny_id(END), finish_reason="stop").text == ""

    rig = OutputRig(SamplingParams(include_stop_str_in_output=True, skip_special_tokens=False))
    assert rig.choice(tiny_id(END), finish_reason="stop").text == END


def test_the_length_limit_ends_with_length() -> None:
    """The last token counts in full."""
    choice = OutputRig(SamplingParams()).choice(5, finish_reason="length")

    assert (choice.finish_reason, choice.text) == ("length", TOKENS.decode([5]))


def test_a_character_cut_by_the_end_is_shown_as_a_replacement() -> None:
    """Held back while it may be completed, flushed when it cannot."""
    rig = OutputRig(SamplingParams())
    first, *_ = TOKENS.encode("\U0001f9e0")

    assert rig.choice(first).text == ""
    choice = rig.choice(finish_reason="abort")

    assert choice.text == "\ufffd"
    assert choice.token_ids == [first]


def test_a_character_that_the_prompt_began_is_completed() -> None:
    """The prompt may end inside a character."""
    first, *rest = TOKENS.encode("\U0001f9e0")
    rig = OutputRig(SamplingParams(output_kind=FINAL_ONLY), prompt=[first])

    assert rig.choice(*rest, finish_reason="length").text == "\U0001f9e0"


def test_special_tokens_are_shown_on_request() -> None:
    """And left out otherwise."""
    assert OutputRig(SamplingParams()).choice(tiny_id(TURN)).text == ""
    assert OutputRig(SamplingParams(skip_special_tokens=False)).choice(tiny_id(TURN)).text == TURN


def test_without_detokenisation_there_are_only_ids() -> None:
    """Text stays empty, and logprobs name no tokens."""
    rig = OutputRig(SamplingParams(detokenize=False, logprobs=1))

    choice = rig.choice(5, finish_reason="length", logprobs=logprobs_for([5]))

    assert (choice.text, choice.token_ids) == ("", [5])
    assert choice.logprobs is not None
    assert choice.logprobs[0][5].decoded_token is None


# ---- stop strings


def test_a_stop_string_over_several_tokens_ends_the_request() -> None:
    """Text is cut before it, tokens go up to the one that completed it, the core is told."""
    rig = OutputRig(SamplingParams(stop=["never", "o three f"], output_kind=DELTA))
    ids = TOKENS.encode("two three four five")
    assert len(ids) > 4

    outputs = []
    for token in ids:
        output = rig.push(token)
        if output is not None:
            outputs.append(output.outputs[0])

    assert "".join(output.text for output in outputs) == "tw"
    last = outputs[-1]
    assert (last.finish_reason, last.stop_reason) == ("stop", "o three f")
    used = [token for output in outputs for token in output.token_ids]
    assert "o three f" in TOKENS.decode(used)
    assert "o three f" not in TOKENS.decode(used[:-1])
    assert rig.aborted == [(["r"], "stop")]


def test_text_that_only_looked_like_a_stop_string_is_not_lost() -> None:
    """What was held back comes with the next text, or at the end."""
    rig = OutputRig(SamplingParams(stop=["two threexxx"], output_kind=DELTA))
    ids = TOKENS.encode("two three")

    held = [rig.choice(token).text for token in ids]
    assert "".join(held) == ""
    assert rig.choice(tiny_id(END), finish_reason="stop").text == "two three"


def test_the_stop_string_can_be_included() -> None:
    """The text ends with it, and nothing of the same token that follows it."""
    rig = OutputRig(SamplingParams(stop="wo", include_stop_str_in_output=True))
    ids = TOKENS.encode("two three")

    texts = []
    for token in ids:
        output = rig.push(token)
        if output is None:
            break
        texts.append(output.outputs[0].text)

    assert texts[-1] == "two"


def test_the_rest_of_a_step_after_a_stop_string_is_dropped() -> None:
    """Several tokens in one delta: those after the match do not belong to the answer."""
    rig = OutputRig(SamplingParams(stop=" three", logprobs=0))
    ids = TOKENS.encode("two three four")

    choice = rig.choice(*ids, logprobs=[TokenLogprobs([token], [-0.5], 1) for token in ids])

    assert choice.text == "two"
    assert choice.token_ids == ids[: len(choice.token_ids)]
    assert len(choice.token_ids) < len(ids)
    assert choice.logprobs is not None
    assert len(choice.logprobs) == len(choice.token_ids)
    assert choice.cumulative_logprob == -0.5 * len(choice.token_ids)


def test_a_stop_string_in_the_last_token_wins_over_the_length() -> None:
    """The core has ended the request already and is not told."""
    rig = OutputRig(SamplingParams(stop="two"))
    ids = TOKENS.encode("two")

    choice = rig.choice(*ids, finish_reason="length")

    assert (choice.finish_reason, choice.stop_reason, choice.text) == ("stop", "two", "")
    assert rig.aborted == []


def test_stop_strings_wait_for_min_tokens() -> None:
    """One that is complete too early has no effect; a later one counts."""
    ids = TOKENS.encode("two two two")
    first = len(TOKENS.encode("two"))
    rig = OutputRig(SamplingParams(stop="two", min_tokens=first))

    for token in ids:
        output = rig.push(token)
        if output is not None and output.finished:
            break

    assert output is not None
    assert output.outputs[0].text == "two "
    assert output.outputs[0].finish_reason == "stop"


def test_deltas_after_a_stop_string_are_dropped() -> None:
    """Steps that were in flight when the core was told."""
    rig = OutputRig(SamplingParams(stop="two"))
    rig.push(*TOKENS.encode("two"))

    assert rig.push(5) is None
    assert rig.processor.num_live == 0


WORDS = st.lists(
    st.sampled_from(["one", " two", " three", "ab", "b", " ", "🙂", "日本"]), max_size=8
)


@given(WORDS, st.lists(st.text("abto 🙂", min_size=1, max_size=3), max_size=3), st.booleans())
def test_the_stream_is_the_text_cut_at_the_first_stop_string(
    words: list[str], stop: list[str], include: bool
) -> None:
    """Whatever the tokens and the stop strings: deltas join to what a search in the whole gives."""
    text = "".join(words)
    rig = OutputRig(
        SamplingParams(stop=stop, include_stop_str_in_output=include, output_kind=DELTA), prompt=[9]
    )

    streamed = ""
    for token in TOKENS.encode(text):
        output = rig.push(token)
        if output is None:
            break
        streamed += output.outputs[0].text
    rest = rig.push(finish_reason="length")
    streamed += rest.outputs[0].text if rest is not None else ""

    ends = [(text.find(s) + len(s), place, s) for place, s in enumerate(stop) if s in text]
    if ends:
        end, _, found = min(ends)
        assert streamed == text[: end if include else end - len(found)]
    else:
        assert streamed == text


# ---- logprobs


def test_logprobs_name_tokens_and_ranks() -> None:
    """The chosen token with its own rank, then the best ones; the sum is kept."""
    rig = OutputRig(SamplingParams(logprobs=1))
    choice = rig.choice(5, logprobs=logprobs_for([5]))
    choice = rig.choice(7, logprobs=[TokenLogprobs([7, 7], [-0.25, -0.25], 1)])

    assert choice.logprobs is not None
    first, second = choice.logprobs
    assert list(first) == [5, 7]
    assert (first[5].logprob, first[5].rank) == (-0.5, 2)
    assert (first[7].logprob, first[7].rank) == (-0.25, 1)
    assert first[5].decoded_token == TOKENS.token_of(5)
    assert list(second) == [7]
    assert choice.cumulative_logprob == -0.75


def test_without_logprobs_there_is_no_sum() -> None:
    """None, not zero."""
    choice = OutputRig(SamplingParams()).choice(5)

    assert (choice.logprobs, choice.cumulative_logprob) == (None, None)


def test_prompt_logprobs_begin_with_none() -> None:
    """Chunks of the prompt are joined; they come with the first token."""
    prompt = [5, 6, 8]
    rig = OutputRig(SamplingParams(prompt_logprobs=1), prompt=prompt)
    assert rig.push(prompt_logprobs=logprobs_for([6])) is None

    output = rig.push(9, prompt_logprobs=logprobs_for([8]))

    assert output is not None
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert [list(entry) for entry in output.prompt_logprobs[1:] if entry] == [[6, 7], [8, 7]]


def test_prompt_logprobs_are_in_every_output() -> None:
    """Decoded once; also in a stream of deltas, where each choice may begin later."""
    rig = OutputRig(SamplingParams(prompt_logprobs=1, output_kind=DELTA), prompt=[5, 6])
    first = rig.push(9, prompt_logprobs=logprobs_for([6]))
    second = rig.push(10)

    assert first is not None
    assert second is not None
    assert first.prompt_logprobs is not None
    assert first.prompt_logprobs is second.prompt_logprobs
