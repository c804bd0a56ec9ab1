"""Stop: whether a request ends with the token that it just got.

Owns: the order of the tests: end-of-sequence ids, then stop ids, then length.
Does not know: text. Stop strings are the front end's; `min_tokens` is a mask of the sampler, which
keeps these ids from being drawn too early.
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.contracts.delta import FinishReason
from octavo.scheduling.request import Request


class Finish(NamedTuple):
    """Why a request ended. `stop_reason` is the id from `stop_token_ids` that matched."""

    reason: FinishReason
    stop_reason: int | None = None


COMPLETE = Finish("stop")  # the grammar has ended the answer
FAILED = Finish("error")
_END_OF_SEQUENCE = Finish("stop")
_LENGTH = Finish("length")


def finish_of(request: Request, token_id: int) -> Finish | None:
    """The finish of a request whose newest token is `token_id`, None if it goes on.

    Length means `max_tokens` reached or the context full.
    """
    if token_id in request.eos_token_ids:
        return _END_OF_SEQUENCE
    if token_id in request.stop_token_ids:
        return Finish("stop", token_id)
    if len(request.token_ids) >= request.max_num_tokens:
        return _LENGTH
    return None
