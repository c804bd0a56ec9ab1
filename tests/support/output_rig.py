"""A front end's output side without a core: deltas go in by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.request import BeamSpec
from octavo.contracts.step import TokenLogprobs
from octavo.engine.build import Engine
from octavo.engine.fan_out import RequestStream
from octavo.engine.output import OutputProcessor
from octavo.foundation.clock import ManualClock
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.sampling_params import SamplingParams
from tests.support.scripted_engine import scripted_engine


class OutputRig:
    """A processor with one request. `push` plays a step and returns the output, if there is one."""

    def __init__(
        self,
        params: SamplingParams,
        prompt: Any = "One",
        *,
        beam: BeamSpec | None = None,
        **options: Any,
    ) -> None:
        self.engine: Engine = scripted_engine(model={"max_logprobs": -1})
        self.clock = ManualClock(1.0)
        self.aborted: list[tuple[list[str], FinishReason]] = []
        self.news: list[RequestStream] = []
        self.processor = OutputProcessor(self.engine.tokenizer, self._abort, self.clock, **options)
        self.stream = self.open("r", params, prompt, beam)

    def open(
        self,
        request_id: str,
        params: SamplingParams,
        prompt: Any = "One",
        beam: BeamSpec | None = None,
    ) -> RequestStream:
        encoded = self.engine.intake.encode(prompt)
        requests = self.engine.intake.requests(request_id, encoded, params, beam=beam)
        return self.processor.open(request_id, encoded, params, requests, self.news.append)

    def _abort(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        self.aborted.append((list(request_ids), reason))

    def push(self, *tokens: int, core_id: str = "r", **fields: Any) -> RequestOutput | None:
        self.processor.process([TokenDelta(core_id, list(tokens), **fields)])
        return self.stream.take()

    def choice(self, *tokens: int, **fields: Any) -> CompletionOutput:
        output = self.push(*tokens, **fields)
        assert output is not None
        assert len(output.outputs) == 1
        return output.outputs[0]


def logprobs_for(tokens: Sequence[int]) -> list[TokenLogprobs]:
    """The token itself with -0.5, token 7 with -0.25 as the best."""
    return [TokenLogprobs([token, 7], [-0.5, -0.25], 2) for token in tokens]
