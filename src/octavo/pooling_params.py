"""PoolingParams: what a request wants of a model that makes vectors. Names are vLLM's."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from octavo.errors import InvalidRequestError

PoolingTask = Literal["embed", "classify", "token_embed", "token_classify"]
"""A vector of the whole prompt, or one of each of its tokens; embeddings, or scores of labels."""
POOLING_TASKS: tuple[str, ...] = get_args(PoolingTask)


class PoolingParams(msgspec.Struct, kw_only=True):
    """How a vector is finished."""

    # Cut an embedding to so many numbers, for models that were trained for it; None: all of them.
    dimensions: int | None = None
    # Make embeddings one unit long, and turn a classifier's scores into probabilities. None: as the
    # model says.
    use_activation: bool | None = None
    task: PoolingTask | None = None  # None: what the model was made for

    def verify(self) -> None:
        """Raises InvalidRequestError that names the field."""
        dimensions = self.dimensions
        if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
            raise InvalidRequestError(
                f"dimensions must be a whole number of at least 1, got {str(dimensions)[:60]}",
                param="dimensions",
            )
        if self.use_activation not in (None, True, False):
            raise InvalidRequestError("use_activation must be a boolean", param="use_activation")
        if self.task is not None and self.task not in POOLING_TASKS:
            raise InvalidRequestError(
                f"task must be one of {', '.join(POOLING_TASKS)}, got {str(self.task)[:60]!r}",
                param="task",
            )
