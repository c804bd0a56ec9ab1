"""The pytest plugin: `vllm` as Octavo answers it, tokenizers by the names of models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_shim import names
from vllm_shim.models import NoModelError, tokenizer_folder

names.install()
_TOKENIZERS = "transformers.models.auto.tokenization_auto"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let transformers find tokenizers by the names of the tests' models, where it was imported."""
    names.Inside.tests_run = True
    if _TOKENIZERS not in sys.modules:
        return
    kind = sys.modules[_TOKENIZERS].AutoTokenizer
    load = kind.from_pretrained

    def from_pretrained(name: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            folder = name if Path(name).is_dir() else tokenizer_folder(name)
        except NoModelError as error:
            pytest.skip(str(error))
        return load(folder, *arguments)

    kind.from_pretrained = from_pretrained


@pytest.fixture(scope="session")
def local_asset_server() -> Any:
    """vLLM's server of pictures, which are not served."""
    return names.inside("tests.conftest.local_asset_server")


@pytest.fixture(scope="session")
def hf_runner() -> Any:
    """vLLM's way to compute with transformers; what it would compute is not at hand."""
    pytest.skip("compares with a model of the hub")
