"""What a model writes -> output items of a response, and the events that build them.

Source of names and shapes: OpenAI's API reference, "Streaming events". One item is open at a time.
Does not know the response around the items, nor sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from octavo.server.dialects.responses_ids import ItemIds
from octavo.server.dialects.responses_items import sealed

Event = dict[str, Any]
Item = dict[str, Any]


class OutputItems:
    """The items of one answer so far; `num_before` items of the same response came in.

    With `summarises` thoughts are shown as a summary too, with `seals` as one opaque text too.
    """

    def __init__(
        self, ids: ItemIds, num_before: int, *, summarises: bool = False, seals: bool = False
    ) -> None:
        self.items: list[Item] = []
        self._ids, self._num_before = ids, num_before
        self._summarises, self._seals = summarises, seals
        self._kind: str | None = None  # of the open item

    def add_thoughts(self, text: str) -> Iterator[Event]:
        """The events of new thoughts."""
        if not text:
            return
        if self._kind != "reasoning":
            yield from self._open_thoughts()
        self._last["content"][0]["text"] += text
        yield self._at("response.reasoning_text.delta", content_index=0, delta=text)
        if self._summarises:
            self._last["summary"][0]["text"] += text
            name = "response.reasoning_summary_text.delta"
            yield self._at(name, summary_index=0, delta=text)

    def add_text(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        """The events of new text, with those of its tokens' logprobs that are asked for."""
        if not text:
            return
        if self._kind != "message":
            yield from self._open_message()
        part = self._last["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        name = "response.output_text.delta"
        yield self._at(name, content_index=0, delta=text, logprobs=logprobs)

    def add_call(self, call: dict[str, Any]) -> Iterator[Event]:
        """The events of a call, which is always complete."""
        function = call["function"]
        arguments = function["arguments"]
        item = {
            "id": self._new_id("function_call"),
            "type": "function_call",
            "status": "in_progress",
            "call_id": call["id"],
            "name": function["name"],
            "arguments": "",
        }
        yield from self._open(item)
        yield self._at("response.function_call_arguments.delta", delta=arguments)
        self._last["arguments"] = arguments
        name = "response.function_call_arguments.done"
        yield self._at(name, name=function["name"], arguments=arguments)
        yield from self.close()

    def finish(self, status: str) -> Iterator[Event]:
        """The end of the answer, which has at least one item."""
        if not self.items:
            yield from self._open_message()
        yield from self.close(status)

    def close(self, status: str = "completed") -> Iterator[Event]:
        """The end of the open item, if any is."""
        kind, self._kind = self._kind, None
        if kind is None:
            return
        item = self._last
        if kind == "message":
            part = item["content"][0]
            name = "response.output_text.done"
            yield self._at(name, content_index=0, text=part["text"], logprobs=part["logprobs"])
            yield self._at("response.content_part.done", content_index=0, part=_copy(part))
        elif kind == "reasoning":
            yield from self._close_thoughts(item)
        item["status"] = status
        yield self._of_item("response.output_item.done")

    def _open_message(self) -> Iterator[Event]:
        item: Item = {
            "id": self._new_id("message"),
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        yield from self._open(item)
        part: Item = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        item["content"].append(part)
        yield self._at("response.content_part.added", content_index=0, part=_copy(part))

    def _open_thoughts(self) -> Iterator[Event]:
        item: Item = {
            "id": self._new_id("reasoning"),
            "type": "reasoning",
            "status": "in_progress",
            "summary": [],
            "content": [],
            "encrypted_content": None,
        }
        yield from self._open(item)
        item["content"].append({"type": "reasoning_text", "text": ""})
        part = dict(item["content"][0])
        yield self._at("response.content_part.added", content_index=0, part=part)
        if self._summarises:
            item["summary"].append({"type": "summary_text", "text": ""})
            part = dict(item["summary"][0])
            yield self._at("response.reasoning_summary_part.added", summary_index=0, part=part)

    def _close_thoughts(self, item: Item) -> Iterator[Event]:
        text = item["content"][0]["text"]
        yield self._at("response.reasoning_text.done", content_index=0, text=text)
        part = dict(item["content"][0])
        yield self._at("response.content_part.done", content_index=0, part=part)
        if self._summarises:
            name = "response.reasoning_summary_text.done"
            yield self._at(name, summary_index=0, text=text)
            part = dict(item["summary"][0])
            yield self._at("response.reasoning_summary_part.done", summary_index=0, part=part)
        if self._seals:
            item["encrypted_content"] = sealed(text)

    def _open(self, item: Item) -> Iterator[Event]:
        yield from self.close()
        self.items.append(item)
        self._kind = item["type"]
        yield self._of_item("response.output_item.added")

    @property
    def _last(self) -> Item:
        return self.items[-1]

    def _new_id(self, kind: str) -> str:
        return self._ids.of(kind, self._num_before + len(self.items))

    def _of_item(self, name: str) -> Event:
        return {"type": name, "output_index": len(self.items) - 1, "item": _copy(self._last)}

    def _at(self, kind: str, **fields: Any) -> Event:
        place = {"item_id": self._last["id"], "output_index": len(self.items) - 1}
        return {"type": kind, **place, **fields}


def _copy(item: Item) -> Item:
    """An item or a part as it is now: what follows changes its own lists only."""
    return {
        name: [dict(entry) for entry in value] if isinstance(value, list) else value
        for name, value in item.items()
    }
