"""Which tokens of an answer are thoughts, told by the tokens that begin and end them.

Where a tag is no token of its own, nobody can tell exactly; the thoughts' text is counted then.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.chat.reasoning.registry import ReasoningStyle
from octavo.text.tokenizer import Tokenizer


class ThoughtTokens:
    """One choice. `is_open`: its prompt, or its style, has begun the thoughts."""

    def __init__(self, tokenizer: Tokenizer, style: ReasoningStyle, *, is_open: bool) -> None:
        self._tokenizer = tokenizer
        self._is_open = is_open
        self._end = tokenizer.id_of(style.end)
        ids = [tokenizer.id_of(tag) for tag in style.begins]
        self._begins = {token_id for token_id in ids if token_id is not None}
        self._is_known = self._end is not None and (is_open or bool(self._begins))
        self._has_answer = False  # from then on a begin tag is text
        self._text: list[str] = []  # thoughts, where only their text is known
        self.count = 0

    def take(self, token_ids: Sequence[int], text: str, *, is_last: bool) -> list[bool]:
        """For each new token whether it is the answer's: neither a thought nor a tag of them.

        `text` are the thoughts that came with these tokens. Where tokens do not tell, all count
        as the answer's, and `count` is known with the last of them.
        """
        if self._is_known:
            return [self._is_answer(token_id) for token_id in token_ids]
        self._text.append(text)
        if is_last:
            whole = "".join(self._text)
            self.count = len(self._tokenizer.encode(whole, add_special_tokens=False))
        return [True] * len(token_ids)

    def _is_answer(self, token_id: int) -> bool:
        if self._is_open:
            if token_id == self._end:
                self._is_open = False
            elif token_id not in self._begins and token_id not in self._tokenizer.special_ids:
                self.count += 1
            return False
        if token_id in self._begins and not self._has_answer:
            self._is_open = True
            return False
        self._has_answer |= bool(self._tokenizer.token_bytes(token_id).strip())
        return True
