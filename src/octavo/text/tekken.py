"""Mistral's `tekken.json` -> the keys that a GGUF file would have.

Owns the format: tokens as base64 by rank, special tokens before them, the expression that cuts
words in the file itself. Does not know how tokens are merged (`ranked_vocabulary.py`).
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from octavo.errors import CorruptFileError
from octavo.text.pre_tokenizers import WordRule
from octavo.text.ranked_vocabulary import RankedVocabulary

# Names by id where the file lists none, as in the first files of this format.
_FIRST_SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)
_ROLES = {"<unk>": "unknown", "<s>": "bos", "</s>": "eos", "<pad>": "padding"}


def read_tekken(path: Path) -> RankedVocabulary:
    """The vocabulary of a file. Raises CorruptFileError that names what is wrong."""
    try:
        document = json.loads(path.read_bytes())
        config, vocabulary = document["config"], document["vocab"]
        num_special = _count(config["default_num_special_tokens"])
        size = _count(config["default_vocab_size"]) - num_special
        entries = sorted(vocabulary, key=lambda entry: _count(entry["rank"]))[:size]
        ranks = [base64.b64decode(entry["token_bytes"], validate=True) for entry in entries]
        special = _special(document.get("special_tokens"), num_special)
        rule = WordRule((_text(config["pattern"]),), ignores_merges=True)
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
        raise CorruptFileError(f"{path} is no tekken vocabulary: {error!r}") from error
    if len(set(ranks)) != len(ranks):
        raise CorruptFileError(f"{path} has a token twice")
    named = {_ROLES[text]: id_ for id_, text in special.items() if text in _ROLES}
    return RankedVocabulary(
        ranks=ranks,
        first_id=num_special,
        special=special,
        rule=rule,
        named_ids=named,
        adds_bos="bos" in named,
    )


def _special(listed: Any, count: int) -> dict[int, str]:
    """Id -> text; ids without a name are called <SPECIAL_n>."""
    names = dict(enumerate(_FIRST_SPECIAL[:count]))
    if listed is not None:
        names = {_count(entry["rank"]): _text(entry["token_str"]) for entry in listed}
    if any(id_ >= count for id_ in names):
        raise ValueError(f"a special token beyond the {count} of the file")
    return {id_: names.get(id_, f"<SPECIAL_{id_}>") for id_ in range(count)}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
