"""Chunks of streamed answers, built from prepared prefixes.

Everything of a chunk but the new text is known when the stream begins, so the usual chunk is three
byte strings joined around one encoded text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.server.schemas.envelope import Usage
from octavo.server.sse import event

encode = msgspec.json.encode


class ChunkWriter:
    """Writes the chunks of one stream. `shows_usage` adds `"usage":null` to all but the last.

    `beside` has what a chunk holds beside its choices.
    """

    def __init__(
        self, *, kind: str, answer_id: str, created: int, model: str, shows_usage: bool
    ) -> None:
        head = {"id": answer_id, "object": kind, "created": created, "model": model}
        self._head = encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}' if shows_usage else b"]}"

    def choice(
        self,
        choice: dict[str, Any],
        usage: Usage | None = None,
        beside: Mapping[str, Any] | None = None,
    ) -> bytes:
        """A chunk with one choice of any shape."""
        tail = self._tail if usage is None else b'],"usage":' + encode(usage) + b"}"
        return event(self._head + encode(choice) + _with(tail, beside))

    def text(self, index: int, text: str) -> bytes:
        """The usual chunk of a completion: new text, nothing else."""
        return self._plain(b'{"index":%d,"text":' % index, text, b',"logprobs":null,')

    def content(self, index: int, text: str) -> bytes:
        """The usual chunk of a chat: new content, nothing else."""
        return self._plain(b'{"index":%d,"delta":{"content":' % index, text, b'},"logprobs":null,')

    def usage(self, usage: Usage, beside: Mapping[str, Any] | None = None) -> bytes:
        """The last chunk of a stream that asked for usage: no choices."""
        tail = b'],"usage":' + encode(usage) + b"}"
        return event(self._head + _with(tail, beside))

    def _plain(self, before: bytes, text: str, after: bytes) -> bytes:
        end = b'"finish_reason":null}'
        return event(self._head + before + encode(text) + after + end + self._tail)


def _with(tail: bytes, beside: Mapping[str, Any] | None) -> bytes:
    return tail[:-1] + b"," + encode(beside)[1:] if beside else tail
