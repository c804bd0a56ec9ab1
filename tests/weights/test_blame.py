"""Errors of a model file name the file."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError, CorruptFileError, UnsupportedModelError
from octavo.weights.blame import about


def test_a_message_without_the_path_gets_it_and_keeps_its_kind() -> None:
    with (
        pytest.raises(UnsupportedModelError, match=r"^models/a\.gguf: no such type$"),
        about("models/a.gguf"),
    ):
        raise UnsupportedModelError("no such type")


def test_a_message_that_names_the_path_stays_as_it_is() -> None:
    with (
        pytest.raises(CorruptFileError, match=r"^models/a\.gguf is empty$"),
        about("models/a.gguf"),
    ):
        raise CorruptFileError("models/a.gguf is empty")


def test_other_errors_are_not_about_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^--threads must be positive$"), about("models/a.gguf"):
        raise ConfigError("--threads must be positive")
