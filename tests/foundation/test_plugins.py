"""Plugins: entry points are found without looking into each installed package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from octavo.foundation.plugins import installed_plugins

GROUP = "octavo.made_up"


def add_package(folder: Path, name: str, group: str, entry: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")


def names() -> list[str]:
    return [plugin.name for plugin in installed_plugins(GROUP)]


def test_entry_points_of_the_group_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all folders that Python imports from; other groups are nobody's business here."""
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    add_package(tmp_path / "one", "second", GROUP, "b = module:f")
    add_package(tmp_path / "two", "first", GROUP, "a = module:f")
    add_package(tmp_path / "two", "other", "octavo.other", "c = module:f")

    assert names() == ["a", "b"]


def test_an_egg_and_an_archive_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are older ways to install."""
    egg = tmp_path / "old-1.0.egg"
    (egg / "EGG-INFO").mkdir(parents=True)
    (egg / "EGG-INFO" / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: old\nVersion: 1.0\n")
    (egg / "EGG-INFO" / "entry_points.txt").write_text(f"[{GROUP}]\nold = module:f\n")
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        archive.writestr("zipped-1.0.dist-info/METADATA", "Name: zipped\nVersion: 1.0\n")
        archive.writestr("zipped-1.0.dist-info/entry_points.txt", f"[{GROUP}]\nzipped = m:f\n")
    monkeypatch.syspath_prepend(str(egg))
    assert names() == ["old"]
    monkeypatch.syspath_prepend(str(tmp_path / "packages.zip"))
    assert names() == ["old", "zipped"]


def test_what_another_finder_knows_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may bring packages that lie in no folder of sys.path."""
    add_package(tmp_path, "hidden", GROUP, "hidden = module:f")

    class Finder(PathFinder):
        @classmethod
        def find_distributions(cls, context: Any = None) -> Any:
            from importlib.metadata import DistributionFinder  # noqa: PLC0415 - as the caller

            return PathFinder.find_distributions(DistributionFinder.Context(path=[str(tmp_path)]))

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert names() == ["hidden"]


def test_without_a_plugin_the_reader_of_metadata_is_not_imported() -> None:
    code = (
        "import sys; from octavo.foundation.plugins import installed_plugins;"
        f"print(installed_plugins({GROUP!r}), 'importlib.metadata' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["[]", "False"]
