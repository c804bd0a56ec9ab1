"""The body of /v1/completions."""

from __future__ import annotations

from typing import cast

from octavo.errors import InvalidRequestError
from octavo.server.schemas.sampling import SamplingFields

MAX_PROMPTS = 1024


class CompletionRequest(SamplingFields, kw_only=True):
    """OpenAI's legacy completion, with vLLM's extensions."""

    prompt: str | list[str | int | list[int]] | None = None
    logprobs: int | None = None
    suffix: str | None = None


def check_logprobs(request: CompletionRequest) -> None:
    """Refuse `logprob_token_ids` where no token would have any. Raises InvalidRequestError."""
    if not request.logprob_token_ids:
        return
    if request.logprobs is None:
        message = "logprob_token_ids needs logprobs to be set"
        raise InvalidRequestError(message, param="logprob_token_ids")
    if request.echo and request.max_tokens == 0:
        message = "logprob_token_ids is for generated tokens, and max_tokens is 0; leave one out"
        raise InvalidRequestError(message, param="logprob_token_ids")


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    """The prompts of a request, each a text or a list of token ids.

    Raises InvalidRequestError for none, too many, or a mixture.
    """
    given = request.prompt
    if given is None:
        raise InvalidRequestError("prompt is missing", param="prompt")
    if isinstance(given, str):
        return [given]
    if not given:
        raise InvalidRequestError("prompt must hold at least one prompt", param="prompt")
    kinds = set(map(type, given))
    if len(kinds) > 1:
        message = "prompt must be texts, token ids or lists of token ids, not a mixture of them"
        raise InvalidRequestError(message, param="prompt")
    if kinds == {int}:
        return [cast("list[int]", given)]
    if len(given) > MAX_PROMPTS:
        message = f"prompt may hold at most {MAX_PROMPTS} prompts, got {len(given)}"
        raise InvalidRequestError(message, param="prompt")
    return cast("list[str | list[int]]", given)
