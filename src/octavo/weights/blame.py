"""Which file an error is about.

Owns the words that are put before a message. Does not know files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from octavo.errors import ModelFileError


@contextmanager
def about(where: str) -> Iterator[None]:
    """Errors of a model file that do not name `where`, a path, are raised again with it."""
    try:
        yield
    except ModelFileError as error:
        if where in str(error):
            raise
        raise type(error)(f"{where}: {error}") from error
