"""A JSON object from a file of a model folder, with our errors.

Owns reading and the size limit. Does not know any key.
"""

from __future__ import annotations

from pathlib import Path

from octavo.errors import CorruptFileError, ModelFileError
from octavo.foundation.json_object import parse_object
from octavo.weights.fields import Fields

# Configurations are kilobytes; a tokenizer_config.json with all added tokens is a few megabytes.
MAX_BYTES = 64 * 2**20


def read_fields(path: Path) -> Fields:
    """The object in the file.

    Raises ModelFileError when it cannot be read, CorruptFileError when it is malformed.
    """
    return Fields(parse_object(read_bytes(path), str(path)), path.name)


def optional_fields(path: Path) -> Fields:
    """The object in the file; no keys at all where there is no such file."""
    return read_fields(path) if path.is_file() else Fields({}, path.name)


def read_bytes(path: Path) -> bytes:
    """The content of a small file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise CorruptFileError(f"{path} is larger than {MAX_BYTES // 2**20} MiB")
    return content
