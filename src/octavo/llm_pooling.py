"""PoolingCalls: the calls of an LLM that makes vectors of texts instead of answers.

Owns the forms in which texts and parameters may be given, and the shape of the results. Names and
defaults are vLLM's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

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
        use_tqdm: bool = True,
    ) -> list[PoolingRequestOutput]:
        """The vector of each prompt, or with a task such as "token_embed" those of its tokens."""
        several = [prompts] if is_one(prompts) else cast(Sequence[PromptType], prompts)
        given = PoolingParams() if pooling_params is None else pooling_params
        params = one_each(given, PoolingParams, len(several), "pooling_params")
        jobs: list[PoolingJob] = []
        for prompt, own in zip(several, params, strict=True):
            with naming(len(jobs), len(several), "prompt"):
                jobs.append(self.llm_engine.check_pooling(prompt, _with_task(own, pooling_task)))
        return self.llm_engine.run_pooling(jobs, shows_progress=use_tqdm)

    def embed(
        self,
        prompts: PromptType | Sequence[PromptType],
        pooling_params: GivenParams = None,
        *,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """The embedding of each prompt."""
        made = self.encode(prompts, pooling_params, pooling_task="embed", use_tqdm=use_tqdm)
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
        use_tqdm: bool = True,
    ) -> list[ClassificationRequestOutput]:
        """A number for each label of the model, for each prompt."""
        made = self.encode(prompts, pooling_params, pooling_task="classify", use_tqdm=use_tqdm)
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
        pairs = paired(_texts(data_1), _texts(data_2), ("data_1", "data_2"))
        if not reads_pairs(engine):
            return self._similarities(pairs, pooling_params, use_tqdm)
        prompts = [
            pair_prompt(engine, first, second, max_tokens=truncate_prompt_tokens)
            for first, second in pairs
        ]
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

    def _similarities(
        self, pairs: list[tuple[str, str]], params: PoolingParams | None, use_tqdm: bool
    ) -> list[ScoringRequestOutput]:
        """Each text is embedded once, however many pairs it is in."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        made = dict(zip(texts, self.embed(texts, params, use_tqdm=use_tqdm), strict=True))
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
