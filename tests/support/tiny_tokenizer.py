"""A small real tokenizer: byte-level BPE with special tokens, trained on a few sentences."""

from __future__ import annotations

import functools

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from octavo.text.tokenizer import Frame, Tokenizer

SENTENCES = (
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "One two three four five six seven eight nine ten eleven twelve.",
    "Paris is the capital of France, and Berlin is the capital of Germany.",
    "A sheet that is folded three times has eight leaves: an octavo.",
    "Numbers 0 1 2 3 4 5 6 7 8 9 and some code: if (a == b) { return a; }",
    "Grüße aus Köln, déjà vu, 日本語のテキスト, emoji 🙂🎉 and more.",
)
VOCAB_SIZE = 400
END = "<|end|>"
START = "<|start|>"
TURN = "<|turn|>"


@functools.cache
def tiny_library() -> tokenizers.Tokenizer:
    """The bare `tokenizers` object; every byte is a token, so any text can be encoded."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(END, special=True), AddedToken(START, special=True)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(SENTENCES * 2, trainer)
    library.add_special_tokens([AddedToken(TURN, special=True)])
    return library


@functools.cache
def tiny_tokenizer(*, adds_bos: bool = False) -> Tokenizer:
    """The tokenizer; `adds_bos` puts START before every text."""
    library = tiny_library()
    return Tokenizer(
        library,
        named_tokens={"eos_token": END, "bos_token": START},
        special_ids=[tiny_id(token) for token in (END, START, TURN)],
        frame=Frame(begin=(tiny_id(START),)) if adds_bos else Frame(),
    )


def tiny_id(token: str) -> int:
    """The id of a token that is in the vocabulary."""
    found = tiny_library().token_to_id(token)
    assert found is not None, token
    return found
