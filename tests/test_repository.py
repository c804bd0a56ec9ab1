"""The repository's own rules, as tests: lint, types, layers, sizes, documents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CHECKS = {
    "lint": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "."],
    "types": ["-m", "mypy"],
    "layers": ["tools/check_layers.py"],
    "sizes": ["tools/check_sizes.py"],
    "documents": ["tools/check_docs.py"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_repository_keeps_its_own_rules(name: str) -> None:
    """Every check of the repository passes."""
    run = subprocess.run(
        [sys.executable, *CHECKS[name]], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_serving_path_imports_no_heavy_library() -> None:
    """A fresh interpreter with the server, the scheduler and LLM has neither torch nor numpy."""
    code = (
        "import sys, octavo, octavo.llm, octavo.server.app, octavo.scheduling.scheduler;"
        "bad = {'torch', 'numpy', 'transformers', 'safetensors', 'gguf', 'huggingface_hub'};"
        "print(sorted(bad & set(sys.modules)))"
    )

    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "tests"
    )

    assert run.stdout.strip() == "[]"


def test_help_is_light() -> None:
    """`octavo --help` loads nothing beyond the standard library and the table of commands."""
    code = (
        "import sys, io, contextlib; import octavo.cli.main as m;"
        "o = io.StringIO();"
        "contextlib.redirect_stdout(o).__enter__(); m.main(['--help']);"
        "sys.__stdout__.write(','.join(n for n in sys.modules if n.startswith('octavo')))"
    )

    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "tests"
    )

    allowed = {"octavo", "octavo.cli", "octavo.cli.main", "octavo.errors"}
    assert set(run.stdout.split(",")) - allowed == set()
