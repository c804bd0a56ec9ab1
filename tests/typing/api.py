"""User code that a strict type checker must accept. Never run; `tests/test_typing.py` checks it."""

from __future__ import annotations

from collections.abc import Sequence

from octavo import (
    LLM,
    AsyncLLM,
    CompletionOutput,
    EngineConfig,
    InvalidRequestError,
    Logprob,
    PoolingParams,
    PromptType,
    RequestOutput,
    RequestOutputKind,
    SamplingParams,
    TextPrompt,
    TokensPrompt,
    __version__,
)


def offline(prompts: list[str]) -> list[str]:
    """Prompts in each form, options by name."""
    version: str = __version__
    params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=64, stop=["\n"], seed=1)
    with LLM(
        "smollm2:135m",
        max_model_len=2048,
        gpu_memory_utilization=0.5,
        enable_prefix_caching=True,
        tensor_parallel_size=1,
        enforce_eager=True,
    ) as llm:
        outputs: list[RequestOutput] = llm.generate(prompts, params)
        llm.generate("one", use_tqdm=False)
        llm.generate([1, 2, 3], [params])
        llm.generate([[1, 2], [3]], params, priority=[0, 1])
        llm.generate(TextPrompt(prompt="one"), params)
        llm.generate(TokensPrompt(prompt_token_ids=[1], cache_salt="tenant"), params)
        mixed: list[PromptType] = ["one", [1, 2], {"prompt": "one"}, {"prompt_token_ids": [1]}]
        llm.generate(mixed, params)
        vectors: list[list[float]] = [one.outputs.embedding for one in llm.embed(prompts)]
        llm.encode("one", PoolingParams(use_activation=False), pooling_task="token_embed")
        scores: list[float] = [one.outputs.score for one in llm.score("one", ["two", "three"])]
        assert len(vectors) == len(scores)
        llm.chat([{"role": "user", "content": "hello"}], params)
        llm.chat(
            [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]],
            [params, params],
            use_tqdm=False,
            chat_template_kwargs={"enable_thinking": False},
        )
        defaults: SamplingParams = llm.get_default_sampling_params()
        defaults.max_tokens = 100
        ids: list[int] = llm.get_tokenizer().encode("text")
        llm.reset_prefix_cache()
    first: CompletionOutput = outputs[0].outputs[0]
    if first.logprobs is not None:
        entry: dict[int, Logprob] = first.logprobs[0]
        best: float = max(logprob.logprob for logprob in entry.values())
        return [f"{best} {ids} {version}"]
    reason: str | None = first.finish_reason
    return [first.text, reason or ""]


async def online(config: EngineConfig, prompt: PromptType) -> str:
    """A stream of deltas."""
    params = SamplingParams(output_kind=RequestOutputKind.DELTA, max_tokens=None)
    text = ""
    async with AsyncLLM.start(config) as engine:
        async for output in engine.generate(prompt, params, "name", priority=1):
            text += output.outputs[0].text
        await engine.check_health()
        hits: int = (await engine.stats()).prefix_hit_tokens
        await engine.shutdown(drain_s=5)
    return f"{text} {hits}"


def wrong_names() -> None:
    """A checker finds them before the program runs: an unused "type: ignore" is an error."""
    SamplingParams(temprature=1)  # type: ignore[call-arg]
    SamplingParams(temperature="hot")  # type: ignore[arg-type]
    LLM("smollm2:135m", max_model_length=5)  # type: ignore[call-arg]


def refused(prompts: Sequence[PromptType]) -> str | None:
    """Errors carry the field's name."""
    try:
        LLM.from_config(EngineConfig()).generate(prompts)
    except InvalidRequestError as error:
        return error.param
    return None
