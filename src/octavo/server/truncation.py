"""truncate_prompt_tokens: keep the last tokens of a prompt, or the first, only when asked."""

from __future__ import annotations

from octavo.errors import InvalidRequestError

SIDES = ("left", "right")


def cut_prompt(
    token_ids: list[int], keep: int | None, max_model_len: int, side: str | None = None
) -> tuple[list[int], bool]:
    """(token ids, whether they were cut). `keep` of -1 means as many as the context holds.

    `side` is where tokens are lost, left unless it says right. Raises InvalidRequestError for
    another word, and when `keep` is below -1, is 0, or exceeds the context.
    """
    if side not in (None, *SIDES):
        message = f"truncation_side must be left or right, got {side[:30]!r}"
        raise InvalidRequestError(message, param="truncation_side")
    if keep is None:
        return token_ids, False
    if keep == -1:
        keep = max_model_len - 1  # an answer needs a place for one token
    if keep < 1 or keep > max_model_len:
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be -1, or between 1 and the context of "
            f"{max_model_len} tokens",
            param="truncate_prompt_tokens",
        )
    if len(token_ids) <= keep:
        return token_ids, False
    return (token_ids[:keep] if side == "right" else token_ids[-keep:]), True
