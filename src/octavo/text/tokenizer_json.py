"""The tokenizer of a folder with a tokenizer.json, and what its other files say of it."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.text.library import Library
from octavo.text.tokenizer import Frame, Tokenizer
from octavo.text.tokenizer_files import TokenizerFiles, open_library

# Names under which a chat template sees special tokens.
NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
# Classes whose add_bos_token and add_eos_token decide; for all others tokenizer.json says it alone.
FLAG_CLASSES = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")


def tokenizer_from_json(files: TokenizerFiles) -> Tokenizer:
    """The tokenizer of a folder that has tokenizer.json, and what its other files say.

    Raises CorruptFileError when the file is malformed.
    """
    library = open_library(files)
    named = {
        name: token
        for name, token in files.named_tokens(NAMED_TOKENS).items()
        if library.token_to_id(token) is not None
    }
    added = library.get_added_tokens_decoder()
    special = {id_ for id_, token in added.items() if token.special}
    for token in (*named.values(), *files.further_special_tokens()):
        id_ = library.token_to_id(token)
        if id_ is not None:
            special.add(id_)
    frame = _frame_of_flags(files, library, named)
    return Tokenizer(library, named_tokens=named, special_ids=special, frame=frame)


def _frame_of_flags(
    files: TokenizerFiles, library: Library, named: Mapping[str, str]
) -> Frame | None:
    """What add_bos_token and add_eos_token demand; None where tokenizer.json decides."""
    if files.tokenizer_class.removesuffix("Fast") not in FLAG_CLASSES:
        return None
    add_bos, add_eos = files.flag("add_bos_token"), files.flag("add_eos_token")
    if add_bos is None and add_eos is None:
        return None

    def ids(wanted: bool | None, name: str) -> tuple[int, ...]:
        id_ = library.token_to_id(named[name]) if wanted and name in named else None
        return () if id_ is None else (id_,)

    return Frame(ids(add_bos, "bos_token"), ids(add_eos, "eos_token"))
