"""truncate_prompt_tokens: keep the last tokens of a prompt, or the first, only when asked."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import InvalidRequestError
from octavo.server.field_names import errors_name
from octavo.server.schemas.sampling import SamplingFields
from octavo.server.state import ServerState

SIDES = ("left", "right")


async def encoded(
    state: ServerState,
    text: str,
    body: SamplingFields,
    *,
    adds_specials: bool,
    names: Mapping[str, str],
) -> tuple[list[int], bool]:
    """(token ids of a prompt, whether they were cut), as much of it as the request wants.

    Raises InvalidRequestError, and PromptTooLongError where nothing is to be cut.
    """
    keep = tokens_kept(body, state.loaded.max_model_len)
    if keep is None:
        state.loaded.intake.check_text_length(text, names.get("prompt", "prompt"))
    with errors_name(names):
        ids = await state.tokenise(
            text,
            add_special_tokens=adds_specials,
            enough=state.loaded.max_model_len if keep is None else keep,
            at_end=keep is not None and body.truncation_side != "right",
        )
    return cut_prompt(ids, keep, body.truncation_side)


def tokens_kept(body: SamplingFields, max_model_len: int) -> int | None:
    """How many tokens of a prompt to keep at most; None for all.

    Raises InvalidRequestError for a side that is none, and for a number below -1, of 0, or beyond
    the context.
    """
    keep, side = body.truncate_prompt_tokens, body.truncation_side
    if side not in (None, *SIDES):
        message = f"truncation_side must be left or right, got {side[:30]!r}"
        raise InvalidRequestError(message, param="truncation_side")
    if keep == -1:
        keep = max_model_len - 1  # an answer needs a place for one token
    if keep is not None and not 1 <= keep <= max_model_len:
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be -1, or between 1 and the context of "
            f"{max_model_len} tokens",
            param="truncate_prompt_tokens",
        )
    return keep


def cut_prompt(token_ids: list[int], keep: int | None, side: str | None) -> tuple[list[int], bool]:
    """(token ids, whether they were cut). `side` is where tokens are lost, left if None."""
    if keep is None or len(token_ids) <= keep:
        return token_ids, False
    return (token_ids[:keep] if side == "right" else token_ids[-keep:]), True
