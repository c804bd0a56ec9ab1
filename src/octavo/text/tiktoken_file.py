"""A tiktoken file (`*.tiktoken`, or Llama 3's `tokenizer.model`) -> a vocabulary with ranks.

Owns the format, one token as base64 and its rank on each line, and the table of published files:
such a file says neither how words are cut nor what its special tokens are, so both are known by the
number of its ranks. Does not know how tokens are merged (`ranked_vocabulary.py`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.text.pre_tokenizers import WordRule, word_rule
from octavo.text.ranked_vocabulary import RankedVocabulary

SpecialTokens = Callable[[int], list[str]]  # number of ranks -> texts, ids from there on


@dataclass(frozen=True, slots=True)
class _Published:
    """What goes with a file of so many ranks."""

    name: str
    pre: str  # a name of `pre_tokenizers.py`
    special: SpecialTokens
    bos: str = ""
    eos: str = ""


def _reserved(names: list[str], pattern: str, count: int) -> list[str]:
    """Names, then a pattern with numbers, up to so many."""
    return names + [pattern.format(number) for number in range(count - len(names))]


def _llama3(_: int) -> list[str]:
    first = [
        *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>"),
        *("<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>"),
        *("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
        "<|image|>",
    ]
    return first + [f"<|reserved_special_token_{number}|>" for number in range(2, 246)]


def _gpt_oss(first: int) -> list[str]:
    """o200k_harmony: the ranks of o200k with the tokens of a conversation."""
    named = {
        199998: "startoftext",
        199999: "endoftext",
        200002: "return",
        200003: "constrain",
        200005: "channel",
        200006: "start",
        200007: "end",
        200008: "message",
        200012: "call",
    }
    return [f"<|{named.get(id_, f'reserved_{id_}')}|>" for id_ in range(first, 201088)]


def _qwen(_: int) -> list[str]:
    return _reserved(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "<|extra_{}|>", 208)


_PUBLISHED: Mapping[int, _Published] = MappingProxyType(
    {
        50256: _Published("gpt2", "gpt-2", lambda _: ["<|endoftext|>"], eos="<|endoftext|>"),
        128000: _Published(
            "Llama 3", "llama-bpe", _llama3, bos="<|begin_of_text|>", eos="<|end_of_text|>"
        ),
        # Its texts do not begin with a token of their own.
        199998: _Published("gpt-oss", "gpt-4o", _gpt_oss, eos="<|return|>"),
        151643: _Published("Qwen", "qwen2", _qwen, eos="<|endoftext|>"),
    }
)


def is_tiktoken(path: Path) -> bool:
    """Whether the first line of a file is base64 and a number."""
    with path.open("rb") as file:
        first = file.readline(4096)
    try:
        _token(first)
    except (ValueError, binascii.Error):
        return False
    return True


def read_tiktoken(path: Path, special: Mapping[int, str] | None = None) -> RankedVocabulary:
    """The vocabulary of a file; `special` are tokens that other files list, by id.

    Raises CorruptFileError for a malformed file, UnsupportedModelError for one that is not known.
    """
    ranks = _ranks(path)
    published = _PUBLISHED.get(len(ranks))
    if published is None:
        known = ", ".join(f"{entry.name} ({size})" for size, entry in _PUBLISHED.items())
        raise UnsupportedModelError(
            f"{path} has {len(ranks)} ranks, and how its words are cut is not known. Known by "
            f"their ranks: {known}. Save tokenizer.json as well"
        )
    texts = published.special(len(ranks))
    own = dict(enumerate(texts, len(ranks))) | dict(special or {})
    ids = {text: id_ for id_, text in own.items()}
    named = {role: ids[text] for role, text in _roles(published).items() if text in ids}
    return RankedVocabulary(
        ranks=ranks,
        first_id=0,
        special={id_: text for id_, text in own.items() if id_ >= len(ranks)},
        rule=_whole_words(published.pre),
        named_ids=named,
        adds_bos="bos" in named,
    )


def _roles(published: _Published) -> dict[str, str]:
    return {"bos": published.bos, "eos": published.eos}


def _whole_words(pre: str) -> WordRule:
    """tiktoken takes a word that is a token as it is."""
    return replace(word_rule(pre), ignores_merges=True, is_nfc=False)


def _ranks(path: Path) -> list[bytes]:
    """Tokens in order of their ranks, which must be 0, 1, 2 and so on."""
    by_rank: dict[int, bytes] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = _token(line)
        except (ValueError, binascii.Error) as error:
            raise CorruptFileError(f"{path}, line {number}: {error}") from error
        by_rank[rank] = token
    ranks = [by_rank[rank] for rank in range(len(by_rank)) if rank in by_rank]
    if len(ranks) != len(by_rank) or len(set(ranks)) != len(ranks):
        raise CorruptFileError(f"{path} must have each rank from 0 on once, and each token once")
    return ranks


def _token(line: bytes) -> tuple[bytes, int]:
    """The token and the rank of a line."""
    encoded, _, rank = line.strip().partition(b" ")
    token = base64.b64decode(encoded, validate=True)
    if not token or not rank.isdigit():
        raise ValueError("a line is a token in base64 and its rank")
    return token, int(rank)
