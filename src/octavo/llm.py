"""LLM: offline inference, the way most scripts use a model.

Owns the forms in which prompts and parameters may be given, and the order of the results. The loop
is in `engine/sync_engine.py`. Names and defaults are vLLM's.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from octavo.config.engine import EngineConfig
from octavo.config.keywords import LLMOptions, engine_config
from octavo.engine.build import Engine, build_engine
from octavo.engine.sync_engine import Job, SyncEngine
from octavo.errors import InvalidRequestError
from octavo.foundation.clock import Clock, SystemClock
from octavo.outputs import RequestOutput
from octavo.prompts import PromptType
from octavo.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer


class LLM:
    """A model in this process.

    `model` is a short name, hub id, local folder or .gguf file. Options are the fields of
    `config/engine.py`; `disable_log_stats=False` adds `metrics` to every output.

    Raises ConfigError for an option, ModelFileError or DownloadError for the model, DoesNotFitError
    when the memory does not suffice. One thread at a time may use it.
    """

    def __init__(
        self, model: str, *, disable_log_stats: bool = True, **options: Unpack[LLMOptions]
    ) -> None:
        config = engine_config({"model": model, **options})
        clock = SystemClock()
        engine = build_engine(config, clock, _ignore_progress)
        self._attach(engine, clock, keeps_metrics=not disable_log_stats)

    @classmethod
    def from_config(cls, config: EngineConfig) -> Self:
        """An LLM from a complete configuration."""
        clock = SystemClock()
        return cls.from_engine(build_engine(config, clock, _ignore_progress), clock)

    @classmethod
    def from_engine(cls, engine: Engine, clock: Clock, *, keeps_metrics: bool = False) -> Self:
        """An LLM around an engine that has been built."""
        self = cls.__new__(cls)
        self._attach(engine, clock, keeps_metrics=keeps_metrics)
        return self

    def _attach(self, engine: Engine, clock: Clock, *, keeps_metrics: bool) -> None:
        self.llm_engine = SyncEngine(engine, clock, keeps_metrics=keeps_metrics)
        self._stop = weakref.finalize(self, self.llm_engine.stop)

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answer one or many prompts; the outputs come in the order of the prompts.

        `sampling_params`: one for all, one per prompt, or None for the model's defaults. `use_tqdm`
        shows a progress line on stderr. An answer that failed inside the engine has the finish
        reason "error".

        Raises InvalidRequestError before anything starts if any prompt or parameter is wrong; with
        several prompts the message names the index.
        """
        _refuse_lora(lora_request)
        several: Sequence[PromptType] = [prompts] if _is_one(prompts) else prompts  # type: ignore[assignment,list-item]
        return self._answer(several, sampling_params, priority, use_tqdm)

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self.llm_engine.engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's generation_config.json asks for; a new object each time."""
        return SamplingParams.from_optional(self.llm_engine.engine.default_sampling)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; False, and nothing happens, while any request runs."""
        return self.llm_engine.engine.core.reset_prefix_cache()

    def shutdown(self) -> None:
        """Give threads and memory back. May be called twice."""
        self._stop()

    close = shutdown

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _answer(
        self,
        prompts: Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: int | Sequence[int] | None,
        use_tqdm: bool,
    ) -> list[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        params = _one_each(sampling_params, SamplingParams, len(prompts), "sampling_params")
        priorities = _one_each(0 if priority is None else priority, int, len(prompts), "priority")
        jobs: list[Job] = []
        for prompt, own_params, own_priority in zip(prompts, params, priorities, strict=True):
            try:
                jobs.append(self.llm_engine.check(prompt, own_params, priority=own_priority))
            except InvalidRequestError as error:
                if len(prompts) == 1:
                    raise
                message = f"prompt {len(jobs)}: {error.message}"
                raise type(error)(message, param=error.param) from error
        return self.llm_engine.run(jobs, shows_progress=use_tqdm)


def _is_one(prompts: Any) -> bool:
    """One prompt, rather than a list of them: a text, a dict or a list of token ids."""
    if not isinstance(prompts, Sequence) or isinstance(prompts, str):
        return True
    return bool(prompts) and not isinstance(prompts[0], str | dict | Sequence)


def _one_each(given: Any, kind: type[Any], count: int, name: str) -> Sequence[Any]:
    """One value for each prompt."""
    if isinstance(given, kind):
        return [given] * count
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        message = f"{name} must be a {kind.__name__} or a list of them, got {type(given).__name__}"
        raise InvalidRequestError(message, param=name)
    if len(given) != count:
        raise InvalidRequestError(f"{len(given)} {name} for {count} prompts", param=name)
    for place, value in enumerate(given):
        if not isinstance(value, kind):
            message = f"{name}[{place}] must be a {kind.__name__}, got {type(value).__name__}"
            raise InvalidRequestError(message, param=name)
    return given


def _refuse_lora(lora_request: object) -> None:
    if lora_request is not None:
        raise InvalidRequestError("lora_request: adapters are not supported", param="lora_request")


def _ignore_progress(phase: str, share: float) -> None:
    """Loading an LLM is silent."""
