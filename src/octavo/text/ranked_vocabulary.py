"""A vocabulary of byte strings in order of rank -> the keys that a GGUF file would have.

Owns the way from ranks to a list of merges. tiktoken merges the neighbours whose union has the
lowest rank, the leftmost of equals; a list of all ways to put a token together, in order of its
rank, does the same. Does not know files (`tekken.py`, `tiktoken_file.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from octavo.text.gguf_vocabulary import KEY, TokenKind
from octavo.text.pre_tokenizers import WordRule
from octavo.text.spelling import CHARACTER_OF_BYTE


@dataclass(frozen=True, slots=True)
class RankedVocabulary:
    """Tokens by rank, and what a file says about the special ones."""

    ranks: Sequence[bytes]  # ordinary tokens, best first
    first_id: int  # of rank 0
    special: Mapping[int, str]  # id -> text
    rule: WordRule  # how a text is cut into words
    named_ids: Mapping[str, int] = field(default_factory=dict)  # "bos" -> id
    adds_bos: bool = False

    def metadata(self) -> dict[str, object]:
        """`tokenizer.ggml.*` keys. An id that no token has gets a name of its own."""
        size = max([self.first_id + len(self.ranks), *(id_ + 1 for id_ in self.special)])
        tokens = [f"[UNUSED_{id_}]" for id_ in range(size)]
        kinds = [int(TokenKind.UNUSED)] * size
        for place, raw in enumerate(self.ranks):
            tokens[self.first_id + place] = spelled(raw)
            kinds[self.first_id + place] = int(TokenKind.NORMAL)
        for id_, text in self.special.items():
            tokens[id_] = text
            kinds[id_] = int(TokenKind.CONTROL)
        metadata: dict[str, object] = {
            "model": "gpt2",
            "tokens": tokens,
            "token_type": kinds,
            "merges": merges_of(self.ranks),
            "add_bos_token": self.adds_bos,
            **{f"{name}_token_id": id_ for name, id_ in self.named_ids.items()},
        }
        return {KEY + name: value for name, value in metadata.items()}


def spelled(raw: bytes) -> str:
    """Bytes in GPT-2's alphabet."""
    return "".join([CHARACTER_OF_BYTE[byte] for byte in raw])


def merges_of(ranks: Sequence[bytes]) -> list[str]:
    """Each way of putting a token together from two others, best token first.

    Ways of one token are in order of their parts' ranks, as in Hugging Face's converters.
    """
    rank_of = {token: rank for rank, token in enumerate(ranks)}
    merges: list[str] = []
    for token in ranks:
        ways = [
            (rank_of[left], rank_of[right], cut)
            for cut in range(1, len(token))
            if (left := token[:cut]) in rank_of and (right := token[cut:]) in rank_of
        ]
        if ways:
            text = spelled(token)
            merges += [f"{text[:cut]} {text[cut:]}" for _, _, cut in sorted(ways)]
    return merges
