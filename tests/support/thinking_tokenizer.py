"""The tiny tokenizer with tokens of their own for the tags of thoughts."""

from __future__ import annotations

import functools

import tokenizers
from tokenizers import AddedToken

from octavo.text.tokenizer import Frame, Tokenizer
from tests.support.tiny_tokenizer import END, START, TURN, tiny_library


@functools.cache
def thinking_tokenizer() -> Tokenizer:
    """As in Qwen 3: the tags are added tokens, and not special ones. Other ids stay."""
    library = tokenizers.Tokenizer.from_str(tiny_library().to_str())
    tags = ("<think>", "</think>")
    library.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    special = [library.token_to_id(token) for token in (END, START, TURN)]
    return Tokenizer(
        library,
        named_tokens={"eos_token": END, "bos_token": START},
        special_ids=special,
        frame=Frame(),
    )
