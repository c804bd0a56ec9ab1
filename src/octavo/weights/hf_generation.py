"""How a model from a Hugging Face folder speaks: where an answer ends, how to sample, how to chat.

Owns the small files beside config.json and their precedence. Does not know the model's shape.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from octavo.config.json_option import NUMBERS, WHOLE_NUMBERS
from octavo.errors import CorruptFileError
from octavo.weights.fields import Fields
from octavo.weights.json_file import optional_fields, read_bytes


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _TokenizerFile(msgspec.Struct):
    """The one part of tokenizer.json that is of interest here."""

    added_tokens: list[_AddedToken] = []


def eos_token_ids(folder: Path, sections: list[Fields]) -> list[int]:
    """Ids that end an answer: of generation_config.json, config.json and the tokenizer's files."""
    found: list[int] = []
    for keys in [optional_fields(folder / "generation_config.json"), *sections]:
        found += _token_ids(keys, "eos_token_id")
    token = _special_token(optional_fields(folder / "tokenizer_config.json"), "eos_token")
    if token is not None:
        found += _ids_of_added_token(folder, token)
    return found


def bos_token_ids(sections: list[Fields]) -> list[int]:
    """Ids that begin a text, from sections of config.json."""
    return [token_id for keys in sections for token_id in _token_ids(keys, "bos_token_id")]


def generation_defaults(folder: Path) -> dict[str, float | int]:
    """Sampling parameters of generation_config.json; ranges are checked by whoever uses them."""
    keys = optional_fields(folder / "generation_config.json")
    defaults: dict[str, float | int] = {name: keys.number(name) for name in NUMBERS if name in keys}
    return defaults | {name: keys.integer(name) for name in WHOLE_NUMBERS if name in keys}


def chat_template(folder: Path) -> str | None:
    """The template, from the newest of the three places that it was kept in over time."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return read_bytes(path).decode()
        except UnicodeDecodeError as error:
            raise CorruptFileError(f"{path} is not valid UTF-8") from error
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = _template(optional_fields(folder / name))
        if template is not None:
            return template
    return None


def _template(keys: Fields) -> str | None:
    """One template, or the one named "default" of several."""
    if not isinstance(keys.value("chat_template"), list):
        return keys.optional_text("chat_template")
    for item in keys.items("chat_template"):
        if not isinstance(item, dict):
            keys.refuse("chat_template", "must be a string or a list of objects")
        named = Fields(item, f"{keys.where}, chat_template")
        if named.text("name") == "default":
            return named.text("template")
    return None


def _token_ids(keys: Fields, key: str) -> list[int]:
    """One id or a list of them. A negative one means none, in files of old."""
    value = keys.value(key)
    token_ids = []
    for token_id in value if isinstance(value, list) else [] if value is None else [value]:
        if isinstance(token_id, bool) or not isinstance(token_id, int):
            keys.refuse(key, "must be a token id or a list of token ids")
        token_ids.append(token_id)
    return token_ids


def _special_token(keys: Fields, key: str) -> str | None:
    """A token is written as its text, or as an object with its text."""
    if isinstance(keys.value(key), dict):
        token = keys.section(key)
        return token.text("content") if token is not None else None
    return keys.optional_text(key)


def _ids_of_added_token(folder: Path, text: str) -> list[int]:
    """The id of a special token, from tokenizer_config.json's table or else from tokenizer.json."""
    table = optional_fields(folder / "tokenizer_config.json").section("added_tokens_decoder")
    if table is not None:
        for written_id in table:
            token = table.section(written_id)
            if token is not None and written_id.isdecimal() and token.text("content") == text:
                return [int(written_id)]
    path = folder / "tokenizer.json"
    if not path.is_file():
        return []
    try:
        added = msgspec.json.decode(path.read_bytes(), type=_TokenizerFile).added_tokens
    except (msgspec.DecodeError, OSError, RecursionError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is not a sound tokenizer: {error}") from error
    return [token.id for token in added if token.content == text]
