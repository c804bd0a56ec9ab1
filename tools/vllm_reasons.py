"""Why tests of vLLM's do not pass, or are not run at all: one line for each reason.

`tools/vllm_tests_page.py` puts them on the page; a failure without a reason is an error there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

KINDS: Mapping[str, str] = {
    "model": "ask more of the model than the stand-in has",
    "absent": "ask for a feature that is not there",
    "differs": "ask for what is answered otherwise here",
    "client": "do not fit to the packages at hand",
}


class Reason(NamedTuple):
    """Why tests fail."""

    file: str  # the beginning of its name
    test: str  # a regular expression that is in the names of the tests
    kind: str  # one of `KINDS`
    why: str


_ADAPTERS = "adapters (LoRA) are not served"
_PATH = "the path is not served"
_NO_MODEL = "no model at hand does it"
_INSIDE = "it tests classes inside of vLLM, not a server"

# File below tests/entrypoints/ -> why it is not run.
NOT_RUN: Mapping[str, str] = {
    "openai/completion/test_completion_with_prompt_embeds": "prompt embeddings are not served",
    "openai/completion/test_token_in_token_out": "a server has always a tokenizer",
    "openai/responses/test_parsable_context": "needs the tools of gpt-oss in the server",
    "openai/test_openai_schema": "one test of many minutes; `scripts/fuzz-api` asks the same",
    "cohere/test_chat_v2": f"Cohere's chat: {_PATH}",
    "pooling/embed/test_cohere_online": f"Cohere's embeddings: {_PATH}",
    "pooling/embed/test_cohere_openai_parity": f"Cohere's embeddings: {_PATH}",
    "generate/generative_scoring/test_generative_scoring_e2e": f"scoring by label tokens: {_PATH}",
    "scale_out/render/test_render": "there is no server without a model",
    "scale_out/render/test_launch_render": "there is no server without a model",
    "scale_out/derender/test_derender_parity": f"tokens into an answer: {_PATH}",
    "scale_out/token_in_token_out/test_serving_tokens": f"tokens in, tokens out: {_PATH}",
    "serve/exception_handling/test_http_status_metrics": _INSIDE,
    "serve/lora/test_lora_adapters": _ADAPTERS,
    "serve/dev/test_sleep": "a server does not sleep: the model stays loaded",
    "serve/dev/rlhf/state_transitions/test_pause_resume": "a server is not paused",
    "serve/dev/rpc/test_collective_rpc": "code from elsewhere is not loaded into the engine",
    "serve/sagemaker/test_sagemaker_handler_overrides": "handlers from elsewhere are not loaded",
    "pooling/embed/test_online_long_text": "longer texts are refused, not pooled in pieces",
    "pooling/scoring/test_cross_encoder_online": f"a multilingual reranker: {_NO_MODEL}",
    "pooling/scoring/test_late_interaction_online": f"late interaction: {_NO_MODEL}",
    "pooling/classify/test_online": f"a classifier: {_NO_MODEL}",
    "pooling/token_classify/test_online": f"a classifier: {_NO_MODEL}",
}

_CHAT = "openai/chat_completion/"
_CERTAIN = "a certain answer is asked for"
_CALL = "a tool call is asked for, of a model that is not made for them"
_THOUGHTS = "thoughts are asked for, of a model that has none"
_ENDS = "the answer must end by itself"
_GOES_ON = "the answer must not end by itself"
_TOKENS = "the tokens of another tokenizer are counted"
_MORE = "the model does this task too"
_WORDS = "refused here too, in other words"

REASONS: tuple[Reason, ...] = (
    Reason(f"{_CHAT}test_chat.py", r"zephyr-lora", "absent", _ADAPTERS),
    Reason(
        f"{_CHAT}test_chat.py",
        "more_than_one_prompt_logprobs",
        "model",
        "the prompt's second token must be the likeliest one",
    ),
    Reason(
        f"{_CHAT}test_chat.py",
        "single_chat_session",
        "model",
        "the tokens of another model's chat template are counted",
    ),
    Reason(f"{_CHAT}test_chat.py", "regex|json|complex_message", "model", _CERTAIN),
    Reason(f"{_CHAT}test_chat_echo", "continue_final_message", "model", _ENDS),
    Reason(f"{_CHAT}test_completion_with_function", r"tool_use\[True", "model", _THOUGHTS),
    Reason(f"{_CHAT}test_completion_with_function", r"tool_use\[False", "model", _CALL),
    Reason(f"{_CHAT}test_completion_with_function", "named", "model", _ENDS),
    Reason(f"{_CHAT}test_include_reasoning", "reasoning", "model", _THOUGHTS),
    Reason(f"{_CHAT}test_root_path", "root_path", "model", _ENDS),
    Reason(f"{_CHAT}test_thinking_token_budget", "budget", "model", _THOUGHTS),
    Reason(
        "openai/completion/test_completion.py",
        "parallel",
        "model",
        "answers must end by themselves, at different lengths",
    ),
    Reason(
        "openai/completion/test_prompt_validation",
        "empty_prompt",
        "absent",
        "it asks with prompt embeddings, which are not served",
    ),
    Reason("openai/models/test_models", "check_models", "absent", _ADAPTERS),
    Reason("openai/responses/test_basic", "simple_input|chat", "model", _CERTAIN),
    Reason("openai/responses/test_function_call", "tool_use", "model", _THOUGHTS),
    Reason("openai/responses/test_function_call", "streaming_types", "model", _ENDS),
    Reason("openai/responses/test_function_call", "streaming", "model", _CALL),
    Reason(
        "openai/responses/test_simple",
        "response_messages",
        "absent",
        "answers do not show the tokens of their prompts; /tokenize does",
    ),
    Reason("openai/responses/test_simple", "reasoning", "model", _THOUGHTS),
    Reason(
        "openai/responses/test_simple",
        "basic",
        "model",
        "thoughts are to be left out, by a template that has no word for it",
    ),
    Reason("openai/responses/test_simple", "max_tokens", "model", _GOES_ON),
    Reason("openai/responses/test_stateful", "prev", "model", _CERTAIN),
    Reason("openai/responses/test_structured_output", "parse", "model", _CERTAIN),
    Reason("openai/test_return_token_ids", "tool_use", "model", _CALL),
    Reason(
        "openai/test_return_token_ids",
        "comparison",
        "model",
        "an answer of more than the end token is asked for",
    ),
    Reason("openai/test_run_batch", "score", "absent", f"a reranker: {_NO_MODEL}"),
    Reason("openai/test_run_batch", "transcription|translation", "absent", "sound is not served"),
    Reason("openai/test_run_batch", "reasoning_parser", "model", _THOUGHTS),
    Reason("anthropic/", "simple_messages", "model", _ENDS),
    Reason("anthropic/", "tool_call", "model", _CALL),
    Reason(
        "anthropic/",
        "test_anthropic_streaming$",
        "differs",
        "message_start tells cached tokens apart, as Anthropic's API does",
    ),
    Reason("anthropic/", "cache_usage", "client", "this client takes no temperature any more"),
    Reason(
        "launchers/test_shutdown",
        "multi_api_server",
        "differs",
        "one process answers, whatever --api-server-count says",
    ),
    Reason("launchers/api_server/", "streaming", "model", _GOES_ON),
    Reason(
        "serve/instrumentator/test_metrics",
        "metrics_counts",
        "differs",
        "prompts share the cache to the token, so the same short prompt is computed once",
    ),
    Reason("serve/instrumentator/test_metrics", "run_batch", "absent", "run-batch opens no port"),
    Reason("serve/middleware/", "v2_endpoint_accepts", "absent", f"Cohere's embeddings: {_PATH}"),
    Reason("pooling/basic/test_truncation", "bigger", "differs", _WORDS),
    Reason("pooling/embed/test_online", "basic|chat_request", "model", _TOKENS),
    Reason("pooling/embed/test_online", r"not_supported\[token_embed", "differs", _MORE),
    Reason("pooling/token_embed/", "pooling_token_embed", "model", _TOKENS),
    Reason("pooling/token_embed/", r"not_supported\[embed", "differs", _MORE),
    Reason(
        "pooling/scoring/test_bi_encoder",
        "pooling_embed",
        "model",
        "vectors of another width are asked for",
    ),
)


def reason_of(file: str, test: str) -> Reason:
    """Why a test failed. Raises LookupError where nobody has looked into it yet."""
    for reason in REASONS:
        if file.startswith(reason.file) and re.search(reason.test, test):
            return reason
    raise LookupError(f"{file}::{test} failed, and tools/vllm_reasons.py does not say why")
