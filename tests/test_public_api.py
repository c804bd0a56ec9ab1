"""What `import octavo` offers, and that it costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import octavo

PUBLIC = {
    "AsyncLLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "ClassificationRequestOutput",
    "CompletionOutput",
    "ConfigError",
    "DeadlineExceededError",
    "EngineConfig",
    "EmbeddingRequestOutput",
    "EngineDeadError",
    "InvalidRequestError",
    "LLM",
    "Logprob",
    "OctavoError",
    "OverloadedError",
    "PoolingParams",
    "PoolingRequestOutput",
    "PromptType",
    "RequestFailedError",
    "RequestMetrics",
    "RequestOutput",
    "RequestOutputKind",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
    "SamplingParams",
    "TextPrompt",
    "TokensPrompt",
    "__version__",
}


def test_the_public_names_are_these() -> None:
    """A name added or taken away is a decision."""
    assert set(octavo.__all__) == PUBLIC
    assert dir(octavo) == sorted(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_can_be_imported(name: str) -> None:
    """And is the same object each time."""
    assert getattr(octavo, name) is getattr(octavo, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match="no attribute 'LMM'"):
        _ = octavo.LMM


def run_fresh(code: str) -> str:
    """The output of a new interpreter."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_the_package_can_be_run() -> None:
    """`python -m octavo` is the command."""
    run = subprocess.run(
        [sys.executable, "-m", "octavo", "--version"], capture_output=True, text=True, check=True
    )

    assert octavo.__version__ in run.stdout


def test_importing_octavo_imports_nothing_else() -> None:
    """A script that only asks for the version starts at once."""
    code = (
        "import sys; import octavo;"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in"
        " ('octavo', 'tokenizers', 'msgspec', 'jinja2', 'asyncio')))"
    )

    assert run_fresh(code) == "['octavo']"


def test_the_front_ends_import_no_native_library() -> None:
    """It is loaded with the first model."""
    code = (
        "import sys; from octavo import LLM, AsyncLLM, SamplingParams;"
        "names = ('octavo._native', 'jinja2', 'llguidance', 'torch');"
        "print([name for name in names if name in sys.modules])"
    )

    assert run_fresh(code) == "[]"
