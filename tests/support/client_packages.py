"""Clients of others for the examples, in an environment of their own in the folder of test data.

They want dozens of packages, in versions that need not agree with those of the tests.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from octavo.weights.durable import exclusive_lock
from tests.support.data import REPOSITORY, data_folder

REQUIREMENTS = REPOSITORY / "examples" / "requirements.txt"
TIMEOUT_S = 600


def client_programs() -> Path:
    """The folder of the environment's programs, `python` among them; made once for each list."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = data_folder() / f"clients-{digest}"
    with exclusive_lock(folder.with_suffix(".lock")):
        done = folder / "installed"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            # The list is whole, so nothing is left to be resolved.
            command = [str(folder / "bin" / "pip"), "install", "-q", "--no-deps"]
            subprocess.run([*command, "-r", str(REQUIREMENTS)], check=True, timeout=TIMEOUT_S)
            done.touch()
    return folder / "bin"
