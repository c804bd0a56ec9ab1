"""PoolingCalls: the calls of an LLM that makes vectors of texts instead of answers.

Owns the forms in which texts and parameters may be given, and the shape of the results. Names and
defaults are vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from octavo.engine.encoded import most_tokens
from octavo.engine.scoring import cosine, pair_prompt, paired, reads_pairs
from octavo.engine.sync_engine import PoolingJob, SyncEngine
from octavo.errors import InvalidRequestError
from octavo.inputs import is_one, naming, one_each
from octavo.outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from octavo.pooling_params import PoolingParams, PoolingTask
from octavo.prompts import PromptType

GivenParams = PoolingParams | Sequence[PoolingParams] | None


class PoolingCalls:
    """For models that make vectors; every call raises InvalidRequestError for one that makes text.

    Prompts are checked before anything starts; with several the message names the index.
    """

    llm_engine: SyncEngine

    def encode(
        self,
        prompts: PromptType | Sequence[PromptType],
        pooling_params: GivenParams = None,
        *,
        pooling_task: PoolingTask | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
    ) -> list[PoolingRequestOutput]:
        """The vector of each prompt, or with a task such as "token_embed" those of its tokens.

        Of a prompt that is too long `truncate_prompt_tokens` keeps the beginning, special tokens
        included; -1: as much as the model takes. The same in `embed` and `classify`.
        """
        keep = self._most_tokens(truncate_prompt_tokens)
        several = [prompts] if is_one(prompts) else cast(Sequence[PromptType], prompts)
        given = PoolingParams() if pooling_params is None else pooling_params
        params = one_each(given, PoolingParams, len(several), "pooling_params")
        jobs: list[PoolingJob] = []
        for prompt, own in zip(several, params, strict=True):
            with naming(len(jobs), len(several), "prompt"):
                cut = prompt if keep is None else self._beginning(prompt, keep)
                jobs.append(self.llm_engine.check_pooling(cut, _with_task(own, pooling_task)))
        return self.llm_engine.run_pooling(jobs, shows_progress=use_tqdm)

    def embed(
        self,
        prompts: PromptType | Sequence[PromptType],
        pooling_params: GivenParams = None,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """The embedding of each prompt."""
        made = self.encode(
            prompts,
            pooling_params,
            pooling_task="embed",
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
        )
        return [
            EmbeddingRequestOutput(
                one.request_id,
                EmbeddingOutput(_vector(one)),
                one.prompt_token_ids,
                one.finished,
                one.num_cached_tokens,
                one.metrics,
            )
            for one in made
        ]

    def classify(
        self,
        prompts: PromptType | Sequence[PromptType],
        pooling_params: GivenParams = None,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
    ) -> list[ClassificationRequestOutput]:
        """A number for each label of the model, for each prompt."""
        made = self.encode(
            prompts,
            pooling_params,
            pooling_task="classify",
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
        )
        return [
            ClassificationRequestOutput(
                one.request_id,
                ClassificationOutput(_vector(one)),
                one.prompt_token_ids,
                one.finished,
                one.num_cached_tokens,
                one.metrics,
            )
            for one in made
        ]

    def reward(
        self,
        prompts: PromptType | Sequence[PromptType],
        pooling_params: GivenParams = None,
        *,
        use_tqdm: bool = True,
    ) -> list[PoolingRequestOutput]:
        """The scores of a reward model for each prompt, as they are unless asked otherwise."""
        given = PoolingParams(use_activation=False) if pooling_params is None else pooling_params
        return self.encode(prompts, given, pooling_task="classify", use_tqdm=use_tqdm)

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        *,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
    ) -> list[ScoringRequestOutput]:
        """How well texts belong together: one with each of many, or each with its counterpart.

        A model of one label reads both texts; an embedding model gives the cosine of two vectors.
        """
        engine = self.llm_engine.engine
        keep = self._most_tokens(truncate_prompt_tokens)
        pairs = paired(_texts(data_1), _texts(data_2), ("data_1", "data_2"))
        if not reads_pairs(engine):
            return self._similarities(pairs, pooling_params, keep, use_tqdm)
        prompts = [pair_prompt(engine, *pair, max_tokens=keep) for pair in pairs]
        made = self.encode(prompts, pooling_params, pooling_task="classify", use_tqdm=use_tqdm)
        return [
            ScoringRequestOutput(
                one.request_id,
                ScoringOutput(_vector(one)[0]),
                one.prompt_token_ids,
                one.finished,
                one.num_cached_tokens,
                one.metrics,
            )
            for one in made
        ]

    def _most_tokens(self, keep: int | None) -> int | None:
        """Tokens of a prompt to keep, None for all. Raises InvalidRequestError."""
        return None if keep is None else most_tokens(keep, self.llm_engine.engine.max_model_len)

    def _beginning(self, prompt: PromptType, keep: int) -> PromptType:
        """What of a prompt fits so many tokens; anything wrong is left for the intake to refuse."""
        if isinstance(prompt, str):
            return self.llm_engine.engine.tokenizer.encode_cut(prompt, keep)
        if isinstance(prompt, Mapping):
            text = prompt.get("prompt")
            if isinstance(text, str) and "prompt_token_ids" not in prompt:
                return self.llm_engine.engine.tokenizer.encode_cut(text, keep)
            return prompt
        return prompt[:keep]

    def _similarities(
        self,
        pairs: list[tuple[str, str]],
        params: PoolingParams | None,
        keep: int | None,
        use_tqdm: bool,
    ) -> list[ScoringRequestOutput]:
        """Each text is embedded once, however many pairs it is in."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        vectors = self.embed(texts, params, truncate_prompt_tokens=keep, use_tqdm=use_tqdm)
        made = dict(zip(texts, vectors, strict=True))
        return [
            ScoringRequestOutput(
                f"{made[first].request_id}-{made[second].request_id}",
                ScoringOutput(
                    cosine(made[first].outputs.embedding, made[second].outputs.embedding)
                ),
                [*made[first].prompt_token_ids, *made[second].prompt_token_ids],
                finished=True,
            )
            for first, second in pairs
        ]


def _with_task(params: PoolingParams, task: PoolingTask | None) -> PoolingParams:
    """The parameters for the task of a call, which must not ask for another one."""
    if task is None or params.task == task:
        return params
    if params.task is not None:
        message = f"pooling_params ask for the task {params.task}, the call for {task}"
        raise InvalidRequestError(message, param="pooling_params")
    return PoolingParams(
        dimensions=params.dimensions, use_activation=params.use_activation, task=task
    )


def _vector(output: PoolingRequestOutput) -> list[float]:
    return cast(list[float], output.outputs.data)


def _texts(given: Any) -> Sequence[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequestError("score takes a text or a list of texts", param="data_1")
    return texts
