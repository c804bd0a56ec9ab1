"""The command line of a machine where nothing was ever fetched or set."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def fresh_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Empty caches and no settings; the folder of the caches."""
    for name in os.environ:
        if name.startswith(("OCTAVO_", "HF_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "octavo"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A command sets up the logging of its process; here it is put back for the next test."""
    root = logging.getLogger("octavo")
    handlers, level, propagate = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    root.propagate = propagate
