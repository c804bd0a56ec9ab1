"""Which local model stands in for the one that a test names.

The runner puts the places of the models into the environment. A test's model is served under its
own name, so that requests need no change.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

TEXT_MODEL = "OCTAVO_SHIM_TEXT_MODEL"
BASE_MODEL = "OCTAVO_SHIM_BASE_MODEL"
BASE_TOKENIZER_FOLDER = "OCTAVO_SHIM_BASE_TOKENIZER_FOLDER"
EMBEDDING_MODEL = "OCTAVO_SHIM_EMBEDDING_MODEL"
TOKENIZER_FOLDER = "OCTAVO_SHIM_TOKENIZER_FOLDER"
_EMBEDDERS = re.compile(r"e5|bge-base|MiniLM|arctic-embed|gte-", re.IGNORECASE)
_BASE = re.compile(r"opt-125m|gpt2$", re.IGNORECASE)  # models that continue any text
_SAME = re.compile(r"SmolLM2-135M")  # no stand-in
_ABSENT = re.compile(r"reranker|colbert|apeach|whisper|-VL", re.IGNORECASE)


class NoModelError(Exception):
    """No model at hand does what the named one does."""


def local_model(name: str) -> str:
    """The path of the model that is served under this name.

    Raises NoModelError where nothing of its kind is at hand.
    """
    if _ABSENT.search(name):
        raise NoModelError(f"no model at hand does what {name} does")
    if _BASE.search(name):
        return os.environ[BASE_MODEL]
    return os.environ[EMBEDDING_MODEL if _EMBEDDERS.search(name) else TEXT_MODEL]


def longest_context(name: str) -> int:
    """Tokens that the model behind this name is served with at most.

    Models of texts have more, but small ones talk on until it ends them.
    """
    if _EMBEDDERS.search(name):
        return 256
    return 8192 if _SAME.search(name) else 4096


def tokenizer_folder(name: str) -> str:
    """A folder that transformers can load, with the tokenizer of the model behind this name."""
    path = Path(local_model(name))
    if path.is_dir():
        return str(path)
    return os.environ[BASE_TOKENIZER_FOLDER if _BASE.search(name) else TOKENIZER_FOLDER]
