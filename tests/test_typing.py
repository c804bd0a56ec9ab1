"""The public types serve user code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_user_code_is_checked_as_it_should_be() -> None:
    """Every documented way to call the library is accepted, wrong names and types are not."""
    command = [sys.executable, "-m", "mypy", "--strict", "tests/typing/api.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
