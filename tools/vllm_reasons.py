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

REASONS: tuple[Reason, ...] = ()


def reason_of(file: str, test: str) -> Reason:
    """Why a test failed. Raises LookupError where nobody has looked into it yet."""
    for reason in REASONS:
        if file.startswith(reason.file) and re.search(reason.test, test):
            return reason
    raise LookupError(f"{file}::{test} failed, and tools/vllm_reasons.py does not say why")
