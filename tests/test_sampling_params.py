"""SamplingParams: names, defaults, ranges, and messages that say what would be right."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.sampling_params import (
    FIELD_DEFAULTS,
    MAX_CHOICES,
    MAX_STOP_LENGTH,
    MAX_STOP_STRINGS,
    BeamSearchParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)

NAN, INFINITE = float("nan"), float("inf")
VLLM_DEFAULTS = {
    "n": 1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "seed": None,
    "stop": None,
    "stop_token_ids": None,
    "ignore_eos": False,
    "max_tokens": 16,
    "min_tokens": 0,
    "logprobs": None,
    "prompt_logprobs": None,
    "logprob_token_ids": None,
    "detokenize": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "output_kind": RequestOutputKind.CUMULATIVE,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_words": None,
    "structured_outputs": None,
    "extra_args": None,
}
RIGHT: dict[str, list[Any]] = {
    "n": [1, 2, MAX_CHOICES],
    "presence_penalty": [-2, -2.0, 0, 2.0],
    "frequency_penalty": [-2.0, 2],
    "repetition_penalty": [0.001, 1, 50.0],
    "temperature": [0, 1e-9, 0.5, 2, 2.0],
    "top_p": [1e-9, 0.5, 1],
    "top_k": [-1, 0, 1, 10**9],
    "min_p": [0, 0.5, 1.0],
    "seed": [None, -1, 0, 2**64 - 1, -(2**63)],
    "stop": [None, "a", ["a", "b"], [], ("a",)],
    "stop_token_ids": [None, [], [0, 5]],
    "max_tokens": [None, 1, 10**9],
    "min_tokens": [0, 16],
    "logprobs": [None, -1, 0, 20],
    "prompt_logprobs": [None, -1, 0, 20],
    "logprob_token_ids": [None, [], [5], [7, 5, 7], list(range(128))],
    "logit_bias": [None, {}, {5: 1}, {"5": -100, 7: 100.0}],
    "allowed_token_ids": [None, [3]],
    "bad_words": [None, [], ["x y"]],
    "structured_outputs": [None, StructuredOutputsParams(regex="a")],
    "ignore_eos": [True],
    "output_kind": [RequestOutputKind.DELTA],
}
WRONG: dict[str, list[Any]] = {
    "n": [0, -1, MAX_CHOICES + 1, 1.0, True, "1", None],
    "presence_penalty": [-2.1, 3, NAN, INFINITE, True, "0", None],
    "frequency_penalty": [-3, 2.01, NAN, -INFINITE, [1]],
    "repetition_penalty": [0, 1e-38, 1e38, -1, NAN, INFINITE, "1"],
    "temperature": [-1, 2.01, 50, NAN, INFINITE, True, "hot", None, 10**400],
    "top_p": [0, -0.5, 1.01, 2, NAN, INFINITE, False],
    "top_k": [-2, 1.5, "many", True, None],
    "min_p": [-0.5, 1.5, NAN],
    "seed": [2**64, -(2**63) - 1, 1.5, "1", True],
    "stop": [7, True, [""], "", ["a", ""], [None], [1], {"a": 1}, b"x", [["a"]]],
    "stop_token_ids": [list(range(1025)), 7, [-1], ["5"], [1.0], [True], {"5": 1}, "5"],
    "max_tokens": [0, -5, 1.5, True, "9"],
    "min_tokens": [-1, 17, 1.0, None],
    "logprobs": [-2, 1.5, True, "5"],
    "prompt_logprobs": [-2, True],
    "logprob_token_ids": [7, [-1], ["5"], [True], {"5": 1}, list(range(129))],
    "logit_bias": [
        [1],
        {"cat": 1},
        {-1: 1},
        {5: NAN},
        {5: "x"},
        {5: 101},
        {5: -100.5},
        {1.5: 1},
        {"9" * 5000: 1},
        {True: 1},
    ],
    "allowed_token_ids": [[], [-1], 5, ["a"]],
    "bad_words": ["x", [""], [5], {"x": 1}],
    "structured_outputs": [{"regex": "a"}, "a", {}],
    "ignore_eos": [1, None, "yes"],
    "detokenize": [0],
    "output_kind": [0, "DELTA", None],
}


def test_asked_tokens_leave_no_room_for_another_number_of_them() -> None:
    """As in vLLM."""
    assert SamplingParams(logprob_token_ids=[5, 7], logprobs=2).wants_logprobs
    assert SamplingParams(logprob_token_ids=[5]).wants_logprobs
    assert not SamplingParams(logprob_token_ids=[]).wants_logprobs
    with pytest.raises(InvalidRequestError, match="logprobs must be 2"):
        SamplingParams(logprob_token_ids=[5, 7], logprobs=5)


def test_the_defaults_are_those_of_vllm() -> None:
    """A script that relies on a default gets the same one."""
    assert dict(FIELD_DEFAULTS) == VLLM_DEFAULTS


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in RIGHT.items() for v in vs])
def test_a_value_in_range_is_taken(name: str, value: Any) -> None:
    """Every value at the edge of its range is allowed."""
    SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WRONG.items() for v in vs])
def test_a_wrong_value_is_refused_by_the_name_of_its_field(name: str, value: Any) -> None:
    """Out of range, not a number, a boolean or a text for a number: the message names the field."""
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})

    assert caught.value.param == name
    assert caught.value.message.startswith(name)
    assert len(caught.value.message) < 300


def test_an_error_says_the_range_and_the_value() -> None:
    """The reader need not look anything up."""
    with pytest.raises(ValueError, match=r"top_p must be between 0 and 1, got 1\.5"):
        SamplingParams(top_p=1.5)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """A typing error does not silently leave the default."""
    with pytest.raises(InvalidRequestError, match=r"'temprature'\. Did you mean temperature"):
        SamplingParams(temprature=0.5)  # type: ignore[call-arg]


def test_a_name_that_vllm_removed_is_refused_with_the_way_out() -> None:
    """Old scripts are told what to use instead."""
    with pytest.raises(InvalidRequestError, match=r"best_of.*ask for n choices"):
        SamplingParams(best_of=3)  # type: ignore[call-arg]


def test_greedy_sampling_has_one_choice() -> None:
    """Several greedy choices would all be equal."""
    with pytest.raises(InvalidRequestError, match="n must be 1 with greedy") as caught:
        SamplingParams(n=2, temperature=0)

    assert caught.value.param == "n"


def test_stop_strings_need_text() -> None:
    """Without detokenisation nothing could be found."""
    with pytest.raises(InvalidRequestError, match="stop needs detokenize"):
        SamplingParams(stop="a", detokenize=False)


def test_stop_strings_are_limited_in_number_and_length() -> None:
    """A request cannot make each token expensive."""
    with pytest.raises(InvalidRequestError, match="at most 64 strings, got 65"):
        SamplingParams(stop=[str(i) for i in range(MAX_STOP_STRINGS + 1)])
    with pytest.raises(InvalidRequestError, match="at most 4096 characters, got 4097"):
        SamplingParams(stop="x" * (MAX_STOP_LENGTH + 1))


def test_values_are_brought_into_one_form() -> None:
    """A single stop string becomes a list, doubles go, text keys become ids, -1 is no seed."""
    params = SamplingParams.from_optional(
        stop="end", stop_token_ids=[4, 4, 2], logit_bias={"7": 1}, seed=-1, temperature=1
    )

    assert params.stop == ["end"]
    assert params.stop_token_ids == [4, 2]
    assert params.logit_bias == {7: 1.0}
    assert params.seed is None
    assert isinstance(params.temperature, float)


def test_numbers_of_other_libraries_are_numbers() -> None:
    """A numpy integer is an integer, a numpy float a float."""
    numpy = pytest.importorskip("numpy")

    params = SamplingParams(max_tokens=numpy.int64(5), temperature=numpy.float32(0.5))

    assert (params.max_tokens, params.temperature) == (5, 0.5)
    assert type(params.max_tokens) is int


def test_an_assigned_value_is_checked_when_the_request_is_made() -> None:
    """Scripts may change fields; verify() finds what is wrong."""
    params = SamplingParams()
    params.max_tokens = 0

    with pytest.raises(InvalidRequestError, match="max_tokens must be at least 1"):
        params.verify()


def test_a_clone_shares_nothing() -> None:
    """Changing the copy's lists leaves the original alone."""
    params = SamplingParams(stop=["a"], logit_bias={1: 2.0})
    clone = params.clone()
    assert clone == params

    clone.stop_strings.append("b")
    assert clone.logit_bias is not None
    clone.logit_bias[9] = 1.0

    assert params == SamplingParams(stop=["a"], logit_bias={1: 2.0})


def test_replace_gives_a_checked_copy() -> None:
    """The original stays, and a wrong change is refused."""
    params = SamplingParams(temperature=0.5)

    assert params.replace(n=2) == SamplingParams(temperature=0.5, n=2)
    assert params.n == 1
    with pytest.raises(InvalidRequestError, match="n must be between"):
        params.replace(n=0)


def test_the_repr_shows_what_differs_from_the_defaults() -> None:
    """A log line stays short."""
    assert repr(SamplingParams()) == "SamplingParams()"
    assert repr(SamplingParams(n=2, stop="a")) == "SamplingParams(n=2, stop=['a'])"


def test_parameters_survive_copying_and_pickling() -> None:
    """Frameworks send them between processes."""
    params = SamplingParams(stop=["a"], temperature=0.3, output_kind=RequestOutputKind.DELTA)

    assert pickle.loads(pickle.dumps(params)) == params
    assert copy.deepcopy(params) == copy.copy(params) == params


def test_from_optional_takes_none_as_not_given() -> None:
    """None leaves the model's default, then the field's own; max_tokens None keeps its meaning."""
    params = SamplingParams.from_optional(
        {"temperature": 0.6, "top_k": 20}, temperature=None, top_k=5, n=None
    )
    assert params == SamplingParams(temperature=0.6, top_k=5)

    assert SamplingParams.from_optional(max_tokens=None).max_tokens is None
    assert SamplingParams.from_optional({"max_tokens": 99}, max_tokens=None).max_tokens == 99
    assert SamplingParams.from_optional().max_tokens == 16


# ---- beam search


def test_beam_search_parameters_have_vllms_names_and_order() -> None:
    """Positional as well."""
    assert BeamSearchParams(4, 10) == BeamSearchParams(
        beam_width=4,
        max_tokens=10,
        ignore_eos=False,
        temperature=0.0,
        length_penalty=1.0,
        include_stop_str_in_output=False,
        early_stopping=False,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", 0),
        ("beam_width", 129),
        ("beam_width", 2.0),
        ("max_tokens", 0),
        ("max_tokens", None),
        ("ignore_eos", 1),
        ("temperature", 0.5),
        ("temperature", "cold"),
        ("length_penalty", 10.5),
        ("length_penalty", float("nan")),
        ("include_stop_str_in_output", None),
        ("early_stopping", "always"),
        ("early_stopping", None),
    ],
)
def test_a_wrong_beam_search_parameter_is_refused_by_name(name: str, value: Any) -> None:
    """When it is made, and when it was assigned later."""
    with pytest.raises(InvalidRequestError, match=f"^{name} must be") as caught:
        BeamSearchParams(**({"beam_width": 2, "max_tokens": 5} | {name: value}))

    assert caught.value.param == name
    params = BeamSearchParams(2, 5)
    setattr(params, name, value)
    with pytest.raises(InvalidRequestError, match=f"^{name} must be"):
        params.verify()


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_early_stopping_has_three_values(early_stopping: Any) -> None:
    """Those of transformers."""
    params = BeamSearchParams(2, 5, early_stopping=early_stopping)

    assert params.early_stopping is early_stopping


TEXT = st.text("a1-\u00e9", max_size=3)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(FIELD_DEFAULTS)), ANYTHING, max_size=4))
def test_no_value_escapes_the_checks(fields: dict[str, Any]) -> None:
    """Whatever a request holds, it makes sound parameters or an error that names a field."""
    fault = None
    try:
        params = SamplingParams(**fields)
    except InvalidRequestError as error:
        fault = error
    if fault is not None:
        assert fault.param in FIELD_DEFAULTS
        assert len(fault.message) < 300
    else:
        assert params == params.clone()
        params.verify()
