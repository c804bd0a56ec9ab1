"""What fields of requests mean, by name: sentences and shapes that the structs do not carry.

The structs decode fast and take much as it comes; this is for whoever reads the API's description.
Names are the same in every body of ours, and so is their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
_TEXT_OR_PARTS: Json = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"anyOf": [{"type": "object"}, {"type": "string"}]}},
        {"type": "null"},
    ]
}
_ROLES = "system, developer, user, assistant, tool, or another that the model's template knows."
MESSAGE: Json = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "minLength": 1, "maxLength": 64, "description": _ROLES},
        "content": _TEXT_OR_PARTS,
    },
    "required": ["role"],
}
ITEMS: Mapping[str, Json] = {"messages": MESSAGE}
MEANINGS: Mapping[str, str] = {
    "add_generation_prompt": "End the prompt with the beginning of an answer; true by default.",
    "add_special_tokens": "Add what the tokenizer adds to a text of its own accord, such as BOS.",
    "allowed_token_ids": "No other tokens are drawn.",
    "bad_words": "Texts that the answer must not have.",
    "cache_salt": "Cached tokens are shared only among requests with the same salt.",
    "chat_template_kwargs": "Variables for the chat template.",
    "continue_final_message": "The answer goes on with the last message.",
    "documents": "Documents for chat templates that take them.",
    "early_stopping": "When a beam search ends: false, true, or 'never'.",
    "echo": "Begin the answer with the prompt.",
    "format": "'json', or a JSON schema that the answer has to fit.",
    "frequency_penalty": "Lowers tokens by the number of times that they were drawn; -2 to 2.",
    "ignore_eos": "Go on after the end token.",
    "include_reasoning": "Show the thoughts of a model that thinks aloud; true by default.",
    "include_stop_str_in_output": "Keep the stop text in the answer.",
    "length_penalty": "For beam search: above 1 favours long answers.",
    "logit_bias": "Token ids, and what is added to their logits.",
    "logprob_token_ids": "Tokens whose log-probabilities are shown in place of the best ones.",
    "logprobs": "Log-probabilities of tokens: how many alternatives, or whether at all in chats.",
    "max_completion_tokens": "Most tokens of the answer; what fits by default.",
    "max_tokens": "Most tokens of the answer.",
    "messages": "The conversation so far.",
    "min_p": "Drop tokens below this share of the likeliest one's probability; 0 to 1.",
    "min_tokens": "No end before so many tokens.",
    "model": "One of the served names.",
    "n": "Answers to one prompt.",
    "parallel_tool_calls": "Whether an answer may hold several calls; true by default.",
    "presence_penalty": "Lowers tokens that were drawn before; -2 to 2.",
    "priority": "Lower is served first, with the priority policy.",
    "prompt": "A text, a list of token ids, or a list of either.",
    "prompt_logprobs": "Log-probabilities of the prompt: alternatives of each token.",
    "reasoning_effort": "How much a model thinks, where its chat template knows the word.",
    "repetition_penalty": "Above 1 lowers tokens that were there before.",
    "request_id": "A name for the request, kept in the answer's id.",
    "response_format": "The form of the answer: text, json_object, json_schema, structural_tag.",
    "return_token_ids": "Show token ids of prompt and answer.",
    "seed": "The same seed draws the same answer.",
    "skip_special_tokens": "Leave special tokens out of the text; true by default.",
    "stop": "The answer ends before any of these texts.",
    "stop_sequences": "The answer ends before any of these texts.",
    "stop_token_ids": "The answer ends with any of these tokens.",
    "stream": "Send the answer piece by piece.",
    "stream_options": "What a stream tells of usage.",
    "structured_outputs": "vLLM's form of the answer: json, regex, choice, grammar and others.",
    "system": "Instructions before the conversation.",
    "temperature": "0 takes the likeliest token; higher is more varied.",
    "thinking_token_budget": "Most tokens of thoughts; -1 for no limit.",
    "timeout": "Seconds that the answer may take. What came until then is the answer.",
    "tool_choice": "Whether functions are called: none, auto, required, or the name of one.",
    "tools": "Functions that the model may call.",
    "top_k": "Draw among so many of the likeliest tokens; 0 or -1 for all.",
    "top_logprobs": "Alternatives of each token.",
    "top_p": "Draw among the likeliest tokens that make up this probability; above 0, to 1.",
    "truncate_prompt_tokens": "Keep only so many last tokens of the prompt; -1: what fits.",
    "truncation_side": "Where truncate_prompt_tokens cuts.",
    "use_beam_search": "Look for the likeliest answers; `n` is the width.",
    "user": "Accepted, and not used.",
    "vllm_xargs": "Arguments of logits processors that the server has loaded, by name.",
}


def add_meanings(schema: Json) -> None:
    """Put the sentences and shapes into the schema of a body, where it has none of its own."""
    for name, field in schema.get("properties", {}).items():
        if name in MEANINGS:
            field.setdefault("description", MEANINGS[name])
        if name in ITEMS:
            _set_items(field, ITEMS[name])


def _set_items(field: Json, items: Json) -> None:
    for choice in (field, *field.get("anyOf", ())):
        if choice.get("type") == "array":
            choice["items"] = items
