"""Prompts as token ids."""

from __future__ import annotations

import msgspec

from octavo.errors import InvalidRequestError
from octavo.sampling_params import shown


class EncodedPrompt(msgspec.Struct, frozen=True):
    """A prompt as token ids inside the vocabulary, at least one."""

    token_ids: list[int]
    text: str | None = None
    cache_salt: str | None = None
    second_segment: int = -1  # the first token of the second of two texts


def most_tokens(keep: int, max_model_len: int) -> int:
    """How many tokens `truncate_prompt_tokens` keeps of a prompt without an answer.

    -1 means as many as the context holds. Raises InvalidRequestError for what cannot be meant.
    """
    if keep != -1 and not (type(keep) is int and 1 <= keep <= max_model_len):
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be -1, or between 1 and the context of {max_model_len} "
            f"tokens, got {shown(keep)}. Please request a smaller truncation size.",
            param="truncate_prompt_tokens",
        )
    return max_model_len if keep == -1 else keep
