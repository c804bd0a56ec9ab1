"""Packages of npm for tests, fetched once by version into the folder of test data."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from octavo.weights.durable import exclusive_lock
from tests.support.data import data_folder

TIMEOUT_S = 120


def node_folder(package: str) -> Path:
    """A folder whose scripts can import `package` (`name@version`).

    Skips the test where Node 20 or npm is missing.
    """
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.strip().removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"Node 20 is needed, found {version.stdout.strip()}")
    folder = data_folder() / "node" / package.replace("/", "+")
    with exclusive_lock(folder.with_suffix(".lock")):
        done = folder / "installed"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder)]
            subprocess.run([*command, package], check=True, capture_output=True, timeout=TIMEOUT_S)
            done.touch()
    return folder
