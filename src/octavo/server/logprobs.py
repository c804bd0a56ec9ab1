"""Log-probabilities in the two shapes of OpenAI's API: lists for completions, entries for chats.

Tokens are shown by their exact bytes; where a letter's bytes lie in several tokens, each token's
text is its own bytes with U+FFFD for what is no letter, and offsets count the letters that are
complete.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.contracts.step import TokenLogprobs
from octavo.outputs import Logprob, RequestOutput
from octavo.text.tokenizer import Tokenizer

LOWEST = -9999.0  # JSON has no -inf


class TokenNames:
    """How tokens are called in log-probabilities: by their texts, or as `token_id:7`."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer, self._as_ids = tokenizer, as_ids

    def __call__(self, token_id: int) -> str:
        if self._as_ids:
            return f"token_id:{token_id}"
        return self._tokenizer.token_bytes(token_id).decode("utf-8", "replace")


class CompletionLogprobs:
    """Builds the `logprobs` object of one choice of a completion, piece by piece."""

    def __init__(
        self, tokenizer: Tokenizer, names: TokenNames, num_best: int, *, hides_special: bool
    ) -> None:
        self._tokenizer, self._name = tokenizer, names
        self._num_best = num_best
        self._hidden = tokenizer.special_ids if hides_special else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def add(
        self,
        token_ids: Sequence[int],
        entries: Sequence[TokenLogprobs | None],
        prompt: tuple[int, str] = (0, ""),
    ) -> dict[str, Any]:
        """The object for the next tokens; an entry of None is a token without a prediction.

        `prompt`: how many of the tokens are the echoed prompt, and its text as it was given.
        """
        tokens, values, tops, offsets = [], [], [], []
        num_prompt_tokens, prompt_text = prompt
        for place, (token_id, entry) in enumerate(zip(token_ids, entries, strict=True)):
            raw = self._tokenizer.token_bytes(token_id)
            tokens.append(self._name(token_id))
            offsets.append(self._offset)
            if place < num_prompt_tokens:
                # A special token that the tokenizer added, such as BOS, is not in the text.
                is_shown = token_id not in self._tokenizer.special_ids or prompt_text.startswith(
                    raw.decode("utf-8", "replace"), self._offset
                )
            else:
                is_shown = token_id not in self._hidden
            if is_shown:
                self._offset += len(self._decoder.decode(raw))
            values.append(None if entry is None else finite(entry.logprobs[0]))
            tops.append(None if entry is None else self._best(entry))
        return {
            "text_offset": offsets,
            "token_logprobs": values,
            "tokens": tokens,
            "top_logprobs": tops,
        }

    def _best(self, entry: TokenLogprobs) -> dict[str, float]:
        """The actual token and the best ones; equal texts keep the first, which is the better."""
        count = len(entry.token_ids) if self._num_best == -1 else self._num_best + 1
        best: dict[str, float] = {}
        pairs = list(zip(entry.token_ids, entry.logprobs, strict=True))
        for token_id, value in pairs[:count]:
            best.setdefault(self._name(token_id), finite(value))
        return best


def chat_logprobs(
    tokenizer: Tokenizer,
    entries: Sequence[TokenLogprobs],
    num_best: int,
    names: TokenNames | None = None,
) -> dict[str, Any]:
    """The `logprobs` object of a chat choice: one entry for each token.

    -1 best are all that there are, and the token itself.
    """
    name = names or TokenNames(tokenizer)

    def shown_token(token_id: int, value: float) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token_id)
        return {"token": name(token_id), "logprob": finite(value), "bytes": list(raw)}

    content = []
    for entry in entries:
        (actual, value), *best = zip(entry.token_ids, entry.logprobs, strict=True)
        others = dict([*best, (actual, value)] if num_best == -1 else best[:num_best])
        shown = shown_token(actual, value)
        shown["top_logprobs"] = [shown_token(token, value) for token, value in others.items()]
        content.append(shown)
    return {"content": content, "refusal": None}


def prompt_entries(output: RequestOutput) -> list[TokenLogprobs | None]:
    """The prompt's logprobs in the engine's form, one entry a token; the first has none."""
    entries: list[TokenLogprobs | None] = []
    for token_id, position in zip(
        output.prompt_token_ids, output.prompt_logprobs or (), strict=False
    ):
        if position is None:
            entries.append(None)
            continue
        best = sorted(position, key=lambda other: position[other].rank or 0)
        token_ids = [token_id, *best]
        values = [position[other].logprob for other in token_ids]
        entries.append(TokenLogprobs(token_ids, values, position[token_id].rank or 0))
    return entries


def prompt_logprobs(
    tokenizer: Tokenizer, output: RequestOutput
) -> list[dict[str, Any] | None] | None:
    """vLLM's `prompt_logprobs`: for each prompt token a map id -> logprob; the first has none."""
    if output.prompt_logprobs is None:
        return None
    return [
        None if position is None else _position(tokenizer, position)
        for position in output.prompt_logprobs
    ]


def _position(tokenizer: Tokenizer, position: Mapping[int, Logprob]) -> dict[str, Any]:
    return {
        str(token_id): {
            "logprob": finite(entry.logprob),
            "rank": entry.rank,
            "decoded_token": tokenizer.token_bytes(token_id).decode("utf-8", "replace"),
        }
        for token_id, entry in position.items()
    }


def finite(value: float) -> float:
    """A logprob that JSON can hold."""
    return max(value, LOWEST)
