"""The forms in which a user may give a prompt. `engine/intake.py` checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypeAlias, TypedDict


class TextPrompt(TypedDict):
    """A text that still has to be tokenised."""

    prompt: str
    cache_salt: NotRequired[str]  # prompts with different salts never share cached blocks


class TokensPrompt(TypedDict):
    """Token ids. `prompt`, where given, is only what outputs show as the prompt's text."""

    prompt_token_ids: Sequence[int]
    prompt: NotRequired[str]
    token_type_ids: NotRequired[Sequence[int]]  # 0 for the first of two texts, 1 for the second
    cache_salt: NotRequired[str]


PromptType: TypeAlias = str | Sequence[int] | TextPrompt | TokensPrompt
