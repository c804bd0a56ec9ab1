"""A unigram vocabulary (Kudo 2018), as XLM-RoBERTa has it, for the `tokenizers` library.

Owns the steps before and after the pieces: SentencePiece's table of character rewritings, words
marked with its sign of a space, special tokens around one text or two. Does not know files.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from octavo.errors import CorruptFileError
from octavo.text.spelling import SPACE_MARK

PreTokenizers = list[pre_tokenizers.PreTokenizer]


def unigram_library(
    tokens: Sequence[str],
    scores: Sequence[float],
    *,
    unknown: int,
    rewritings: bytes,
    adds_space: bool,
    joins_spaces: bool,
) -> tokenizers.Tokenizer:
    """The pieces of a text whose scores have the best sum.

    `rewritings` is SentencePiece's `precompiled_charsmap`, empty for none; with `joins_spaces` runs
    of white space count as one. Raises CorruptFileError for pieces or a table that make no sense.
    """
    try:
        model = models.Unigram(
            list(zip(tokens, scores, strict=True)), unk_id=unknown, byte_fallback=False
        )
        library = tokenizers.Tokenizer(model)
        if rewritings:
            _check_rewritings(rewritings)
            library.normalizer = normalizers.Precompiled(rewritings)
    except Exception as error:  # the library and struct raise nothing narrower together
        raise CorruptFileError(f"the pieces make no vocabulary: {error}") from error
    scheme = "always" if adds_space else "never"
    words: PreTokenizers = [pre_tokenizers.WhitespaceSplit()] if joins_spaces else []
    words.append(pre_tokenizers.Metaspace(replacement=SPACE_MARK, prepend_scheme=scheme))
    library.pre_tokenizer = pre_tokenizers.Sequence(words)
    library.decoder = decoders.Metaspace(replacement=SPACE_MARK, prepend_scheme=scheme)
    return library


def framed_as_roberta(library: tokenizers.Tokenizer, begin: str, end: str) -> None:
    """`begin` text `end`, and `begin` text `end` `end` text `end` for two."""
    library.post_processor = processors.TemplateProcessing(
        single=[begin, "$A", end],
        pair=[begin, "$A", end, end, "$B", end],
        special_tokens=[(token, library.token_to_id(token)) for token in (begin, end)],
    )


def _check_rewritings(table: bytes) -> None:
    """That no text can lead out of the table: the library ends the process where one does.

    It is the size of a trie in bytes (u32), the trie, and texts that end in a zero byte. The trie
    is a double array (Yata et al. 2007, as in darts-clone): a unit of 32 bits has a label (bits 0
    to 7; bit 31 is set in values), the distance to its children (from bit 10, times 256 with bit
    9) and, in bit 8, whether the first of these is a value: the place of a text.
    """
    (size,) = struct.unpack_from("<I", table)
    units = struct.unpack_from(f"<{size // 4}I", table, 4)
    texts = table[4 + size :]
    begins = {0, *(place + 1 for place, byte in enumerate(texts) if byte == 0)}
    texts.decode("utf-8")
    for place, unit in enumerate(units):
        if unit >> 31 and place:
            continue
        base = place ^ ((unit >> 10) << ((unit & 0x200) >> 6))
        if base | 0xFF >= len(units):
            raise ValueError("the table of rewritings leads outside of itself")
        has_value = place and unit & 0x100
        if has_value and (units[base] & 0x7FFFFFFF) not in begins:
            raise ValueError("the table of rewritings has a text that begins nowhere")
