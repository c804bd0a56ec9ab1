"""An answer in Anthropic's shape: content blocks, or the events that build them.

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming. Both modes show the same
blocks: the whole answer is the stream, joined.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from octavo.chat.stream import ChatPart
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.server.chat_run import ChatRun
from octavo.server.dialects.arguments import input_of
from octavo.server.error_shapes import anthropic_error
from octavo.server.errors import body_of, shutting_down, status_of
from octavo.server.generation import Generation
from octavo.server.schemas.messages import MessageUsage
from octavo.server.sse import named_event

encode = msgspec.json.encode
Event = dict[str, Any]


class MessageAnswer:
    """Turns the outputs of one choice into a message, or the events of one."""

    def __init__(self, run: ChatRun, model: str, *, streams: bool) -> None:
        self._run = run
        self._model = model
        self._streams = streams
        self._blocks = _Blocks()
        self._num_calls = 0

    @property
    def generation(self) -> Generation:
        return self._run.generation

    @property
    def streams(self) -> bool:
        return self._streams

    async def whole(self) -> dict[str, Any]:
        """The message."""
        content: list[dict[str, Any]] = []
        message = self._message(0)
        async with aclosing(self.generation.outputs()) as outputs:
            async for _, output in outputs:
                if not output.finished:
                    continue
                choice = output.outputs[0]
                for event in self._events_of(choice):
                    _join(content, event)
                message |= self._end_of(choice)
                message["usage"] = self._usage(output)
        message["content"] = [_closed(block) for block in content]
        return message

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The events. An error after the first is an event too, and the last."""
        has_begun = False
        try:
            async with aclosing(self.generation.outputs()) as outputs:
                async for _, output in outputs:
                    if not has_begun:
                        has_begun = True
                        yield self._begin(output)
                    choice = output.outputs[0]
                    events = [*self._events_of(choice)]
                    if choice.finish_reason is not None:
                        delta = {"type": "message_delta", "delta": self._end_of(choice)}
                        events += [*self._blocks.close()]
                        events.append({**delta, "usage": self._usage(output)})
                        events.append({"type": "message_stop"})
                    if events:
                        yield b"".join(map(_bytes, events))
        except Exception as error:  # border: the status is sent, so the error is an event
            if not has_begun:
                raise
            message = body_of(error)["error"]["message"]
            yield _bytes(anthropic_error(status_of(error), message))

    def _begin(self, output: RequestOutput) -> bytes:
        message = self._message(output.num_cached_tokens or 0)
        return _bytes({"type": "message_start", "message": message}) + _bytes({"type": "ping"})

    def _message(self, num_cached: int) -> dict[str, Any]:
        """A message without content yet."""
        return {
            "id": self.generation.answer_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._counts(num_cached, 0),
        }

    def _events_of(self, choice: CompletionOutput) -> Iterator[Event]:
        part = self._run.part_of(choice)
        yield from self._blocks.add("thinking", part.reasoning)
        yield from self._blocks.add("text", part.content)
        for call in self._calls_of(choice.index, part):
            yield from self._blocks.add_call(call)

    def _calls_of(self, index: int, part: ChatPart) -> list[dict[str, Any]]:
        calls = self._run.choices.calls_of(index, part, is_delta=False)
        self._num_calls += len(calls)
        return calls

    def _end_of(self, choice: CompletionOutput) -> dict[str, Any]:
        """Why the answer ended. Raises NotReadyError for one that the server cut off."""
        reason, stop = choice.finish_reason, choice.stop_reason
        if reason == "abort" and stop == "timeout":
            return {"stop_reason": "timeout", "stop_sequence": None}
        if reason == "abort":
            raise shutting_down()
        if reason == "length":
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        if self._num_calls:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        if isinstance(stop, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": stop}
        return {"stop_reason": "end_turn", "stop_sequence": None}

    def _usage(self, output: RequestOutput) -> MessageUsage:
        num_tokens = self.generation.counts.completion_tokens
        return self._counts(output.num_cached_tokens or 0, num_tokens)

    def _counts(self, num_cached: int, num_tokens: int) -> MessageUsage:
        return MessageUsage(
            input_tokens=self.generation.counts.prompt_tokens - num_cached,
            output_tokens=num_tokens,
            cache_read_input_tokens=num_cached,
        )


_EMPTY = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class _Blocks:
    """The content blocks so far: one is open at a time."""

    def __init__(self) -> None:
        self._index = -1
        self._kind: str | None = None  # of the open block

    def add(self, kind: str, text: str) -> Iterator[Event]:
        """The events of new text of a kind."""
        if not text:
            return
        if self._kind != kind:
            yield from self._open(kind, _EMPTY[kind])
        yield self._delta({"type": f"{kind}_delta", kind: text})

    def add_call(self, call: dict[str, Any]) -> Iterator[Event]:
        """The events of a call, which is always complete."""
        function = call["function"]
        block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": {}}
        yield from self._open("tool_use", block)
        yield self._delta({"type": "input_json_delta", "partial_json": function["arguments"]})
        yield from self.close()

    def close(self) -> Iterator[Event]:
        """The end of the open block, if any is."""
        if self._kind is not None:
            self._kind = None
            yield {"type": "content_block_stop", "index": self._index}

    def _open(self, kind: str, block: dict[str, Any]) -> Iterator[Event]:
        yield from self.close()
        self._index += 1
        self._kind = kind
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def _join(content: list[dict[str, Any]], event: Event) -> None:
    """Apply an event to the content."""
    if event["type"] == "content_block_start":
        content.append(dict(event["content_block"]))
    elif event["type"] == "content_block_delta":
        block, delta = content[-1], event["delta"]
        if delta["type"] == "input_json_delta":
            block["input"] = delta["partial_json"]
        else:
            block[block["type"]] += delta[block["type"]]


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use":
        block["input"] = input_of(block["input"])
    return block


def _bytes(event: Event) -> bytes:
    return named_event(event["type"], encode(event))
