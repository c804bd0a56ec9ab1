"""LLM: offline inference, the way most scripts use a model.

Owns the forms in which prompts and parameters may be given, and the order of the results. The loop
is in `engine/sync_engine.py`. Names and defaults are vLLM's.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from types import NoneType, TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeGuard, Unpack, cast

from octavo.chat.template import ChatTemplate
from octavo.config.engine import EngineConfig
from octavo.config.keywords import LLMOptions, engine_config
from octavo.contracts.request import BeamSpec
from octavo.engine.beam_search import beam_search_output, beam_spec, text_params
from octavo.engine.build import Engine, build_engine
from octavo.engine.sync_engine import Job, SyncEngine
from octavo.errors import InvalidRequestError
from octavo.foundation.clock import Clock, SystemClock
from octavo.inputs import is_one, naming, one_each
from octavo.llm_pooling import PoolingCalls
from octavo.outputs import BeamSearchOutput, RequestOutput
from octavo.prompts import PromptType, TokensPrompt
from octavo.sampling_params import BeamSearchParams, SamplingParams
from octavo.text.tokenizer import Tokenizer

_OFFLINE: Mapping[str, Any] = {"max_decode_slowdown": 0}
"""Nobody reads along: prompts need not be computed in small portions beside the decoding rows."""

Conversation: TypeAlias = Sequence[Mapping[str, Any]]


class LLM(PoolingCalls):
    """A model in this process.

    `model` is a short name, hub id, local folder or .gguf file. Options are the fields of
    `config/engine.py`; `disable_log_stats=False` adds `metrics` to every output.

    Raises ConfigError for an option, ModelFileError or DownloadError for the model, DoesNotFitError
    when the memory does not suffice. One thread at a time may use it.
    """

    def __init__(
        self, model: str, *, disable_log_stats: bool = True, **options: Unpack[LLMOptions]
    ) -> None:
        config = engine_config({**_OFFLINE, "model": model, **options})
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
        self._chat_template = ChatTemplate(engine.chat_template, engine.tokenizer.special_tokens)
        self._stop = weakref.finalize(self, self.llm_engine.stop)

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[RequestOutput]:
        """Answer one or many prompts; the outputs come in the order of the prompts.

        `sampling_params`: one for all, one per prompt, or None for the model's defaults. `use_tqdm`
        shows a progress line on stderr. An answer that failed inside the engine has the finish
        reason "error"; one that took longer than `timeout` seconds from this call on ends as it is,
        with the finish reason "abort" and the stop reason "timeout".

        Raises InvalidRequestError before anything starts if any prompt or parameter is wrong; with
        several prompts the message names the index.
        """
        _refuse_lora(lora_request)
        several = [prompts] if is_one(prompts) else cast(Sequence[PromptType], prompts)
        return self._answer(several, sampling_params, priority, timeout, use_tqdm)

    def beam_search(
        self,
        prompts: PromptType | Sequence[PromptType],
        params: BeamSearchParams,
        lora_request: None = None,
        use_tqdm: bool = False,
        concurrency_limit: int | None = None,
        *,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[BeamSearchOutput]:
        """The `params.beam_width` likeliest answers to each prompt, the best first.

        At most `concurrency_limit` prompts are searched at a time; None leaves it to the scheduler.
        `timeout` as in `generate`. Raises as `generate` does.
        """
        _refuse_lora(lora_request)
        beam = beam_spec(params)
        sampling = text_params(params, self.llm_engine.engine.intake.limits.max_logprobs)
        several = [prompts] if is_one(prompts) else cast(Sequence[PromptType], prompts)
        jobs = self._jobs(several, sampling, None, timeout, beam)
        at_once = _checked_limit(concurrency_limit) or max(1, len(jobs))
        outputs: list[RequestOutput] = []
        for begin in range(0, len(jobs), at_once):
            group = jobs[begin : begin + at_once]
            outputs += self.llm_engine.run(group, shows_progress=use_tqdm)
        tokenizer = self.get_tokenizer()
        return [beam_search_output(output, params, tokenizer) for output in outputs]

    def chat(  # noqa: PLR0913 - vLLM's signature
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        lora_request: None = None,
        *,
        chat_template: str | None = None,
        chat_template_content_format: Literal["auto", "string", "openai"] = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        priority: int | Sequence[int] | None = None,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[RequestOutput]:
        """Answer one or many conversations, each a list of messages as OpenAI's API has them.

        The model's template makes the prompt, or `chat_template`, the text of another one; further
        variables for it are in `chat_template_kwargs`. `continue_final_message` goes on with the
        last message and needs `add_generation_prompt=False`.

        Raises InvalidRequestError that says which message is wrong, or that the template refuses.
        """
        _refuse_lora(lora_request)
        template = self._template(chat_template, chat_template_content_format)
        several = [messages] if _is_conversation(messages) else messages
        prompts: list[PromptType] = []
        for conversation in several:
            with naming(len(prompts), len(several), "conversation"):
                text = template.render(
                    conversation,
                    tools=tools,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                    template_kwargs=chat_template_kwargs,
                )
                ids = self.get_tokenizer().encode(text, add_special_tokens=False, param="messages")
                prompts.append(TokensPrompt(prompt_token_ids=ids, prompt=text))
        return self._answer(prompts, sampling_params, priority, timeout, use_tqdm)

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self.llm_engine.engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's generation_config.json asks for; a new object each time."""
        return SamplingParams.from_optional(self.llm_engine.engine.default_sampling)

    def reset_prefix_cache(self, *, reset_external: bool = False) -> bool:
        """Forget all cached blocks; False, and nothing happens, while any request runs.

        `reset_external` also clears the folder of `kv_offload_dir`.
        """
        return self.llm_engine.engine.core.reset_prefix_cache(reset_external=reset_external)

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
        timeout: float | Sequence[float | None] | None,
        use_tqdm: bool,
    ) -> list[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        jobs = self._jobs(prompts, sampling_params, priority, timeout)
        return self.llm_engine.run(jobs, shows_progress=use_tqdm)

    def _jobs(
        self,
        prompts: Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams],
        priority: int | Sequence[int] | None,
        timeout: float | Sequence[float | None] | None,
        beam: BeamSpec | None = None,
    ) -> list[Job]:
        """Check everything; nothing has started if something is wrong."""
        count = len(prompts)
        params = one_each(sampling_params, SamplingParams, count, "sampling_params")
        priorities = one_each(0 if priority is None else priority, int, count, "priority")
        timeouts = one_each(timeout, (float, int, NoneType), count, "timeout")
        jobs: list[Job] = []
        for own in zip(prompts, params, priorities, timeouts, strict=True):
            prompt, own_params, own_priority, own_timeout = own
            with naming(len(jobs), count, "prompt"):
                job = self.llm_engine.check(
                    prompt, own_params, priority=own_priority, timeout=own_timeout, beam=beam
                )
                jobs.append(job)
        return jobs

    def _template(
        self, source: str | None, content_format: Literal["auto", "string", "openai"]
    ) -> ChatTemplate:
        """The model's template, or one made from `source`."""
        if content_format not in ("auto", "string", "openai"):
            raise InvalidRequestError(
                f"chat_template_content_format must be auto, string or openai, "
                f"got {content_format!r}",
                param="chat_template_content_format",
            )
        if source is None and content_format == "auto":
            return self._chat_template
        return ChatTemplate(
            self._chat_template.source if source is None else source,
            self.get_tokenizer().special_tokens,
            content_format=None if content_format == "auto" else content_format,
        )


def _is_conversation(messages: Any) -> TypeGuard[Conversation]:
    """One conversation, rather than a list of them."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        return True  # of a wrong form, which the template says better
    return not isinstance(messages[0], Sequence)


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidRequestError(
            f"concurrency_limit must be a whole number of at least 1, or None, got {limit!r}",
            param="concurrency_limit",
        )
    return limit


def _refuse_lora(lora_request: object) -> None:
    if lora_request is not None:
        raise InvalidRequestError("lora_request: adapters are not supported", param="lora_request")


def _ignore_progress(phase: str, share: float) -> None:
    """Loading an LLM is silent."""
