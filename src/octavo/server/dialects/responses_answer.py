"""An answer as a response: whole, or as the events that build it.

Owns the order of a response's life: created, queued, in progress, its items, its end. The whole
answer is the stream, joined. Does not know where a response is kept, nor who listens.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from octavo.outputs import CompletionOutput
from octavo.server.chat_run import ChatRun
from octavo.server.dialects.responses_output import Event, OutputItems
from octavo.server.errors import NotReadyError, body_of, shutting_down, status_of
from octavo.server.generation import Generation
from octavo.server.logprobs import chat_logprobs
from octavo.server.sse import named_event

Keep = Callable[[dict[str, Any]], Awaitable[None]]
_ERROR_CODES = {
    408: "server_error",
    429: "rate_limit_exceeded",
    500: "server_error",
    503: "server_error",
}


class ResponseAnswer:
    """One response while it is made.

    `head` is the response without output. `keep` is given the response when it has ended, before
    anybody is told. `num_best`: logprobs of so many tokens beside each one; None: none at all.
    """

    def __init__(
        self,
        run: ChatRun,
        head: dict[str, Any],
        output: OutputItems,
        *,
        streams: bool,
        keep: Keep | None = None,
        num_best: int | None = None,
    ) -> None:
        self._run, self._head, self._output = run, head, output
        self._streams, self._keep, self._num_best = streams, keep, num_best
        self._sequence = 0
        self._has_started = False
        self._logprobs: list[dict[str, Any]] = []  # of tokens whose text is held back

    @property
    def generation(self) -> Generation:
        return self._run.generation

    @property
    def streams(self) -> bool:
        return self._streams

    @property
    def shown(self) -> dict[str, Any]:
        """The response as it is now."""
        return self._head | {"output": self._output.items}

    async def whole(self) -> dict[str, Any]:
        """The response. An error on the way is the error of the request."""
        async with aclosing(self._steps()) as steps:
            async for _ in steps:
                pass
        return self.shown

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The events. An error after the first is an event too, and the last."""
        has_begun = False
        try:
            async with aclosing(self._steps()) as steps:
                async for events in steps:
                    if events:
                        has_begun = True
                        yield b"".join(map(self._bytes, events))
        except Exception as error:  # border: the status is sent, so the error is an event
            if not has_begun:
                raise
            last = self.fail(error)
            with suppress(NotReadyError):  # of the store: what failed is told all the same
                await self._keep_it()
            yield b"".join(last)

    async def in_background(self, tell: Callable[[bytes], None]) -> None:
        """Make the response; `tell` is given each event after those of `begin`."""
        try:
            async with aclosing(self._steps()) as steps:
                async for events in steps:
                    for event in events:
                        tell(self._bytes(event))
        except Exception as error:  # noqa: BLE001 - border: nobody waits; the response tells
            for last in self.fail(error):
                tell(last)

    def begin(self) -> list[bytes]:
        """The events of one that waits for its turn."""
        events = [self._early_event(f"response.{name}") for name in ("created", "queued")]
        return [self._bytes(event) for event in events]

    def fail(self, error: Exception) -> list[bytes]:
        """End as failed; the last events."""
        status, body = status_of(error), body_of(error)["error"]
        code = _ERROR_CODES.get(status, "server_error" if status >= 500 else "invalid_prompt")
        self._head["error"] = {"code": code, "message": body["message"]}
        return self._cut_off("failed")

    def cancel(self) -> list[bytes]:
        """End as cancelled; the last events. OpenAI's API has no type of its own for that end."""
        self.generation.close()  # it may be cancelled before anybody reads its outputs
        return self._cut_off("cancelled")

    def _cut_off(self, status: str) -> list[bytes]:
        events = [*self._output.close("incomplete")]
        self._end(status)
        return [self._bytes(event) for event in (*events, self._last_event())]

    async def _steps(self) -> AsyncGenerator[list[Event], None]:
        """The events of each output. Raises what ends the answer early."""
        async with aclosing(self.generation.outputs()) as outputs:
            async for _, output in outputs:
                choice = output.outputs[0]
                events = [*self._start(), *self._events_of(choice)]
                if choice.finish_reason is not None:
                    events += self._finish(choice)
                yield events
        await self._keep_it()
        yield [self._last_event()]

    async def _keep_it(self) -> None:
        if self._keep is not None:
            await self._keep(self.shown)

    def _events_of(self, choice: CompletionOutput) -> Iterator[Event]:
        part = self._run.part_of(choice)
        self._logprobs += self._logprobs_of(choice)
        yield from self._output.add_thoughts(part.reasoning)
        if part.content:
            logprobs, self._logprobs = self._logprobs, []
            yield from self._output.add_text(part.content, logprobs)
        elif part:
            self._logprobs = []
        for call in self._run.choices.calls_of(choice.index, part, is_delta=False):
            yield from self._output.add_call(call)

    def _logprobs_of(self, choice: CompletionOutput) -> list[dict[str, Any]]:
        """One entry for each new token of the text: thoughts and the end token have none."""
        if self._num_best is None or choice.logprobs is None:
            return []
        tokenizer = self.generation.state.tokenizer
        entries: list[dict[str, Any]] = chat_logprobs(
            tokenizer, choice.logprobs.raw, self._num_best
        )["content"]
        shown = self._run.choices.answer_tokens or [True] * len(entries)
        return [
            entry
            for entry, token_id, is_answer in zip(entries, choice.token_ids, shown, strict=True)
            if is_answer and token_id not in tokenizer.special_ids
        ]

    def _finish(self, choice: CompletionOutput) -> list[Event]:
        """The end of the last item. Raises NotReadyError for an answer that the server cut off."""
        reason = "max_output_tokens" if choice.finish_reason == "length" else None
        if choice.finish_reason == "abort":
            if choice.stop_reason != "timeout":
                raise shutting_down()
            reason = "timeout"
        if reason is not None:
            self._head["incomplete_details"] = {"reason": reason}
        status = "completed" if reason is None else "incomplete"
        events = [*self._output.finish(status)]
        self._end(status)
        return events

    def _end(self, status: str) -> None:
        self._head["status"] = status
        self._head["completed_at"] = int(time.time()) if status == "completed" else None
        self._head["usage"] = self._usage()

    def _usage(self) -> dict[str, Any]:
        counts = self.generation.counts
        num_thoughts = self._run.choices.num_reasoning_tokens or 0
        return {
            "input_tokens": counts.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": counts.cached_tokens,
                "cache_write_tokens": 0,  # nothing is charged for filling the cache
            },
            "output_tokens": counts.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": num_thoughts},
            "total_tokens": counts.prompt_tokens + counts.completion_tokens,
        }

    def _start(self) -> Iterator[Event]:
        """The events before the first output."""
        if self._has_started:
            return
        self._has_started = True
        if self._head["status"] != "queued":
            yield self._early_event("response.created")
        self._head["status"] = "in_progress"
        yield self._early_event("response.in_progress")

    def _early_event(self, name: str) -> Event:
        return {"type": name, "response": self._head | {"output": []}}

    def _last_event(self) -> Event:
        status = self._head["status"]
        name = "incomplete" if status == "cancelled" else status
        return {"type": f"response.{name}", "response": self.shown}

    def _bytes(self, event: Event) -> bytes:
        """The event with its number."""
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return named_event(event["type"], msgspec.json.encode(event))
