"""LLM, AsyncLLM and LLMEngine with the calls that scripts make of vLLM's; the work is Octavo's.

What vLLM's have and these have not is an AttributeError that says what to do instead.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NoReturn, Self

from octavo import llm
from octavo.compat.vllm.engine_args import Args
from octavo.compat.vllm.names import missing_call
from octavo.config.keywords import engine_config
from octavo.engine.async_engine import AsyncLLM as Engine
from octavo.engine.build import build_engine
from octavo.engine.sync_engine import SyncEngine
from octavo.errors import InvalidRequestError
from octavo.foundation.clock import SystemClock
from octavo.outputs import PoolingRequestOutput, RequestOutput
from octavo.pooling_params import PoolingParams
from octavo.prompts import PromptType
from octavo.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer


class LLM(llm.LLM):
    """Octavo's LLM, with vLLM's way to make one from an object of options."""

    @classmethod
    def from_engine_args(cls, engine_args: Args) -> Self:
        """Raises as the constructor does."""
        return cls(**engine_args.options())

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(missing_call("LLM", name))


class AsyncLLM:
    """Octavo's AsyncLLM behind vLLM's calls: `shutdown` is one that needs no await.

    It loads in the background; the first request waits for it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @classmethod
    def from_engine_args(cls, engine_args: Args, **more: Any) -> Self:
        """Begin to load. Raises ConfigError for options, InvalidRequestError for `more`."""
        more.pop("start_engine_loop", None)  # there is one from the first request on
        more.pop("usage_context", None)  # nothing is reported to anybody
        _refuse(more)
        return cls(Engine.start(engine_args.create_engine_config()))

    async def generate(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        trace_headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one request. Raises as Octavo's does, and for more than it serves."""
        _refuse(more)
        async for output in self.engine.generate(
            prompt, sampling_params, request_id, priority=priority, trace_headers=trace_headers
        ):
            yield output

    async def encode(
        self,
        prompt: PromptType,
        pooling_params: PoolingParams,
        request_id: str,
        *,
        priority: int = 0,
        trace_headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """The vector of one prompt, as a generator of one output."""
        _refuse(more)
        async for output in self.engine.encode(
            prompt, pooling_params, request_id, priority=priority, trace_headers=trace_headers
        ):
            yield output

    async def abort(self, request_id: str | Sequence[str]) -> None:
        """End live requests by name."""
        await self.engine.abort(request_id)

    async def check_health(self) -> None:
        """Raises EngineDeadError."""
        await self.engine.check_health()

    async def get_tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return await self.engine.get_tokenizer()

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; False while any request runs."""
        return await self.engine.reset_prefix_cache()

    @property
    def is_running(self) -> bool:
        """Whether the engine loads or serves."""
        return self.engine.is_running

    @property
    def errored(self) -> bool:
        """Whether the engine ended by a fault."""
        return self.engine.errored

    def shutdown(self) -> None:
        """End every request and the engine. May be called twice."""
        self.engine.close()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(missing_call("AsyncLLM", name))


class LLMEngine(SyncEngine):
    """An engine for those who step by hand."""

    @classmethod
    def from_engine_args(cls, engine_args: Args, **more: Any) -> Self:
        """Load the model. Raises as `LLM` does."""
        more.pop("usage_context", None)
        _refuse(more)
        clock = SystemClock()
        options = engine_args.options()
        has_metrics = not options.pop("disable_log_stats", True)
        engine = build_engine(engine_config(options), clock, lambda phase, share: None)
        return cls(engine, clock, keeps_metrics=has_metrics)

    def add_request(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams,
        *,
        priority: int = 0,
        timeout: float | None = None,
        trace_headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Start one request; `step` hands out its outputs. Raises InvalidRequestError."""
        _refuse(more)
        super().add_request(
            request_id,
            prompt,
            params,
            priority=priority,
            timeout=timeout,
            trace_headers=trace_headers,
        )

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self.engine.tokenizer

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(missing_call("LLMEngine", name))


def _refuse(more: dict[str, Any]) -> None:
    """Arguments of vLLM's that are not served pass only where they ask for nothing."""
    for name, value in more.items():
        if value is not None:
            reason = "adapters are not supported" if name == "lora_request" else "it is not served"
            raise InvalidRequestError(f"{name}: {reason}", param=name)
