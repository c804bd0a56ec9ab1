"""Code in an interpreter of its own, for what changes how modules are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_fresh(code: str, *words: str, folder: Path | None = None) -> tuple[str, str]:
    """What a script prints to standard output and standard error; it must end well."""
    return run_python("-c", code, *words, folder=folder)


def run_python(*words: str, folder: Path | None = None) -> tuple[str, str]:
    """The same for a command line of the interpreter."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout, ended.stderr
