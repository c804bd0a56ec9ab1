"""The tiny tokenizer with further tokens, such as the tags of thoughts."""

from __future__ import annotations

import functools

import tokenizers
from tokenizers import AddedToken

from octavo.text.tokenizer import Frame, Tokenizer
from tests.support.tiny_tokenizer import END, START, TURN, tiny_library


def thinking_tokenizer() -> Tokenizer:
    """As in Qwen 3: the tags are added tokens, and not special ones."""
    return tagged_tokenizer("<think>", "</think>")


@functools.cache
def tagged_tokenizer(*tags: str, are_special: bool = False) -> Tokenizer:
    """A token for each tag. Other ids stay."""
    library = tokenizers.Tokenizer.from_str(tiny_library().to_str())
    library.add_tokens([AddedToken(tag, special=are_special, normalized=False) for tag in tags])
    special = {END, START, TURN, *(tags if are_special else ())}
    return Tokenizer(
        library,
        named_tokens={"eos_token": END, "bos_token": START},
        special_ids=[library.token_to_id(token) for token in special],
        frame=Frame(),
    )
