"""The tokenizer files of a model folder in Hugging Face's layout.

Owns reading and checking: tokenizer.json, tokenizer_config.json, special_tokens_map.json,
added_tokens.json, and which of them wins where they speak of the same thing.
Does not know: what a tokenizer does with the answers.
Used by: tokenizer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from octavo.errors import CorruptFileError
from octavo.foundation.json_object import parse_object

logger = logging.getLogger(__name__)

TOKEN_FLAGS = ("lstrip", "normalized", "rstrip", "single_word", "special")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The parsed files; an absent one is empty."""

    folder: Path
    config: Mapping[str, object]  # tokenizer_config.json
    special_map: Mapping[str, object]  # special_tokens_map.json
    added: Mapping[str, object]  # added_tokens.json: text -> id

    @property
    def tokenizer_class(self) -> str:
        """The name of the class that wrote the files, empty where none is given."""
        name = self.config.get("tokenizer_class")
        return name if isinstance(name, str) else ""

    def flag(self, name: str) -> bool | None:
        """A boolean of the configuration, None where it says nothing."""
        value = self.config.get(name)
        return value if isinstance(value, bool) else None

    def named_tokens(self, names: Iterable[str]) -> dict[str, str]:
        """Texts of the special tokens that have a role, by role.

        The map is older than the configuration: it wins only over a configuration that does not
        list the added tokens itself.
        """
        first, second = self.config, self.special_map
        if "added_tokens_decoder" not in self.config:
            first, second = second, first
        tokens = {}
        for name in names:
            token = _content(first.get(name)) or _content(second.get(name))
            if token is not None:
                tokens[name] = token
        return tokens

    def further_special_tokens(self) -> list[str]:
        """Texts of special tokens without a role."""
        found = []
        for source in (self.config, self.special_map):
            for key in ("additional_special_tokens", "extra_special_tokens"):
                listed = source.get(key)
                if isinstance(listed, Mapping):
                    listed = list(listed.values())
                if isinstance(listed, list):
                    found += [token for token in map(_content, listed) if token is not None]
        return found


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Read what lies in the folder beside the vocabulary.

    Raises CorruptFileError for malformed JSON.
    """
    return TokenizerFiles(
        folder,
        config=_read_object(folder / "tokenizer_config.json"),
        special_map=_read_object(folder / "special_tokens_map.json"),
        added=_read_object(folder / "added_tokens.json"),
    )


def open_library(files: TokenizerFiles) -> tokenizers.Tokenizer:
    """tokenizer.json, with the tokens that only the other files name, never cut nor padded.

    Raises CorruptFileError when the library cannot read the file.
    """
    path = files.folder / "tokenizer.json"
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise CorruptFileError(f"{path} is no tokenizer: {error}") from error
    library.no_truncation()
    library.no_padding()
    known = {id_: _flags(token) for id_, token in library.get_added_tokens_decoder().items()}
    wanted = wanted_tokens(files)
    missing = [token for id_, token in sorted(wanted.items()) if known.get(id_) != _flags(token)]
    if missing:
        library.add_tokens(missing)
    for id_, token in wanted.items():
        if library.token_to_id(token.content) != id_:
            logger.warning(
                "%s: %r has the id %s, other files say %d",
                path,
                token.content,
                library.token_to_id(token.content),
                id_,
            )
    return library


def wanted_tokens(files: TokenizerFiles) -> dict[int, tokenizers.AddedToken]:
    """Added tokens that tokenizer_config.json or added_tokens.json list, by id."""
    listed = files.config.get("added_tokens_decoder")
    wanted = {}
    if isinstance(listed, Mapping):
        for key, entry in listed.items():
            content = _content(entry)
            if content is None or not isinstance(entry, Mapping) or not key.isdecimal():
                where = files.folder / "tokenizer_config.json"
                raise CorruptFileError(
                    f"{where}: added_tokens_decoder has a malformed entry {key!r}"
                )
            flags = {name: bool(entry[name]) for name in TOKEN_FLAGS if name in entry}
            wanted[int(key)] = tokenizers.AddedToken(content, **flags)
        return wanted
    special = {*files.named_tokens(files.special_map).values(), *files.further_special_tokens()}
    for content, id_ in files.added.items():
        if not isinstance(id_, int):
            where = files.folder / "added_tokens.json"
            raise CorruptFileError(f"{where}: {content!r} needs an integer id, not {id_!r}")
        is_special = content in special
        wanted[id_] = tokenizers.AddedToken(content, special=is_special, normalized=not is_special)
    return wanted


def _flags(token: tokenizers.AddedToken) -> tuple[str, ...]:
    """What makes two added tokens the same."""
    return (token.content, *(str(getattr(token, name)) for name in TOKEN_FLAGS))


def _content(value: object) -> str | None:
    """The text of a special token, which may be stored bare or with its flags."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _read_object(path: Path) -> Mapping[str, object]:
    """The JSON object of a file, an empty one where there is no such file."""
    if not path.is_file():
        return {}
    return parse_object(path.read_bytes(), str(path))
