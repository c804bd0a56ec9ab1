"""Dialects whose calls are JSON objects with a name and arguments."""

from __future__ import annotations

import re

from octavo.chat.tools.base import (
    MalformedCallError,
    ToolCall,
    ToolDialect,
    Tools,
    call_of,
    calls_of_objects,
    is_inside_text,
    parsed,
    parsed_prefix,
)


class Hermes(ToolDialect):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen 2.5, Qwen 3,
    SmolLM3.
    """

    begins = ("<tool_call>",)
    end = "</tool_call>"
    call_form = ('<tool_call>\n{"name": %s, "arguments": ', "}\n</tool_call>")

    def is_open(self, body: str) -> bool:
        return is_inside_text(body)

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        return calls_of_objects(parsed(body))


class LlamaJson(ToolDialect):
    """`{"name": ..., "parameters": {...}}` as the whole answer, `;` between several: Llama 3."""

    begins = ("<|python_tag|>", "{")
    only_at_start = True
    keeps_begin = True
    has_special_tags = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        rest = body.removeprefix("<|python_tag|>")
        calls: list[ToolCall] = []
        while rest.strip():
            value, rest = parsed_prefix(rest)
            if not isinstance(value, dict) or not {"arguments", "parameters"} & value.keys():
                raise MalformedCallError("an object that is no call")
            calls += calls_of_objects(value)
            rest = rest.lstrip().removeprefix(";")
        if not calls:
            raise MalformedCallError("no call")
        return calls


class Mistral(ToolDialect):
    """`[TOOL_CALLS]` and a list of objects, or since Mistral Small 3.1 `name{...}` or
    `name[ARGS]{...}`.
    """

    begins = ("[TOOL_CALLS]",)
    has_special_tags = True
    has_short_ids = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        body = body.strip()
        if body.startswith("[{"):
            value, rest = parsed_prefix(body)
            if rest.strip():
                raise MalformedCallError("text after the calls")
            return calls_of_objects(value)
        calls = []
        for part in body.split("[TOOL_CALLS]"):
            brace = part.find("{")
            if brace < 0:
                raise MalformedCallError("a call without arguments")
            name = re.sub(r"\[(ARGS|CALL_ID)\].*", "", part[:brace], flags=re.DOTALL).strip()
            calls.append(call_of(name, parsed(part[brace:])))
        return calls


class Granite(ToolDialect):
    """`<|tool_call|>[{"name": ..., "arguments": {...}}]`: Granite 3; Granite 4 writes as Hermes."""

    begins = ("<|tool_call|>",)
    has_special_tags = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        return calls_of_objects(parsed(body))


class Phi4Mini(ToolDialect):
    """`functools[{"name": ..., "arguments": {...}}]`: Phi-4-mini."""

    begins = ("functools[",)
    keeps_begin = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        value, rest = parsed_prefix(body.removeprefix("functools"))
        if rest.strip():
            raise MalformedCallError("text after the calls")
        return calls_of_objects(value)


class DeepSeek(ToolDialect):
    """DeepSeek V3 and R1 (`function<sep>name` and fenced JSON) and V3.1 (`name<sep>{...}`)."""

    begins = ("<｜tool▁calls▁begin｜>",)
    end = "<｜tool▁calls▁end｜>"
    has_special_tags = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        calls = []
        for part in body.split("<｜tool▁call▁begin｜>")[1:]:
            head, separator, rest = part.partition("<｜tool▁sep｜>")
            if not separator:
                raise MalformedCallError("a call without a separator")
            rest = rest.partition("<｜tool▁call▁end｜>")[0]
            if head.strip() == "function" and "```" in rest:
                name, _, fenced = rest.partition("```")
                arguments = fenced.removeprefix("json").rpartition("```")[0]
                calls.append(call_of(name.strip(), parsed(arguments)))
            else:
                calls.append(call_of(head.strip(), parsed(rest)))
        if not calls:
            raise MalformedCallError("no call")
        return calls


class Harmony(ToolDialect):
    """gpt-oss: a message to `functions.name` in the channel `commentary`, ended by `<|call|>`."""

    begins = ("<|channel|>commentary to=", "<|start|>assistant to=")
    end = "<|call|>"
    has_special_tags = True
    noise = (
        "<|start|>assistant",
        "<|channel|>final<|message|>",
        "<|channel|>commentary<|message|>",
        "<|end|>",
        "<|return|>",
    )

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        head, separator, arguments = body.partition("<|message|>")
        if not separator:
            raise MalformedCallError("a message without content")
        recipient = re.split(r"\s|<\|", head, maxsplit=1)[0]
        return [call_of(recipient.removeprefix("functions."), parsed(arguments))]
