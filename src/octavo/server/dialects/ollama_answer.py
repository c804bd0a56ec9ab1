"""An answer in Ollama's shape: one object, or a line of JSON for each piece.

The last line has the reason, the counts, and the times in nanoseconds. Both modes show the same:
the whole answer is the stream, joined.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec

from octavo.outputs import CompletionOutput
from octavo.server.chat_run import ChatRun
from octavo.server.dialects.arguments import input_of
from octavo.server.error_shapes import ollama_error
from octavo.server.errors import body_of
from octavo.server.generation import Generation
from octavo.server.logprobs import chat_logprobs

LINES = "application/x-ndjson"
Part = dict[str, Any]


class OllamaAnswer:
    """Turns the outputs of one choice into the object, or the lines, of one request.

    `is_chat`: text is in a `message`, else in `response`. `num_best` alternatives of each token are
    shown; None: no log-probabilities.
    """

    def __init__(
        self, run: ChatRun, model: str, *, is_chat: bool, streams: bool, num_best: int | None
    ) -> None:
        self._run = run
        self._model = model
        self._is_chat = is_chat
        self._streams = streams
        self._num_best = num_best

    @property
    def generation(self) -> Generation:
        return self._run.generation

    @property
    def streams(self) -> bool:
        return self._streams

    async def whole(self) -> dict[str, Any]:
        """The object."""
        shown: dict[str, Any] = {}
        async with aclosing(self.generation.outputs()) as outputs:
            async for _, output in outputs:
                if output.finished:
                    choice = output.outputs[0]
                    _, shown = self._shown(choice)
                    shown |= self._end_of(choice)
        return shown

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The lines. An error after the first is a line too, and the last."""
        has_begun = False
        try:
            async with aclosing(self.generation.outputs()) as outputs:
                async for _, output in outputs:
                    choice = output.outputs[0]
                    has_news, shown = self._shown(choice)
                    if has_news:
                        has_begun = True
                        yield _line(shown)
                    if choice.finish_reason is not None:
                        has_begun = True
                        empty = envelope(self._model, self._text({"content": ""}))
                        yield _line(empty | self._end_of(choice))
        except Exception as error:  # border: the status is sent, so the error is a line
            if not has_begun:
                raise
            yield _line(ollama_error(body_of(error)["error"]["message"]))

    def _shown(self, choice: CompletionOutput) -> tuple[bool, dict[str, Any]]:
        """Whether anything is new, and the object that shows it."""
        part = self._run.part_of(choice)
        calls = self._run.choices.calls_of(choice.index, part, is_delta=True)
        piece: Part = {"content": part.content}
        if part.reasoning:
            piece["thinking"] = part.reasoning
        if calls:
            piece["tool_calls"] = [_call(call) for call in calls]
        shown = envelope(self._model, self._text(piece))
        has_news = bool(part)
        if self._num_best is not None and choice.logprobs is not None:
            tokenizer = self.generation.state.tokenizer
            entries = chat_logprobs(tokenizer, choice.logprobs.raw, self._num_best)["content"]
            shown["logprobs"] = entries
            has_news = has_news or bool(entries)
        return has_news, shown

    def _text(self, piece: Part) -> dict[str, Any]:
        if self._is_chat:
            return {"message": {"role": "assistant", **piece}}
        return {"response": piece.pop("content"), **piece}

    def _end_of(self, choice: CompletionOutput) -> dict[str, Any]:
        """The reason, the counts and the times."""
        times, counts = self.generation.times.total, self.generation.counts
        is_late = choice.finish_reason == "abort" and choice.stop_reason == "timeout"
        return {
            "done": True,
            "done_reason": "timeout" if is_late else choice.finish_reason,
            "total_duration": _ns(times.arrival_s, times.last_token_s),
            "load_duration": 0,  # it was loaded before
            "prompt_eval_count": counts.prompt_tokens,
            "prompt_eval_duration": _ns(times.admitted_s, times.first_token_s),
            "eval_count": counts.completion_tokens,
            "eval_duration": _ns(times.first_token_s, times.last_token_s),
        }


def loaded_answer(model: str, *, is_chat: bool) -> dict[str, Any]:
    """The answer to a request that only wants the model to be there."""
    text: dict[str, Any] = {"response": ""}
    if is_chat:
        text = {"message": {"role": "assistant", "content": ""}}
    return envelope(model, text) | {"done": True, "done_reason": "load"}


def envelope(model: str, text: dict[str, Any]) -> dict[str, Any]:
    """What every object begins with."""
    return {"model": model, "created_at": time_text(datetime.now(UTC)), **text, "done": False}


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A call with its arguments as an object."""
    function = call["function"]
    shown = {"index": call["index"], "name": function["name"]}
    return {"id": call["id"], "function": {**shown, "arguments": input_of(function["arguments"])}}


def _ns(since_s: float | None, until_s: float | None) -> int:
    return 0 if since_s is None or until_s is None else max(0, round(1e9 * (until_s - since_s)))


def _line(shown: dict[str, Any]) -> bytes:
    return msgspec.json.encode(shown) + b"\n"
