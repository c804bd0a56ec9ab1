"""Output: deltas become text and outputs in each kind; stop strings end requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.step import TokenLogprobs
from octavo.engine.build import Engine
from octavo.engine.fan_out import RequestStream
from octavo.engine.output import OutputProcessor
from octavo.errors import EngineDeadError, RequestFailedError
from octavo.foundation.clock import ManualClock
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.scripted_engine import scripted_engine
from tests.support.tiny_tokenizer import END, TURN, tiny_id, tiny_tokenizer

DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
TOKENS = tiny_tokenizer()


class Rig:
    """A processor with one request. `push` plays a step and returns the output, if there is one."""

    def __init__(self, params: SamplingParams, prompt: Any = "One", **options: Any) -> None:
        self.engine: Engine = scripted_engine(model={"max_logprobs": -1})
        self.clock = ManualClock(1.0)
        self.aborted: list[tuple[list[str], FinishReason]] = []
        self.news: list[RequestStream] = []
        self.processor = OutputProcessor(self.engine.tokenizer, self._abort, self.clock, **options)
        self.stream = self.open("r", params, prompt)

    def open(self, request_id: str, params: SamplingParams, prompt: Any = "One") -> RequestStream:
        encoded = self.engine.intake.encode(prompt)
        requests = self.engine.intake.requests(request_id, encoded, params)
        return self.processor.open(request_id, encoded, params, requests, self.news.append)

    def _abort(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        self.aborted.append((list(request_ids), reason))

    def push(self, *tokens: int, core_id: str = "r", **fields: Any) -> RequestOutput | None:
        self.processor.process([TokenDelta(core_id, list(tokens), **fields)])
        return self.stream.take()

    def choice(self, *tokens: int, **fields: Any) -> CompletionOutput:
        output = self.push(*tokens, **fields)
        assert output is not None
        assert len(output.outputs) == 1
        return output.outputs[0]


def logprobs_for(tokens: Sequence[int]) -> list[TokenLogprobs]:
    """The token itself with -0.5, token 7 with -0.25 as the best."""
    return [TokenLogprobs([token, 7], [-0.5, -0.25], 2) for token in tokens]


# ---- kinds of output


def test_cumulative_outputs_hold_everything_so_far() -> None:
    """Each output can be shown as it is."""
    rig = Rig(SamplingParams())
    ids = TOKENS.encode("two three four")

    outputs = [rig.choice(token) for token in ids]

    assert [output.text for output in outputs] == [
        TOKENS.decode(ids[: place + 1]) for place in range(len(ids))
    ]
    assert [output.token_ids for output in outputs] == [
        ids[: place + 1] for place in range(len(ids))
    ]


def test_delta_outputs_join_to_the_cumulative_one() -> None:
    """Each holds only what is new."""
    rig = Rig(SamplingParams(output_kind=DELTA))
    ids = TOKENS.encode("two three four")

    outputs = [rig.choice(token) for token in ids]

    assert "".join(output.text for output in outputs) == "two three four"
    assert [output.token_ids for output in outputs] == [[token] for token in ids]


def test_a_final_output_comes_once_at_the_end() -> None:
    """Nobody is woken before."""
    rig = Rig(SamplingParams(output_kind=FINAL_ONLY))
    ids = TOKENS.encode("two three four")

    for token in ids[:-1]:
        assert rig.push(token) is None
    assert rig.news == []
    output = rig.push(ids[-1], finish_reason="length")

    assert output is not None
    assert output.finished
    assert output.outputs[0].text == "two three four"
    assert output.outputs[0].token_ids == ids


def test_news_that_nobody_took_merges() -> None:
    """A slow reader gets one output for several steps, and was told once."""
    rig = Rig(SamplingParams(output_kind=DELTA, logprobs=1))
    ids = TOKENS.encode("two three four")

    for token in ids:
        rig.processor.process([TokenDelta("r", [token], logprobs=logprobs_for([token]))])

    assert rig.news == [rig.stream]
    output = rig.stream.take()
    assert output is not None
    assert output.outputs[0].text == "two three four"
    assert output.outputs[0].token_ids == ids
    assert output.outputs[0].logprobs is not None
    assert len(output.outputs[0].logprobs) == len(ids)
    assert rig.stream.take() is None


def test_an_output_is_not_changed_by_what_follows() -> None:
    """A reader may keep it."""
    rig = Rig(SamplingParams(logprobs=1))
    first = rig.choice(5, logprobs=logprobs_for([5]))
    kept = (list(first.token_ids), first.text, first.logprobs == logprobs_for([5]))

    rig.choice(6, logprobs=logprobs_for([6]))

    assert (first.token_ids, first.text) == kept[:2]
    assert first.logprobs is not None
    assert len(first.logprobs) == 1


def test_the_output_carries_the_prompt_and_the_cached_tokens() -> None:
    """Cached tokens are known from the first delta on."""
    rig = Rig(SamplingParams())
    output = rig.push(5, num_cached_tokens=1)

    assert output is not None
    assert (output.request_id, output.prompt) == ("r", "One")
    assert output.prompt_token_ids == TOKENS.encode("One")
    assert output.num_cached_tokens == 1
    later = rig.push(6)
    assert later is not None
    assert later.num_cached_tokens == 1


# ---- how an answer ends


def test_an_end_token_has_no_text_and_no_stop_reason() -> None:
    """It is among the token ids."""
    rig = Rig(SamplingParams(skip_special_tokens=False))

    choice = rig.choice(tiny_id(END), finish_reason="stop")

    assert (choice.text, choice.token_ids) == ("", [tiny_id(END)])
    assert (choice.finish_reason, choice.stop_reason) == ("stop", None)
    assert rig.processor.num_live == 0
    assert rig.aborted == []


def test_a_stop_token_is_the_stop_reason() -> None:
    """An ordinary token that was asked to stop at leaves no text either."""
    (stop,) = TOKENS.encode("x")
    rig = Rig(SamplingParams(stop_token_ids=[stop]))
    rig.push(5)

    choice = rig.choice(stop, finish_reason="stop", stop_reason=stop)

    assert choice.stop_reason == stop
    assert choice.text == TOKENS.decode([5])
    assert choice.token_ids == [5, stop]


def test_the_text_of_a_stop_token_can_be_included() -> None:
    """As for stop strings; a special token stays hidden unless those are shown."""
    (stop,) = TOKENS.encode("x")
    rig = Rig(SamplingParams(stop_token_ids=[stop], include_stop_str_in_output=True))
    assert rig.choice(stop, finish_reason="stop", stop_reason=stop).text == "x"

    rig = Rig(SamplingParams(include_stop_str_in_output=True))
    assert rig.choice(tiny_id(END), finish_reason="stop").text == ""

    rig = Rig(SamplingParams(include_stop_str_in_output=True, skip_special_tokens=False))
    assert rig.choice(tiny_id(END), finish_reason="stop").text == END


def test_the_length_limit_ends_with_length() -> None:
    """The last token counts in full."""
    choice = Rig(SamplingParams()).choice(5, finish_reason="length")

    assert (choice.finish_reason, choice.text) == ("length", TOKENS.decode([5]))


def test_a_character_cut_by_the_end_is_shown_as_a_replacement() -> None:
    """Held back while it may be completed, flushed when it cannot."""
    rig = Rig(SamplingParams())
    first, *_ = TOKENS.encode("\U0001f9e0")

    assert rig.choice(first).text == ""
    choice = rig.choice(finish_reason="abort")

    assert choice.text == "\ufffd"
    assert choice.token_ids == [first]


def test_special_tokens_are_shown_on_request() -> None:
    """And left out otherwise."""
    assert Rig(SamplingParams()).choice(tiny_id(TURN)).text == ""
    assert Rig(SamplingParams(skip_special_tokens=False)).choice(tiny_id(TURN)).text == TURN


def test_without_detokenisation_there_are_only_ids() -> None:
    """Text stays empty, and logprobs name no tokens."""
    rig = Rig(SamplingParams(detokenize=False, logprobs=1))

    choice = rig.choice(5, finish_reason="length", logprobs=logprobs_for([5]))

    assert (choice.text, choice.token_ids) == ("", [5])
    assert choice.logprobs is not None
    assert choice.logprobs[0][5].decoded_token is None


# ---- stop strings


def test_a_stop_string_over_several_tokens_ends_the_request() -> None:
    """Text is cut before it, tokens go up to the one that completed it, the core is told."""
    rig = Rig(SamplingParams(stop=["never", "o three f"], output_kind=DELTA))
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
    rig = Rig(SamplingParams(stop=["two threexxx"], output_kind=DELTA))
    ids = TOKENS.encode("two three")

    held = [rig.choice(token).text for token in ids]
    assert "".join(held) == ""
    assert rig.choice(tiny_id(END), finish_reason="stop").text == "two three"


def test_the_stop_string_can_be_included() -> None:
    """The text ends with it, and nothing of the same token that follows it."""
    rig = Rig(SamplingParams(stop="wo", include_stop_str_in_output=True))
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
    rig = Rig(SamplingParams(stop=" three", logprobs=0))
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
    rig = Rig(SamplingParams(stop="two"))
    ids = TOKENS.encode("two")

    choice = rig.choice(*ids, finish_reason="length")

    assert (choice.finish_reason, choice.stop_reason, choice.text) == ("stop", "two", "")
    assert rig.aborted == []


def test_stop_strings_wait_for_min_tokens() -> None:
    """One that is complete too early has no effect; a later one counts."""
    ids = TOKENS.encode("two two two")
    first = len(TOKENS.encode("two"))
    rig = Rig(SamplingParams(stop="two", min_tokens=first))

    for token in ids:
        output = rig.push(token)
        if output is not None and output.finished:
            break

    assert output is not None
    assert output.outputs[0].text == "two "
    assert output.outputs[0].finish_reason == "stop"


def test_deltas_after_a_stop_string_are_dropped() -> None:
    """Steps that were in flight when the core was told."""
    rig = Rig(SamplingParams(stop="two"))
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
    rig = Rig(
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
    rig = Rig(SamplingParams(logprobs=1))
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
    choice = Rig(SamplingParams()).choice(5)

    assert (choice.logprobs, choice.cumulative_logprob) == (None, None)


def test_prompt_logprobs_begin_with_none() -> None:
    """Chunks of the prompt are joined; they come with the first token."""
    prompt = [5, 6, 8]
    rig = Rig(SamplingParams(prompt_logprobs=1), prompt=prompt)
    assert rig.push(prompt_logprobs=logprobs_for([6])) is None

    output = rig.push(9, prompt_logprobs=logprobs_for([8]))

    assert output is not None
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert [list(entry) for entry in output.prompt_logprobs[1:] if entry] == [[6, 7], [8, 7]]


def test_prompt_logprobs_are_in_every_output() -> None:
    """Decoded once; also in a stream of deltas, where each choice may begin later."""
    rig = Rig(SamplingParams(prompt_logprobs=1, output_kind=DELTA), prompt=[5, 6])
    first = rig.push(9, prompt_logprobs=logprobs_for([6]))
    second = rig.push(10)

    assert first is not None
    assert second is not None
    assert first.prompt_logprobs is not None
    assert first.prompt_logprobs is second.prompt_logprobs


# ---- several choices


def test_choices_are_merged_by_index() -> None:
    """A step's news of all choices is one output; each finishes on its own."""
    rig = Rig(SamplingParams(n=2))
    rig.processor.process([TokenDelta("r/1", [6]), TokenDelta("r/0", [5])])

    output = rig.stream.take()

    assert len(rig.news) == 1
    assert output is not None
    assert [(c.index, c.token_ids) for c in output.outputs] == [(0, [5]), (1, [6])]
    assert not output.finished
    output = rig.push(7, core_id="r/1", finish_reason="length")
    assert output is not None
    assert [(c.token_ids, c.finish_reason) for c in output.outputs] == [
        ([5], None),
        ([6, 7], "length"),
    ]
    assert not output.finished
    output = rig.push(8, core_id="r/0", finish_reason="length")
    assert output is not None
    assert output.finished


def test_a_delta_output_has_only_choices_with_news() -> None:
    """Each finish reason is seen exactly once."""
    rig = Rig(SamplingParams(n=2, output_kind=DELTA))

    outputs = [
        rig.push(5, core_id="r/0", finish_reason="length"),
        rig.push(6, core_id="r/1"),
        rig.push(7, core_id="r/1", finish_reason="length"),
    ]

    seen = [
        (c.index, c.token_ids, c.finish_reason)
        for output in outputs
        if output
        for c in output.outputs
    ]
    assert seen == [(0, [5], "length"), (1, [6], None), (1, [7], "length")]


def test_a_stop_string_ends_one_choice_only() -> None:
    """The other goes on."""
    rig = Rig(SamplingParams(n=2, stop="two"))
    rig.push(*TOKENS.encode("two"), core_id="r/0")

    output = rig.push(5, core_id="r/1")

    assert output is not None
    assert [c.finish_reason for c in output.outputs] == ["stop", None]
    assert rig.aborted == [(["r/0"], "stop")]
    assert rig.processor.num_live == 1


# ---- failures and ends from outside


def test_a_failed_request_raises_and_ends_its_other_choices() -> None:
    """The reader is told why; the core drops what is left."""
    rig = Rig(SamplingParams(n=2))

    with pytest.raises(RequestFailedError, match="row went wrong"):
        rig.push(core_id="r/0", finish_reason="error", error="row went wrong")

    assert rig.aborted[-1][0] == ["r/0", "r/1"]
    assert rig.processor.num_live == 0


def test_a_failed_request_leaves_its_neighbour_alone() -> None:
    """Only its own stream has an error."""
    rig = Rig(SamplingParams())
    other = rig.open("other", SamplingParams())
    rig.processor.process(
        [TokenDelta("r", [], finish_reason="error", error="bad"), TokenDelta("other", [5])]
    )

    output = other.take()

    assert output is not None
    assert output.outputs[0].token_ids == [5]


def test_a_fault_while_text_is_made_ends_that_request_only() -> None:
    """A malformed delta must not stop the others of its step."""
    rig = Rig(SamplingParams(logprobs=1))
    other = rig.open("other", SamplingParams())
    broken: Any = [None]
    rig.processor.process([TokenDelta("r", [5], logprobs=broken), TokenDelta("other", [5])])

    with pytest.raises(RequestFailedError, match="internal error"):
        rig.stream.take()
    assert other.take() is not None
    assert rig.aborted == [(["r"], "abort")]


def test_a_closed_stream_gets_no_news() -> None:
    """Its requests are ended in the core, once."""
    rig = Rig(SamplingParams(n=2))
    rig.push(5, core_id="r/1", finish_reason="length")

    rig.processor.close(rig.stream)
    rig.processor.close(rig.stream)

    assert rig.aborted == [(["r/0"], "abort")]
    assert rig.push(6, core_id="r/0") is None


def test_an_aborted_stream_gives_what_it_has() -> None:
    """The reader sees the text so far and the reason."""
    rig = Rig(SamplingParams(stop="oneX", output_kind=DELTA))
    rig.push(*TOKENS.encode("one"))

    rig.stream.end("abort")
    output = rig.stream.take()

    assert output is not None
    assert output.finished
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("one", "abort")


def test_the_death_of_the_engine_reaches_every_stream() -> None:
    """Each gets an error of its own, so that tracebacks do not mix."""
    rig = Rig(SamplingParams())
    other = rig.open("other", SamplingParams(n=2))

    rig.processor.fail_all(lambda: EngineDeadError("gone"))

    assert rig.stream.error is not other.error
    for stream in (rig.stream, other):
        with pytest.raises(EngineDeadError, match="gone"):
            stream.take()
    assert rig.aborted == []


# ---- metrics


def test_metrics_are_kept_on_request() -> None:
    """Times by the engine's clock, tokens over all choices."""
    rig = Rig(SamplingParams(n=2), keeps_metrics=True)
    rig.clock.advance(1.0)
    rig.push(5, core_id="r/0")
    rig.clock.advance(1.0)
    output = rig.push(5, core_id="r/1")

    assert output is not None
    assert output.metrics is not None
    assert (output.metrics.first_token_s, output.metrics.last_token_s) == (2.0, 3.0)
    assert output.metrics.num_generation_tokens == 2
    assert Rig(SamplingParams()).push(5).metrics is None  # type: ignore[union-attr]
