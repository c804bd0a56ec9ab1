"""LLM: forms of prompts and parameters, order of results; and the real model through all of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.config.engine import SchedulerConfig
from octavo.errors import ConfigError, EngineDeadError, InvalidRequestError
from octavo.llm import LLM
from octavo.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.data import reference, smollm2_path
from tests.support.scripted_engine import says, scripted_llm
from tests.support.tiny_tokenizer import tiny_tokenizer

ANSWERS = {"One": " two", "Two": " three four five", "user: One\nassistant: ": "chat"}
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}{{ extra or '' }}"
)
GREEDY = SamplingParams(temperature=0, max_tokens=20)
ONE = [{"role": "user", "content": "One"}]


def make_llm(**options: Any) -> LLM:
    return scripted_llm(says(ANSWERS), chat_template=TEMPLATE, **options)


def texts(outputs: list[RequestOutput]) -> list[str]:
    return [output.outputs[0].text for output in outputs]


def quiet(llm: LLM, prompts: Any, params: Any = GREEDY, **options: Any) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False, **options)


# ---- prompts


@pytest.mark.parametrize(
    "prompts",
    [
        "One",
        {"prompt": "One"},
        tiny_tokenizer().encode("One"),
        {"prompt_token_ids": tiny_tokenizer().encode("One")},
        tuple(tiny_tokenizer().encode("One")),
    ],
)
def test_one_prompt_in_any_form_gives_one_output(prompts: Any) -> None:
    """Alone or in a list."""
    llm = make_llm()

    assert texts(quiet(llm, prompts)) == [" two"]
    assert texts(quiet(llm, [prompts])) == [" two"]


def test_many_prompts_in_mixed_forms_keep_their_order() -> None:
    """However long the answers are."""
    ids = tiny_tokenizer().encode("One")
    prompts = ["Two", {"prompt": "One"}, ids, "Two"]

    assert texts(quiet(make_llm(), prompts)) == [ANSWERS["Two"], " two", " two", ANSWERS["Two"]]


def test_no_prompts_give_no_outputs() -> None:
    """An empty list is not an empty prompt."""
    assert quiet(make_llm(), []) == []


@pytest.mark.parametrize("prompts", [None, 5, b"One"])
def test_something_else_is_refused(prompts: Any) -> None:
    """With the forms that there are."""
    with pytest.raises(InvalidRequestError, match="prompt must be a text, a list of token ids"):
        quiet(make_llm(), prompts)


def test_a_wrong_prompt_in_a_list_is_named_and_nothing_starts() -> None:
    """The whole call is refused before any work."""
    llm = make_llm()

    with pytest.raises(InvalidRequestError, match=r"prompt 1: prompt must not be empty") as caught:
        quiet(llm, ["One", "", "Two"])

    assert caught.value.param == "prompt"
    assert llm.llm_engine.engine.core.stats().num_steps == 0
    with pytest.raises(InvalidRequestError, match=r"^prompt must not be empty"):
        quiet(llm, "")


# ---- parameters


def test_each_prompt_may_have_its_own_parameters() -> None:
    """Given as a list of equal length."""
    params = [GREEDY, GREEDY.replace(max_tokens=1), GREEDY.replace(stop=" four")]

    assert texts(quiet(make_llm(), ["Two", "Two", "Two"], params)) == [
        " three four five",
        " three",
        " three",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": [GREEDY]}, "1 sampling_params for 2 prompts"),
        ({"params": {"temperature": 0}}, "sampling_params must be a SamplingParams or a list"),
        (
            {"params": [GREEDY, None]},
            r"sampling_params\[1\] must be a SamplingParams, got NoneType",
        ),
        ({"priority": [1]}, "1 priority for 2 prompts"),
        ({"priority": "high"}, "priority must be a int or a list"),
        ({"timeout": [1.0]}, "1 timeout for 2 prompts"),
        ({"timeout": "2 s"}, "timeout must be a float or a list"),
        ({"timeout": [1.0, 0]}, "prompt 1: timeout must be a number of seconds above 0"),
        ({"lora_request": object()}, "adapters are not supported"),
    ],
)
def test_wrong_parameters_are_refused(options: Any, message: str) -> None:
    """The message says what is wrong with the list."""
    with pytest.raises(InvalidRequestError, match=message):
        quiet(make_llm(), ["One", "Two"], **options)


def test_without_parameters_the_models_defaults_hold() -> None:
    """From generation_config.json; a new object each time, free to be changed."""
    llm = make_llm(facts={"generation_defaults": {"temperature": 0.0, "max_new_tokens": 2}})

    (output,) = quiet(llm, "Two", None)
    assert len(output.outputs[0].token_ids) == 2
    defaults = llm.get_default_sampling_params()
    assert defaults == SamplingParams(temperature=0, max_tokens=2)
    defaults.max_tokens = 3
    assert llm.get_default_sampling_params().max_tokens == 2
    assert len(quiet(llm, "Two", defaults)[0].outputs[0].token_ids) == 3


def test_the_result_is_final_whatever_the_output_kind() -> None:
    """The parameters that the user passed are left as they are."""
    params = GREEDY.replace(output_kind=RequestOutputKind.DELTA)

    assert texts(quiet(make_llm(), "Two", params)) == [ANSWERS["Two"]]
    assert params.output_kind is RequestOutputKind.DELTA


def test_priority_orders_what_waits() -> None:
    """Lower runs first; one number for all or one each."""
    order: list[int] = []
    llm = scripted_llm(
        says(ANSWERS),
        scheduler={"scheduling_policy": "priority", "max_num_seqs": 1},
        before_run=lambda plan: order.extend(len(row.token_ids) for row in plan.new_rows),
    )

    quiet(llm, [[7] * 2, [7] * 3, [7] * 4], GREEDY.replace(max_tokens=1), priority=[5, 0, 2])

    assert order == [3, 4, 2]
    quiet(llm, ["One", "Two"], priority=3)


def test_metrics_are_kept_on_request() -> None:
    """vLLM's `disable_log_stats=False`."""
    (output,) = quiet(make_llm(keeps_metrics=True), "Two")

    assert output.metrics is not None
    assert output.metrics.first_token_s is not None
    assert output.metrics.last_token_s is not None
    assert output.metrics.arrival_s <= output.metrics.first_token_s <= output.metrics.last_token_s
    assert quiet(make_llm(), "Two")[0].metrics is None


def test_progress_is_shown_unless_turned_off(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr, nothing on stdout."""
    llm = make_llm()
    quiet(llm, "One")
    assert capsys.readouterr() == ("", "")

    llm.generate(["One", "Two"], GREEDY)

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Prompts 2/2")


# ---- chat


def test_a_conversation_goes_through_the_models_template() -> None:
    """The output shows the prompt that the template made."""
    (output,) = make_llm().chat(ONE, GREEDY, use_tqdm=False)

    assert output.prompt == "user: One\nassistant: "
    assert output.outputs[0].text == "chat"


def test_the_template_alone_says_how_a_chat_begins() -> None:
    """A tokenizer that begins every text with a token does not add a second one."""
    tokenizer = tiny_tokenizer(adds_bos=True)
    llm = make_llm(tokenizer=tokenizer)

    (output,) = llm.chat(ONE, GREEDY, use_tqdm=False)

    assert output.prompt_token_ids[0] != tokenizer.bos_token_id
    assert quiet(llm, "One")[0].prompt_token_ids[0] == tokenizer.bos_token_id


def test_several_conversations_keep_their_order() -> None:
    """Each is a list of messages."""
    two = [{"role": "user", "content": "Two"}]

    outputs = make_llm().chat([two, ONE], GREEDY, use_tqdm=False)

    assert [output.prompt for output in outputs] == [
        "user: Two\nassistant: ",
        "user: One\nassistant: ",
    ]


def test_the_template_and_its_inputs_can_be_chosen() -> None:
    """Another template, further variables, a message to go on with."""
    llm = make_llm()

    def prompt(messages: Any = ONE, **options: Any) -> str | None:
        return llm.chat(messages, GREEDY, use_tqdm=False, **options)[0].prompt

    assert prompt(chat_template_kwargs={"extra": "!"}) == "user: One\nassistant: !"
    assert prompt(chat_template="{{ messages[0].content }}") == "One"
    assert prompt(add_generation_prompt=False) == "user: One\n"
    begun = [*ONE, {"role": "assistant", "content": "tw"}]
    assert (
        prompt(begun, add_generation_prompt=False, continue_final_message=True)
        == "user: One\nassistant: tw"
    )
    tools = [{"type": "function", "function": {"name": "now"}}]
    assert prompt(chat_template="{{ tools[0].function.name }}", tools=tools) == "now"
    as_parts = "{{ messages[0].content[0].text }}"
    assert prompt(chat_template=as_parts, chat_template_content_format="openai") == "One"


def test_a_wrong_message_is_refused_by_its_place() -> None:
    """And by its conversation, where there are several."""
    llm = make_llm()
    wrong: Any = [{"role": "user", "content": 5}]

    with pytest.raises(InvalidRequestError, match=r"^messages\[0\]\.content"):
        llm.chat(wrong)
    with pytest.raises(InvalidRequestError, match=r"^conversation 1: messages\[0\]\.content"):
        llm.chat([ONE, wrong])
    nothings: list[Any] = [[], "Hi", None]
    for nothing in nothings:
        with pytest.raises(InvalidRequestError, match="messages must"):
            llm.chat(nothing)
    with pytest.raises(InvalidRequestError, match="chat_template_content_format must be"):
        llm.chat(ONE, chat_template_content_format="xml")  # type: ignore[arg-type]


def test_a_model_without_a_template_says_so() -> None:
    """Instead of guessing one."""
    with pytest.raises(InvalidRequestError, match="no chat template"):
        scripted_llm().chat(ONE)


# ---- the object


def test_the_keyword_names_are_those_of_vllm() -> None:
    """A script needs no change but the import."""
    generate = set(inspect.signature(LLM.generate).parameters)
    chat = set(inspect.signature(LLM.chat).parameters)

    assert {"prompts", "sampling_params", "use_tqdm", "lora_request", "priority"} <= generate
    assert {
        "messages",
        "sampling_params",
        "use_tqdm",
        "lora_request",
        "chat_template",
        "chat_template_content_format",
        "add_generation_prompt",
        "continue_final_message",
        "tools",
        "chat_template_kwargs",
    } <= chat


def test_options_are_checked_before_anything_is_loaded() -> None:
    """Unknown names, and vLLM's that cannot be served."""
    with pytest.raises(ConfigError, match="Did you mean max_model_len"):
        LLM("smollm2:135m", max_model_length=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="tensor_parallel_size=2 is not supported"):
        LLM("smollm2:135m", tensor_parallel_size=2)


def test_a_closed_llm_refuses_prompts() -> None:
    """By `shutdown`, by `close` or at the end of a `with` block."""
    with make_llm() as llm:
        quiet(llm, "One")
    llm.close()
    llm.shutdown()

    with pytest.raises(EngineDeadError, match="shut down"):
        quiet(llm, "One")


def test_the_prefix_cache_can_be_reset() -> None:
    """A repeated prompt is a hit before, and none afterwards."""
    llm = make_llm()
    prompt = [7] * 20
    quiet(llm, prompt)
    assert quiet(llm, prompt)[0].num_cached_tokens == 19  # the last token is always computed

    assert llm.reset_prefix_cache()

    assert quiet(llm, prompt)[0].num_cached_tokens == 0


def test_two_llms_in_one_process_do_not_meet() -> None:
    """Neither answers nor caches are shared."""
    first, second = make_llm(), scripted_llm(says({"One": " duck"}))

    assert texts(quiet(first, "One")) == [" two"]
    assert texts(quiet(second, "One")) == [" duck"]
    assert texts(quiet(first, "One")) == [" two"]


# ---- the real model


@pytest.fixture(scope="module")
def smollm2() -> Iterator[LLM]:
    """With exact products: the recorded answers are those of float32 activations."""
    with LLM(
        str(smollm2_path()),
        max_model_len=1024,
        num_gpu_blocks_override=128,
        activation_dtype="float32",
    ) as llm:
        yield llm


NUM_GOLDEN = 8  # tokens compared; tests/golden looks at all of them


def golden() -> list[dict[str, Any]]:
    """Recorded greedy answers of short prompts, without close calls that rounding could decide."""
    entries = reference("smollm2-135m-instruct-q4_1")["entries"]
    return [
        entry
        for entry in entries
        if len(entry["prompt_token_ids"]) < 100
        and min(step["gap"] for step in entry["steps"][:NUM_GOLDEN]) > 0.02
    ]


def test_greedy_answers_are_the_recorded_ones(smollm2: LLM) -> None:
    """Texts and conversations, all in one batch each: same prompt ids, same answer ids."""
    plain = [entry for entry in golden() if "prompt" in entry]
    chats = [entry for entry in golden() if "messages" in entry]
    params = SamplingParams(temperature=0, max_tokens=NUM_GOLDEN)

    outputs = quiet(smollm2, [entry["prompt"] for entry in plain], params)
    outputs += smollm2.chat([entry["messages"] for entry in chats], params, use_tqdm=False)

    assert len(outputs) > 8
    for entry, output in zip((*plain, *chats), outputs, strict=True):
        assert output.prompt_token_ids == entry["prompt_token_ids"]
        assert output.outputs[0].token_ids == entry["output_token_ids"][:NUM_GOLDEN]


def test_prompts_do_not_yield_to_decoding(smollm2: LLM) -> None:
    """Offline nobody reads along; a server's default bounds the pauses in its streams."""
    assert smollm2.llm_engine.engine.config.scheduler.max_decode_slowdown == 0
    assert SchedulerConfig().max_decode_slowdown > 1


def test_the_answer_does_not_depend_on_company_or_cache(smollm2: LLM) -> None:
    """Alone, again from the cache, and among others."""
    prompt = "The largest planet of the solar system is"
    params = SamplingParams(temperature=0.8, seed=11, max_tokens=12, ignore_eos=True)
    smollm2.reset_prefix_cache()

    (alone,) = quiet(smollm2, prompt, params)
    (again,) = quiet(smollm2, prompt, params)
    *_, among = quiet(smollm2, ["One two", "A b c d", prompt], params)

    assert alone.outputs[0].token_ids == again.outputs[0].token_ids == among.outputs[0].token_ids


def test_choices_of_a_seed_are_the_answers_of_its_followers(smollm2: LLM) -> None:
    """Choice i of n is what `seed + i` gives alone, and choices differ."""
    prompt = "My favourite animal is"
    params = SamplingParams(seed=5, max_tokens=12, ignore_eos=True)

    (several,) = quiet(smollm2, prompt, params.replace(n=3))
    single = quiet(smollm2, [prompt] * 3, [params.replace(seed=5 + i) for i in range(3)])

    answers = [choice.token_ids for choice in several.outputs]
    assert answers == [output.outputs[0].token_ids for output in single]
    assert len({tuple(answer) for answer in answers}) == 3


def test_without_a_seed_answers_differ(smollm2: LLM) -> None:
    """Each request draws its own."""
    params = SamplingParams(max_tokens=12, ignore_eos=True)

    assert len(set(texts(quiet(smollm2, ["Once upon a time"] * 4, params)))) > 1


def test_logprobs_of_prompt_and_answer_agree(smollm2: LLM) -> None:
    """The answer's logprobs are those that the same tokens have as a prompt."""
    prompt = "The capital of France is"
    params = SamplingParams(temperature=0, max_tokens=6, logprobs=2)

    (output,) = quiet(smollm2, prompt, params)
    choice = output.outputs[0]
    whole = output.prompt_token_ids + choice.token_ids
    (scored,) = quiet(smollm2, whole, SamplingParams(max_tokens=1, prompt_logprobs=2))

    assert choice.logprobs is not None
    assert scored.prompt_logprobs is not None
    assert scored.prompt_logprobs[0] is None
    assert len(scored.prompt_logprobs) == len(whole)
    tail = scored.prompt_logprobs[-len(choice.token_ids) :]
    for token_id, entry, again in zip(choice.token_ids, choice.logprobs, tail, strict=True):
        assert again is not None
        assert next(iter(entry)) == token_id
        assert entry[token_id].rank == 1
        assert entry[token_id].decoded_token == smollm2.get_tokenizer().token_of(token_id)
        assert again[token_id].logprob == pytest.approx(entry[token_id].logprob, abs=1e-3)
    pairs = zip(choice.token_ids, choice.logprobs, strict=True)
    total = sum(entry[token_id].logprob for token_id, entry in pairs)
    assert choice.cumulative_logprob == pytest.approx(total)


def test_stops_and_bans_work_on_the_real_model(smollm2: LLM) -> None:
    """Stop strings inside tokens, bad words, allowed tokens, min_tokens against the end token."""
    prompt = "1, 2, 3, 4, 5,"
    greedy = SamplingParams(temperature=0, max_tokens=10)
    tokenizer = smollm2.get_tokenizer()
    end = tokenizer.eos_token_id
    assert end is not None
    (plain,) = texts(quiet(smollm2, prompt, greedy))
    assert plain.startswith(" 6, 7, 8")

    assert texts(quiet(smollm2, prompt, greedy.replace(stop=["zz", ", 8"]))) == [" 6, 7"]
    assert "7" not in texts(quiet(smollm2, prompt, greedy.replace(bad_words=["7"])))[0]
    only = tokenizer.encode(" yes", add_special_tokens=False)[:1]
    allowed = texts(quiet(smollm2, prompt, greedy.replace(allowed_token_ids=only, max_tokens=3)))
    assert allowed == [" yes yes yes"]
    eager = greedy.replace(logit_bias={end: 100.0}, min_tokens=4)
    assert quiet(smollm2, prompt, eager)[0].outputs[0].token_ids[4:] == [end]
