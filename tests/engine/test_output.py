"""Output: failures and ends from outside reach the right stream and no other."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.contracts.delta import TokenDelta
from octavo.errors import (
    EngineDeadError,
    InvalidRequestError,
    RequestFailedError,
    UnanswerableError,
)
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.output_rig import OutputRig
from tests.support.tiny_tokenizer import tiny_tokenizer

DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
TOKENS = tiny_tokenizer()


def test_a_failed_request_raises_and_ends_its_other_choices() -> None:
    """The reader is told why; the core drops what is left."""
    rig = OutputRig(SamplingParams(n=2))

    with pytest.raises(RequestFailedError, match="row went wrong"):
        rig.push(core_id="r/0", finish_reason="error", error="row went wrong")

    assert rig.aborted[-1][0] == ["r/0", "r/1"]
    assert rig.processor.num_live == 0


def test_a_request_that_no_answer_is_right_for_is_the_callers_fault() -> None:
    rig = OutputRig(SamplingParams())

    with pytest.raises(UnanswerableError, match="no token is left") as refusal:
        rig.push(core_id="r", finish_reason="error", error="no token is left", is_unanswerable=True)

    assert isinstance(refusal.value, InvalidRequestError)


def test_a_failed_request_keeps_the_text_that_was_whole() -> None:
    """What was held back is not completed any more."""
    rig = OutputRig(SamplingParams())
    rig.push(*TOKENS.encode("one"), TOKENS.encode("\U0001f9e0")[0])
    rig.processor.process([TokenDelta("r", [], finish_reason="error", error="bad")])

    output = rig.stream.take_output()

    assert output is not None
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("one", "error")


def test_a_failed_request_leaves_its_neighbour_alone() -> None:
    """Only its own stream has an error."""
    rig = OutputRig(SamplingParams())
    other = rig.open("other", SamplingParams())
    rig.processor.process(
        [TokenDelta("r", [], finish_reason="error", error="bad"), TokenDelta("other", [5])]
    )

    output = other.take()

    assert output is not None
    assert output.outputs[0].token_ids == [5]


def test_a_fault_while_text_is_made_ends_that_request_only() -> None:
    """A malformed delta must not stop the others of its step."""
    rig = OutputRig(SamplingParams(logprobs=1))
    other = rig.open("other", SamplingParams())
    broken: Any = [None]
    rig.processor.process([TokenDelta("r", [5], logprobs=broken), TokenDelta("other", [5])])

    with pytest.raises(RequestFailedError, match="internal error"):
        rig.stream.take()
    assert other.take() is not None
    assert rig.aborted == [(["r"], "abort")]


def test_a_closed_stream_gets_no_news() -> None:
    """Its requests are ended in the core, once."""
    rig = OutputRig(SamplingParams(n=2))
    rig.push(5, core_id="r/1", finish_reason="length")

    rig.processor.close(rig.stream)
    rig.processor.close(rig.stream)

    assert rig.aborted == [(["r/0"], "abort")]
    assert rig.push(6, core_id="r/0") is None


def test_only_tokens_of_answers_are_counted_as_generated() -> None:
    """A run of accepted guesses may go on behind a stop string."""
    rig = OutputRig(SamplingParams(stop="two"), keeps_metrics=True)
    rig.push(*TOKENS.encode("one two three"))
    rig.push(5)  # the core has not heard of the end yet
    stats = rig.engine.core.stats()

    num_tokens = len(TOKENS.encode("one two"))
    assert rig.processor.counted(stats).num_generation_tokens == num_tokens
    assert rig.aborted == [(["r"], "stop")]


def test_an_aborted_stream_gives_what_it_has() -> None:
    """The reader sees the text so far and the reason."""
    rig = OutputRig(SamplingParams(stop="oneX", output_kind=DELTA))
    rig.push(*TOKENS.encode("one"))

    rig.stream.end("abort")
    output = rig.stream.take()

    assert output is not None
    assert output.finished
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("one", "abort")


def test_an_abort_leaves_finished_choices_as_they_are() -> None:
    """Only what still ran is aborted."""
    rig = OutputRig(SamplingParams(n=2))
    rig.push(5, core_id="r/1", finish_reason="length")

    rig.stream.end("abort")
    output = rig.stream.take()

    assert output is not None
    assert [choice.finish_reason for choice in output.outputs] == ["abort", "length"]


def test_the_death_of_the_engine_reaches_every_stream() -> None:
    """Each gets an error of its own, so that tracebacks do not mix."""
    rig = OutputRig(SamplingParams())
    other = rig.open("other", SamplingParams(n=2))

    rig.processor.fail_all(lambda: EngineDeadError("gone"))

    assert rig.stream.error is not other.error
    for stream in (rig.stream, other):
        with pytest.raises(EngineDeadError, match="gone"):
            stream.take()
    assert rig.aborted == []
