"""RequestStream: outputs of each kind, choices by index, metrics."""

from __future__ import annotations

from typing import Any

from octavo.contracts.delta import BeamSequence, TokenDelta
from octavo.contracts.request import BeamSpec
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.output_rig import OutputRig, logprobs_for
from tests.support.tiny_tokenizer import tiny_tokenizer

DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
TOKENS = tiny_tokenizer()


# ---- kinds of output


def test_cumulative_outputs_hold_everything_so_far() -> None:
    """Each output can be shown as it is."""
    rig = OutputRig(SamplingParams())
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
    rig = OutputRig(SamplingParams(output_kind=DELTA))
    ids = TOKENS.encode("two three four")

    outputs = [rig.choice(token) for token in ids]

    assert "".join(output.text for output in outputs) == "two three four"
    assert [output.token_ids for output in outputs] == [[token] for token in ids]


def test_a_final_output_comes_once_at_the_end() -> None:
    """Nobody is woken before."""
    rig = OutputRig(SamplingParams(output_kind=FINAL_ONLY))
    ids = TOKENS.encode("two three four")

    for token in ids[:-1]:
        assert rig.push(token) is None
    assert rig.news == []
    output = rig.push(ids[-1], finish_reason="length")

    assert output is not None
    assert output.finished
    assert output.outputs[0].text == "two three four"
    assert output.outputs[0].token_ids == ids


def test_an_interval_sends_the_first_token_at_once_and_then_several() -> None:
    """The last ones come with the end, however few they are."""
    rig = OutputRig(SamplingParams(output_kind=DELTA), stream_interval=3)
    ids = TOKENS.encode("two three four five two three")[:6]

    outputs = [rig.push(token) for token in ids[:-1]]
    outputs.append(rig.push(ids[-1], finish_reason="length"))

    sizes = [len(output.outputs[0].token_ids) if output else 0 for output in outputs]
    assert sizes == [1, 0, 0, 3, 0, 2]
    text = "".join(output.outputs[0].text for output in outputs if output)
    assert text == TOKENS.decode(ids)


def test_an_interval_counts_for_each_choice() -> None:
    """One that has enough tokens does not drag the others along."""
    rig = OutputRig(SamplingParams(n=2, output_kind=DELTA), stream_interval=2)
    first, second = rig.stream.core_ids
    for core_id in (first, second):
        rig.push(5, core_id=core_id)

    assert rig.push(6, core_id=first) is None
    assert rig.push(6, core_id=second) is None
    output = rig.push(7, core_id=first)

    assert output is not None
    assert [(choice.index, choice.token_ids) for choice in output.outputs] == [(0, [6, 7])]


def test_news_that_nobody_took_merges() -> None:
    """A slow reader gets one output for several steps, and was told once."""
    rig = OutputRig(SamplingParams(output_kind=DELTA, logprobs=1))
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
    rig = OutputRig(SamplingParams(logprobs=1))
    first = rig.choice(5, logprobs=logprobs_for([5]))
    kept = (list(first.token_ids), first.text, first.logprobs == logprobs_for([5]))

    rig.choice(6, logprobs=logprobs_for([6]))

    assert (first.token_ids, first.text) == kept[:2]
    assert first.logprobs is not None
    assert len(first.logprobs) == 1


def test_the_output_carries_the_prompt_and_the_cached_tokens() -> None:
    """Cached tokens are known from the first delta on."""
    rig = OutputRig(SamplingParams())
    output = rig.push(5, num_cached_tokens=1)

    assert output is not None
    assert (output.request_id, output.prompt) == ("r", "One")
    assert output.prompt_token_ids == TOKENS.encode("One")
    assert output.num_cached_tokens == 1
    later = rig.push(6)
    assert later is not None
    assert later.num_cached_tokens == 1


# ---- several choices


def test_choices_are_merged_by_index() -> None:
    """A step's news of all choices is one output; each finishes on its own."""
    rig = OutputRig(SamplingParams(n=2))
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
    rig = OutputRig(SamplingParams(n=2, output_kind=DELTA))

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
    rig = OutputRig(SamplingParams(n=2, stop="two"))
    rig.push(*TOKENS.encode("two"), core_id="r/0")

    output = rig.push(5, core_id="r/1")

    assert output is not None
    assert [c.finish_reason for c in output.outputs] == ["stop", None]
    assert rig.aborted == [(["r/0"], "stop")]
    assert rig.processor.num_live == 1


# ---- metrics


def test_metrics_are_kept_on_request() -> None:
    """Times by the engine's clock, tokens over all choices."""
    rig = OutputRig(SamplingParams(n=2), keeps_metrics=True)
    rig.clock.advance(1.0)
    rig.push(5, core_id="r/0", admitted_s=1.5)
    rig.clock.advance(1.0)
    output = rig.push(5, core_id="r/1", admitted_s=2.5)

    assert output is not None
    assert output.metrics is not None
    assert output.metrics.admitted_s == 1.5
    assert (output.metrics.first_token_s, output.metrics.last_token_s) == (2.0, 3.0)
    assert output.metrics.num_generation_tokens == 2
    assert OutputRig(SamplingParams()).push(5).metrics is None  # type: ignore[union-attr]


def test_a_chunk_without_tokens_tells_when_its_request_began() -> None:
    """The first delta of a long prompt whose logprobs are wanted has no token yet."""
    rig = OutputRig(SamplingParams(prompt_logprobs=0), prompt="One two", keeps_metrics=True)
    rig.push(prompt_logprobs=logprobs_for([5]), admitted_s=1.5)
    output = rig.push(6)

    assert output is not None
    assert output.metrics is not None
    assert (output.metrics.admitted_s, output.metrics.num_generation_tokens) == (1.5, 1)


# ---- beam search

PAIR = BeamSpec(beam_width=2, num_returned=2)
GREEDY = SamplingParams(temperature=0, output_kind=FINAL_ONLY)


def beam(text: str, **fields: Any) -> BeamSequence:
    """A beam that found a text."""
    given = {"cumulative_logprob": -1.0, "score": -1.0, "finish_reason": "length"} | fields
    return BeamSequence(token_ids=TOKENS.encode(text), **given)


def test_the_last_delta_of_a_search_brings_all_choices() -> None:
    """In the order of their scores, with texts and sums; one core request stands behind them."""
    rig = OutputRig(GREEDY, beam=PAIR, keeps_metrics=True)
    assert rig.stream.core_ids == ["r"]
    assert rig.push(admitted_s=2.0) is None

    output = rig.push(
        finish_reason="stop",
        beams=[beam("two three", cumulative_logprob=-0.25), beam("four")],
    )

    assert output is not None
    assert output.finished
    assert [choice.text for choice in output.outputs] == ["two three", "four"]
    assert [choice.index for choice in output.outputs] == [0, 1]
    assert [choice.cumulative_logprob for choice in output.outputs] == [-0.25, -1.0]
    assert output.metrics is not None
    assert output.metrics.num_generation_tokens == sum(
        len(choice.token_ids) for choice in output.outputs
    )
    assert output.metrics.admitted_s == 2.0
    assert rig.processor.num_live == 0


def test_a_search_that_found_less_has_fewer_choices() -> None:
    """Nothing is invented."""
    output = OutputRig(GREEDY, beam=PAIR).push(finish_reason="stop", beams=[beam("two")])

    assert output is not None
    assert [choice.text for choice in output.outputs] == ["two"]


def test_a_search_that_was_cut_off_ends_every_choice() -> None:
    """With the reason of the core request."""
    rig = OutputRig(GREEDY, beam=PAIR)

    output = rig.push(finish_reason="abort", stop_reason="timeout", error="too late")

    assert output is not None
    assert output.finished
    assert output.abort_reason == "too late"
    ends = [(choice.finish_reason, choice.stop_reason) for choice in output.outputs]
    assert ends == [("abort", "timeout")] * 2
    assert rig.processor.num_live == 0


def test_leaving_a_search_aborts_its_one_request() -> None:
    """The core knows nothing of choices."""
    rig = OutputRig(GREEDY, beam=PAIR)

    rig.processor.close(rig.stream)

    assert rig.aborted == [(["r"], "abort")]
    assert rig.processor.num_live == 0


def test_preemptions_and_swaps_of_all_choices_add_up() -> None:
    """They come with the last delta of each."""
    rig = OutputRig(SamplingParams(n=2), keeps_metrics=True)

    rig.push(5, core_id="r/0", finish_reason="length", num_preemptions=2, num_swaps=1)
    output = rig.push(5, core_id="r/1", finish_reason="length", num_preemptions=1)

    assert output is not None
    assert output.metrics is not None
    assert (output.metrics.num_preemptions, output.metrics.num_swaps) == (3, 1)


def test_tokens_behind_a_stop_string_are_not_counted() -> None:
    """A step may bring several tokens, of which only the first belong to the answer."""
    params = SamplingParams(stop=["three"])
    rig = OutputRig(params, keeps_metrics=True)
    ids = TOKENS.encode("two three four five")

    output = rig.push(*ids)

    assert output is not None
    assert output.metrics is not None
    assert output.outputs[0].text == "two "
    assert output.metrics.num_generation_tokens == len(output.outputs[0].token_ids) < len(ids)
