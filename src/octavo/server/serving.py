"""From outputs to an answer: the part that completions and chats share.

An `Answer` knows how one choice looks; `respond` sends it whole, or streams it, and ends the work
when the client goes away. Both modes show the same choices: the whole answer is the stream, joined.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.outputs import CompletionOutput, RequestOutput
from octavo.server.bodies import json_response
from octavo.server.chunks import ChunkWriter, encode
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import body_of
from octavo.server.generation import Generation, TokenCounts
from octavo.server.logprobs import TokenNames
from octavo.server.schemas.envelope import Usage
from octavo.server.schemas.sampling import SamplingFields, StreamOptions
from octavo.server.sse import DONE, EVENTS, ByteStream, event
from octavo.server.state import ServerState
from octavo.text.tokenizer import Tokenizer


class SentAnswer(Protocol):
    """What `respond` sends, in whatever shape."""

    @property
    def generation(self) -> Generation: ...
    @property
    def streams(self) -> bool: ...
    async def whole(self) -> dict[str, Any]: ...
    def chunks(self) -> AsyncGenerator[bytes, None]: ...


class Answer(ABC):
    """One request's answer; the routes say what a choice looks like."""

    def __init__(
        self, generation: Generation, body: SamplingFields, model: str, *, kind: str
    ) -> None:
        self._generation = generation
        self._streams = bool(body.stream)
        self._model = model
        self._kind = kind
        self._created = int(time.time())
        self._options = body.stream_options or StreamOptions()
        config = generation.state.config
        self._shows_usage = bool(self._options.include_usage) or config.enable_force_include_usage
        is_continuous = bool(self._options.continuous_usage_stats)
        self._is_continuous = config.enable_force_include_usage or (
            self._shows_usage and is_continuous
        )
        self._shows_metrics = config.enable_per_request_metrics
        self._names_by_id = (
            config.return_tokens_as_token_ids or body.return_tokens_as_token_ids is True
        )
        self._num_unfinished = len(generation.prompts)

    @property
    def generation(self) -> Generation:
        return self._generation

    @property
    def streams(self) -> bool:
        return self._streams

    @property
    def tokenizer(self) -> Tokenizer:
        return self.generation.state.tokenizer

    @property
    def token_names(self) -> TokenNames:
        """What tokens are called in log-probabilities."""
        return TokenNames(self.tokenizer, as_ids=self._names_by_id)

    @abstractmethod
    def choice(
        self, number: int, output: RequestOutput, choice: CompletionOutput
    ) -> dict[str, Any]:
        """A choice of prompt `number`: the whole of it, or what is new in a stream."""

    @abstractmethod
    def plain_chunk(
        self, writer: ChunkWriter, number: int, choice: CompletionOutput
    ) -> bytes | None:
        """The quick form of a chunk with new text only; None where more has to be shown."""

    def first_chunks(self, writer: ChunkWriter, output: RequestOutput) -> list[bytes]:
        """What a stream sends before any text; `output` is the first one."""
        return []

    def parted(self, shown: dict[str, Any]) -> list[dict[str, Any]]:
        """A choice of a stream as the choices of one chunk or more."""
        return [shown]

    def usage_tokens(self) -> int:
        """Generated tokens to report."""
        return self.generation.counts.completion_tokens

    def usage(self) -> Usage:
        counts = self.generation.counts
        counts.completion_tokens = self.usage_tokens()
        return counts.usage(with_details=self.generation.state.config.enable_prompt_tokens_details)

    def first_usage(self) -> Usage | None:
        """Usage before the first token, where each chunk of a stream has it."""
        if not self._is_continuous:
            return None
        counts = TokenCounts(self.generation.counts.prompt_tokens)
        return counts.usage(with_details=self.generation.state.config.enable_prompt_tokens_details)

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choices = []
        async with aclosing(self.generation.outputs()) as outputs:
            async for number, output in outputs:
                if output.finished:
                    choices += [self.choice(number, output, one) for one in output.outputs]
        body = {
            "id": self.generation.answer_id,
            "object": self._kind,
            "created": self._created,
            "model": self._model,
            "choices": sorted(choices, key=lambda choice: int(choice["index"])),
            "usage": self.usage(),
        }
        if self._shows_metrics:
            body["metrics"] = self.generation.times.shown()
        return body

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The events of a stream, with the end mark. An error after the first is an event too."""
        has_begun = False
        writer = ChunkWriter(
            kind=self._kind,
            answer_id=self.generation.answer_id,
            created=self._created,
            model=self._model,
            shows_usage=self._shows_usage,
        )
        try:
            async with aclosing(self.generation.outputs()) as outputs:
                async for number, output in outputs:
                    news = [] if has_begun else self.first_chunks(writer, output)
                    news += self._chunks_of(writer, number, output)
                    for chunk in filter(None, news):
                        has_begun = True
                        yield chunk
            if self._shows_usage:
                yield writer.usage(self.usage(), self._metrics(is_last=True))
        except Exception as error:  # border: the status is sent, so the error is an event
            if not has_begun:
                raise
            yield event(encode(body_of(error)))
        yield DONE

    def _chunks_of(self, writer: ChunkWriter, number: int, output: RequestOutput) -> list[bytes]:
        """The chunks of an output. The very last of a stream has the metrics, if asked for."""
        if output.finished:
            self._num_unfinished -= 1
        is_end = self._num_unfinished == 0 and not self._shows_usage
        last = output.outputs[-1] if output.outputs else None
        return [
            self._chunk(writer, number, output, one, self._metrics(is_last=is_end and one is last))
            for one in output.outputs
        ]

    def _metrics(self, *, is_last: bool) -> dict[str, Any] | None:
        shows = self._shows_metrics and is_last
        return {"metrics": self.generation.times.shown()} if shows else None

    def _chunk(
        self,
        writer: ChunkWriter,
        number: int,
        output: RequestOutput,
        choice: CompletionOutput,
        metrics: dict[str, Any] | None,
    ) -> bytes:
        """A chunk; empty where a plain one would have no text."""
        if choice.finish_reason is None and not self._is_continuous:
            chunk = self.plain_chunk(writer, number, choice)
            if chunk is not None:
                return chunk if choice.text else b""
        usage = self.usage() if self._is_continuous else None
        *before, last = self.parted(self.choice(number, output, choice))
        chunks = [writer.choice(shown, usage) for shown in before]
        return b"".join([*chunks, writer.choice(last, usage, metrics)])


def tenant_of(request: Request) -> str:
    """Whose key the request carries; empty where keys are not asked for."""
    tenant = request.scope.get("state", {}).get("tenant")
    return tenant if isinstance(tenant, str) else ""


async def respond(
    request: Request, answer: SentAnswer, *, stream_type: str = EVENTS
) -> Response | ASGIApp:
    """Send the answer whole, or begin to stream it once its first chunk is there."""
    state = answer.generation.state
    if not answer.streams:
        with state.open_answers.one():
            body = await until_disconnect(request.receive, answer.whole())
        return json_response(body)
    chunks = _counted(state, answer.chunks())
    first = await until_disconnect(request.receive, anext(chunks))
    return ByteStream(first, chunks, media_type=stream_type)


async def _counted(
    state: ServerState, chunks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The same chunks, counted as one open answer from before the first to the end."""
    with state.open_answers.one():
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk
