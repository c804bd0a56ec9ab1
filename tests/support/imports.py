"""Modules that are imported anew during a test, and as they were after it."""

from __future__ import annotations

import sys

import pytest


def forget_modules(monkeypatch: pytest.MonkeyPatch, *prefixes: str) -> None:
    """Until the test ends, modules whose names begin so count as never imported.

    They leave `sys.modules` and their packages: a package that kept a module of a second import
    would show it to whoever asks for the attribute.
    """
    forgotten = {name: module for name, module in sys.modules.items() if name.startswith(prefixes)}
    known = dict(sys.modules)
    for name in forgotten:
        package, _, leaf = name.rpartition(".")
        monkeypatch.delattr(known[package], leaf, raising=False)
        monkeypatch.delitem(sys.modules, name)
