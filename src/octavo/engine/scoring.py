"""Scores of pairs of texts: by a model that reads both, or by two embeddings.

Owns the prompt of a pair, which pairs a request means, and the similarity of two vectors. Does not
know who runs the prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from octavo.engine.build import Engine
from octavo.errors import InvalidRequestError
from octavo.prompts import TokensPrompt

T = TypeVar("T")


def reads_pairs(engine: Engine) -> bool:
    """Whether the model scores a pair as one text; else it embeds each of the two.

    Raises InvalidRequestError for a model that can do neither.
    """
    pooler = engine.intake.limits.pooler
    if pooler is None:
        raise InvalidRequestError(
            "this model generates text and scores none; serve an embedding model or a reranker, or "
            "start the engine with --runner pooling"
        )
    if pooler.facts.task == "embed":
        return False
    if len(pooler.facts.labels) != 1:
        raise InvalidRequestError(
            f"a score needs a classifier of 1 label, this one has {len(pooler.facts.labels)}; "
            "use /classify"
        )
    return True


def pair_prompt(
    engine: Engine, first: str, second: str, *, max_tokens: int | None = None
) -> TokensPrompt:
    """Both texts in one prompt, put together by the tokenizer's own rules."""
    if max_tokens is None:
        for text in (first, second):
            engine.intake.check_text_length(text)
    ids, second_segment = engine.tokenizer.encode_pair(first, second, max_tokens=max_tokens)
    prompt: TokensPrompt = {"prompt_token_ids": ids}
    if second_segment >= 0 and engine.facts.num_segments > 1:
        num_second = len(ids) - second_segment
        prompt["token_type_ids"] = [0] * second_segment + [1] * num_second
    return prompt


def paired(first: Sequence[T], second: Sequence[T], names: tuple[str, str]) -> list[tuple[T, T]]:
    """One with each of many, or each with its counterpart.

    Raises InvalidRequestError for none, and for two lists that do not belong together.
    """
    if not first or not second:
        name = names[0] if not first else names[1]
        raise InvalidRequestError(f"{name} must hold at least one text", param=name)
    if len(first) == 1:
        return [(first[0], other) for other in second]
    if len(first) != len(second):
        raise InvalidRequestError(
            f"{names[0]} must hold one text, or as many as {names[1]}: got {len(first)} and "
            f"{len(second)}",
            param=names[0],
        )
    return list(zip(first, second, strict=True))


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """The cosine of the angle between two vectors; 0 where one of them has no direction."""
    product = math.fsum([a * b for a, b in zip(first, second, strict=True)])
    lengths = math.sqrt(math.fsum([a * a for a in first]) * math.fsum([b * b for b in second]))
    return product / lengths if lengths else 0.0
