"""Slow, obvious twins of the two kinds of tokenizer, written from the papers and from llama.cpp.

They share nothing with the `tokenizers` library but how a text is cut into words, where there are
words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tokenizers import pre_tokenizers

from octavo.text.gguf_vocabulary import TokenKind

WHOLE_KINDS = (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN)
SPACE_MARK = "\u2581"


class Twin:
    """What both have: tokens that are never cut."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self.tokens: list[str] = metadata["tokenizer.ggml.tokens"]  # type: ignore[assignment]
        self.kinds: list[int] = metadata["tokenizer.ggml.token_type"]  # type: ignore[assignment]
        self.ids = {token: id_ for id_, token in enumerate(self.tokens)}
        whole = [
            token
            for token, kind in zip(self.tokens, self.kinds, strict=True)
            if kind in WHOLE_KINDS
        ]
        longest_first = sorted(whole, key=len, reverse=True)
        self.whole = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    def encode(self, text: str) -> list[int]:
        """Ids without BOS and EOS."""
        ids = []
        for place, part in enumerate(self.whole.split(text)):
            if place % 2:
                ids.append(self.ids[part])
            elif part:
                ids += self.encode_part(part)
        return ids

    def encode_part(self, text: str) -> list[int]:
        """Ids of text without whole tokens."""
        raise NotImplementedError


class SentencePieceTwin(Twin):
    """Merges the two neighbours whose union has the best score, the leftmost of equals."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        super().__init__(metadata)
        self.scores: Sequence[float] = metadata["tokenizer.ggml.scores"]  # type: ignore[assignment]

    def encode_part(self, text: str) -> list[int]:
        pieces = list(text.replace(" ", SPACE_MARK))
        while True:
            pairs = [
                (self._score(left + right), -place)
                for place, (left, right) in enumerate(pairwise(pieces))
            ]
            score, negative_place = max(pairs, default=(float("-inf"), 0))
            if score == float("-inf"):
                break
            place = -negative_place
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return [id_ for piece in pieces for id_ in self._ids_of(piece)]

    def _score(self, piece: str) -> float:
        id_ = self.ids.get(piece)
        if id_ is None or self.kinds[id_] != TokenKind.NORMAL:
            return float("-inf")
        return self.scores[id_]

    def _ids_of(self, piece: str) -> list[int]:
        if self._score(piece) > float("-inf"):
            return [self.ids[piece]]
        return [self.ids[f"<0x{byte:02X}>"] for byte in piece.encode()]


class ByteLevelTwin(Twin):
    """GPT-2's BPE: merges the neighbours that stand first in the list, the leftmost of equals."""

    def __init__(self, metadata: Mapping[str, object], words: pre_tokenizers.PreTokenizer) -> None:
        """`words` cuts a text and spells its bytes, as the model's own tokenizer.json says."""
        super().__init__(metadata)
        self.words = words
        merges: list[str] = metadata["tokenizer.ggml.merges"]  # type: ignore[assignment]
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}

    def encode_part(self, text: str) -> list[int]:
        return [id_ for word, _ in self.words.pre_tokenize_str(text) for id_ in self._word(word)]

    def _word(self, word: str) -> list[int]:
        # A byte that the vocabulary lacks is lost: there is no token to say so.
        pieces = [character for character in word if character in self.ids]
        while len(pieces) > 1:
            pairs = list(pairwise(pieces))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            place = pairs.index(best)
            pieces[place : place + 2] = ["".join(best)]
        return [self.ids[piece] for piece in pieces]
