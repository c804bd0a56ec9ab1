"""Check programs of csrc/tests that need no Python: built here, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"


@pytest.mark.parametrize(
    "sources",
    [("tests/test_sampler.cpp", "sampler.cpp"), ("tests/test_kernels.cpp",)],
    ids=["sampler", "kernels"],
)
def test_the_check_program_passes(sources: tuple[str, ...], tmp_path: Path) -> None:
    """With the portable kernels; that all instruction sets give their bits is checked elsewhere."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler is not None, "the extension cannot have been built without a compiler"
    program = tmp_path / "check"
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-pthread"]
    paths = [str(CSRC / source) for source in sources]
    subprocess.run([compiler, *flags, *paths, "-o", str(program)], check=True)

    outcome = subprocess.run([program], capture_output=True, text=True, timeout=240, check=False)

    assert outcome.returncode == 0, outcome.stdout
    assert "ok" in outcome.stdout
