"""Pooler: which vectors a model makes of texts, and how they are finished.

Owns the tasks that a model can do, what may be asked of them, and the last arithmetic on a vector:
cutting, length one, probabilities. Does not know how the numbers come about, or who asks.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

import msgspec

from octavo.config.model_facts import ModelFacts, PoolingFacts
from octavo.contracts.step import PoolingMethod
from octavo.errors import InvalidRequestError
from octavo.outputs import PoolingOutput
from octavo.pooling_params import PoolingParams, PoolingTask

_TOKEN_TASKS: dict[PoolingTask, PoolingTask] = {
    "token_embed": "embed",
    "token_classify": "classify",
}


def needs_whole_prompts(facts: ModelFacts) -> bool:
    """Whether a prompt cannot be computed in pieces, nor from the prefix cache."""
    return facts.pooling is not None and (not facts.is_causal or facts.pooling.method == "mean")


class Pooler(msgspec.Struct, frozen=True):
    """What one model can make, and how its vectors are finished."""

    facts: PoolingFacts
    width: int  # numbers that the model makes of a token or prompt
    sees_whole_prompts: bool  # in one step, so that every token can have a vector

    @classmethod
    def of(cls, facts: ModelFacts, *, cuts_prompts: bool) -> Pooler | None:
        """None for a model that makes text."""
        pooling = facts.pooling
        if pooling is None:
            return None
        width = pooling.layers[-1].out_features if pooling.layers else facts.hidden_size
        return cls(pooling, width, not cuts_prompts)

    @property
    def tasks(self) -> tuple[PoolingTask, ...]:
        """What may be asked for, the default first."""
        if not self.sees_whole_prompts:
            return (self.facts.task,)
        own = self.facts.task
        of_tokens = next(task for task, whole in _TOKEN_TASKS.items() if whole == own)
        return (of_tokens, own) if self.facts.of_tokens else (own, of_tokens)

    def task_of(self, params: PoolingParams) -> PoolingTask:
        """The task of a request. Raises InvalidRequestError for one that the model cannot do."""
        task = params.task or self.tasks[0]
        if task in self.tasks:
            return task
        message = f"Unsupported task: {task!r} of this model; it can {' and '.join(self.tasks)}"
        if _TOKEN_TASKS.get(task) == self.facts.task:
            message += ". Vectors of tokens need whole prompts: --no-enable-chunked-prefill"
        raise InvalidRequestError(message, param="task")

    def check(self, params: PoolingParams) -> None:
        """Raises InvalidRequestError for what the model cannot do, with the fix."""
        params.verify()
        task = self.task_of(params)
        dimensions, allowed = params.dimensions, self.facts.dimensions
        if dimensions is None:
            return
        if _TOKEN_TASKS.get(task, task) != "embed":
            message = f"dimensions is for embeddings, not for the task {task}; leave it out"
            raise InvalidRequestError(message, param="dimensions")
        if allowed == () and dimensions != self.width:
            raise InvalidRequestError(
                f"dimensions={dimensions}: this model's embeddings have {self.width} numbers and "
                "were not trained to be cut (Matryoshka); leave it out. If they were, start the "
                "engine with --hf-overrides '{\"is_matryoshka\": true}'",
                param="dimensions",
            )
        if dimensions > self.width or (allowed and dimensions not in allowed):
            shown = f"one of {', '.join(map(str, allowed))}" if allowed else f"1 to {self.width}"
            message = f"dimensions must be {shown} for this model, got {dimensions}"
            raise InvalidRequestError(message, param="dimensions")

    def method_of(self, params: PoolingParams) -> PoolingMethod:
        """What the runner has to take."""
        return "all" if self.task_of(params) in _TOKEN_TASKS else self.facts.method

    def finish(self, raw: bytes, params: PoolingParams) -> PoolingOutput:
        """The result of a request from the float32 numbers that the runner gave for it."""
        numbers = array("f", raw)
        task = self.task_of(params)
        step = self.width
        vectors = [
            self._finished(numbers[begin : begin + step], params)
            for begin in range(0, len(numbers), step)
        ]
        if task in _TOKEN_TASKS:
            return PoolingOutput([vector.tolist() for vector in vectors])
        return PoolingOutput(vectors[0].tolist())

    def _finished(self, vector: array[float], params: PoolingParams) -> array[float]:
        is_wanted = params.use_activation
        if self.facts.task == "embed":
            if params.dimensions is not None:
                vector = vector[: params.dimensions]
            return normalized(vector) if _or(is_wanted, self.facts.normalize) else vector
        if not _or(is_wanted, default=True):
            return vector
        return _ACTIVATIONS[self.facts.activation](vector)


def _or(given: bool | None, default: bool) -> bool:
    return default if given is None else given


def normalized(vector: array[float]) -> array[float]:
    """The vector made one unit long; one of zeros stays as it is."""
    length = math.sqrt(math.fsum([value * value for value in vector]))
    if length == 0.0:
        return vector
    return array("f", [value / length for value in vector])


def _softmax(scores: array[float]) -> array[float]:
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = math.fsum(powers)
    return array("f", [power / total for power in powers])


def _sigmoid(scores: array[float]) -> array[float]:
    return array("f", [_sigmoid_of(score) for score in scores])


def _sigmoid_of(score: float) -> float:
    if score >= 0:
        return 1.0 / (1.0 + math.exp(-score))
    power = math.exp(score)
    return power / (1.0 + power)


def _same(scores: array[float]) -> array[float]:
    return scores


_ACTIVATIONS: dict[str, Callable[[array[float]], array[float]]] = {
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "none": _same,
}
