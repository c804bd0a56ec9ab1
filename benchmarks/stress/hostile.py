"""Bodies that are hard work for a server, whatever becomes of them: large ones, and deep ones.

Owns what is sent. Knows no server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MEGABYTES = 20
_SIZE = MEGABYTES * 2**20
_DEPTH = 60_000
_VECTORS = 64
_ANSWERED = 8  # megabytes of a text whose tokens are all written down again
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_RESPONSES, _MESSAGES, _OLLAMA = "/v1/responses", "/v1/messages", "/api/chat"
_EMBED = "/v1/embeddings"

Hostile = Mapping[str, tuple[str, bytes]]  # name -> (path, body)


def hostile_bodies() -> Hostile:
    """All that a server of a text model is asked."""
    return _prompts() | _forms() | _fields() | _dialects()


def vector_bodies() -> Hostile:
    """For a server that makes vectors: large inputs, many of them, answers of many numbers."""
    text, short = _text(), "The quick brown fox. " * 10
    shorts = [f"{number} {short}" for number in range(_VECTORS)]
    cut = {"truncate_prompt_tokens": 256}
    return {
        "embed text": (_EMBED, _body(input=text)),
        "embed cut text": (_EMBED, _body(input=text, **cut)),
        "embed cut bare text": (_EMBED, _body(input=text, add_special_tokens=False, **cut)),
        "embed million ids": (_EMBED, _body(input=[17] * 1_000_000, **cut)),
        "embed many texts": (_EMBED, _body(input=shorts)),
        "embed many as base64": (_EMBED, _body(input=shorts, encoding_format="base64")),
        "embed too many texts": (_EMBED, _body(input=["Hi"] * 400_000)),
        "rerank cut text": ("/rerank", _body(query="Hi", documents=[text], **cut)),
        "rerank beginning": (
            "/rerank",
            _body(query="Hi", documents=[text], max_tokens_per_doc=64),
        ),
        "rerank many texts": ("/rerank", _body(query="Hi", documents=shorts)),
        "score many texts": ("/score", _body(queries="Hi", documents=shorts)),
    }


def token_vector_bodies() -> Hostile:
    """For a server that may be asked for a vector of each token."""
    body = _body(input="The quick brown fox. " * 300, task="token_embed")
    return {"vector of each token": ("/pooling", body)}


def _body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _chat(**fields: Any) -> bytes:
    return _body(messages=[{"role": "user", "content": "Hi"}], max_tokens=4, **fields)


def _text() -> str:
    return ("The quick brown fox, it jumps. " * (_SIZE // 31))[: _SIZE - 200]


def _names(count: int = _SIZE // 30) -> list[str]:
    return [f"choice number {number}" for number in range(count)]


def _prompts() -> dict[str, tuple[str, bytes]]:
    text, short = _text(), "The quick brown fox. " * 50
    parts = [{"type": "text", "text": "Hi"}] * (_SIZE // 35)
    return {
        "text": (_COMPLETIONS, _body(prompt=text)),
        "escaped text": (_COMPLETIONS, _body(prompt="\u00e9\u4e2d" * (_SIZE // 12 - 20))),
        "many texts": (_COMPLETIONS, _body(prompt=[short] * (_SIZE // len(short) - 20))),
        "million ids": (_COMPLETIONS, _body(prompt=[17] * 1_000_000)),
        "many numbers": (_COMPLETIONS, b'{"prompt": [' + b"1," * (_SIZE // 2 - 20) + b"1]}"),
        "million fractions": (_COMPLETIONS, _body(user=[0.123456789] * 1_000_000, prompt="Hi")),
        "prompts of ids": (_COMPLETIONS, _body(prompt=[[17] * 1000] * 1000)),
        "text of a chat": (_CHAT, _body(messages=[{"role": "user", "content": text}])),
        "many messages": (_CHAT, _body(messages=[{"role": "user", "content": "Hi"}] * 400_000)),
        "many parts": (_CHAT, _body(messages=[{"role": "user", "content": parts}])),
        "not JSON": (_CHAT, b"[" * _SIZE),
        "tokenize": ("/tokenize", _body(prompt=text)),
        "tokenize with texts": (
            "/tokenize",
            _body(prompt=text[: _ANSWERED * 2**20], return_token_strs=True),
        ),
        "detokenize": ("/detokenize", _body(tokens=[17] * 1_000_000)),
    }


def _forms() -> dict[str, tuple[str, bytes]]:
    options = _names()
    deep_schema = '{"type": "array", "items": ' * _DEPTH + "{}" + "}" * _DEPTH
    deep_rule = "root ::= " + "(" * _DEPTH + '"a"' + ")" * _DEPTH
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": options}}}
    few = {"type": "object", "properties": {name: {"type": "integer"} for name in _names(9000)}}
    return {
        "large schema": (_CHAT, _chat(structured_outputs={"json": {"enum": options}})),
        "large format": (_CHAT, _chat(response_format=schema)),
        "largest schema": (_CHAT, _chat(structured_outputs={"json": few})),
        "many choices": (_CHAT, _chat(structured_outputs={"choice": options})),
        "deep grammar": (_CHAT, _chat(structured_outputs={"grammar": deep_rule})),
        "deep schema": (
            _CHAT,
            _chat()[:-1] + b', "structured_outputs": {"json": ' + deep_schema.encode() + b"}}",
        ),
        "deep schema in a text": (_CHAT, _chat(structured_outputs={"json": deep_schema[:200_000]})),
        "large expression": (_CHAT, _chat(structured_outputs={"regex": "(a|b)" * 50_000})),
    }


def _fields() -> dict[str, tuple[str, bytes]]:
    names = _names()
    tool = {"type": "function", "function": {"name": "a", "parameters": {"enum": names}}}
    tools = [{"type": "function", "function": {"name": name}} for name in _names(200_000)]
    return {
        "many tools": (_CHAT, _chat(tools=tools)),
        "large tool": (_CHAT, _chat(tools=[tool], tool_choice="required")),
        "offered large tool": (_CHAT, _chat(tools=[tool])),
        "template options": (_CHAT, _chat(chat_template_kwargs=dict.fromkeys(names, 1))),
        "unknown fields": (_CHAT, _chat(**dict.fromkeys(names, 1))),
        "long name": (_CHAT, _chat(**{_text(): 1})),
        "many stops": (_COMPLETIONS, _body(prompt="Hi", stop=names)),
        "many bad words": (_COMPLETIONS, _body(prompt="Hi", bad_words=names)),
        "many biases": (
            _COMPLETIONS,
            _body(prompt="Hi", logit_bias={str(number): 1 for number in range(1_000_000)}),
        ),
        "allowed ids": (_COMPLETIONS, _body(prompt="Hi", allowed_token_ids=[17] * 1_000_000)),
        "arguments": (_COMPLETIONS, _body(prompt="Hi", vllm_xargs={"a": names})),
    }


def _dialects() -> dict[str, tuple[str, bytes]]:
    names, text = _names(), _text()
    hello = [{"role": "user", "content": "Hi"}]
    blocks = [{"type": "text", "text": "Hi"}] * (_SIZE // 35)
    schema = {"type": "object", "properties": {name: {} for name in names}}
    message = {"model": "smollm2:135m", "max_tokens": 4}
    return {
        "invocations": ("/invocations", _body(prompt=text)),
        "batch of chats": ("/v1/chat/completions/batch", _body(messages=[hello] * 400_000)),
        "response text": (_RESPONSES, _body(input=text)),
        "response items": (_RESPONSES, _body(input=hello * 400_000)),
        "response metadata": (_RESPONSES, _body(input="Hi", metadata=dict.fromkeys(names, "1"))),
        "message text": (_MESSAGES, _body(messages=[hello[0] | {"content": text}], **message)),
        "message blocks": (_MESSAGES, _body(messages=[hello[0] | {"content": blocks}], **message)),
        "message tools": (
            _MESSAGES,
            _body(messages=hello, tools=[{"name": "a", "input_schema": schema}], **message),
        ),
        "count of tokens": (
            "/v1/messages/count_tokens",
            _body(messages=[hello[0] | {"content": text}], model="smollm2:135m"),
        ),
        "ollama text": (
            _OLLAMA,
            _body(model="smollm2:135m", messages=[hello[0] | {"content": text}]),
        ),
        "ollama format": (_OLLAMA, _body(model="smollm2:135m", messages=hello, format=schema)),
    }
