"""Fetches one package file with pip, in a process of its own.

Owns the command line, the reading of pip's progress and the translation of its complaints. pip
brings the user's proxies, certificates and mirrors with it. Does not know what is in a package.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from octavo.errors import DownloadError
from octavo.weights.durable import SPACE_ADVICE
from octavo.weights.progress import OnProgress, PullProgress

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_OFFLINE = re.compile(
    "NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError"
    "|Connection refused|Connection reset|Connection aborted|Network is unreachable|timed out"
    "|IncompleteRead|IncompleteDownload|incomplete-download"
)
_BROKEN_OFF = re.compile(r"Wheel '.*' located at .* is invalid")  # an older pip, a short file
_DISK_FULL = re.compile(r"No space left on device|Errno 28|Disk quota exceeded")
FIRST_RAW_PROGRESS = (24, 1)  # the first pip that has --progress-bar raw
LINES_KEPT = 40  # of pip's output, for the message
LOOK_EVERY_S = 0.2  # at the growing file of an older pip


def download_package(package: str, folder: Path, on_progress: OnProgress | None = None) -> Path:
    """Fetch the wheel of `package` (name==version), without dependencies, into the empty `folder`.

    Nothing of pip's output reaches the terminal. Raises DownloadError that says what to try.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"pip is needed to fetch {package}, but {sys.executable} has none. Install it with "
            f"`{sys.executable} -m ensurepip` or `uv pip install pip`"
        )
    with _watched(folder, None if _has_raw_progress() else on_progress):
        code, output = _run(_command(package, folder), folder, on_progress)
    if code != 0:
        raise DownloadError(_explained(package, output))
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip fetched {len(wheels)} files for {package}, expected one wheel")
    return wheels[0]


def _command(package: str, folder: Path) -> list[str]:
    return [
        sys.executable,
        "-P",  # no module from the working directory may pose as pip
        *("-m", "pip", "download"),
        "--no-deps",
        *("--only-binary", ":all:"),  # never run a build script
        "--no-cache-dir",  # the file is kept in our own cache
        "--no-input",
        "--disable-pip-version-check",
        *("--retries", "2"),
        *("--timeout", "15"),
        *("--progress-bar", "raw" if _has_raw_progress() else "off"),
        *("--dest", str(folder)),
        package,
    ]


def _has_raw_progress() -> bool:
    major, minor = (importlib.metadata.version("pip") + ".0").split(".")[:2]
    return (
        major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) >= FIRST_RAW_PROGRESS
    )


def _run(command: list[str], folder: Path, on_progress: OnProgress | None) -> tuple[int, list[str]]:
    """Exit code and last lines. pip ends with us: its next report fails when nobody reads it."""
    kept: deque[str] = deque(maxlen=LINES_KEPT)
    process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        # What pip leaves behind when it is killed lies where the next attempt cleans up.
        env=os.environ | {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"},
    )
    assert process.stdout is not None
    try:
        with process.stdout as lines:
            for line in lines:
                match = _PROGRESS.match(line)
                if match is None:
                    kept.append(line.strip())
                elif on_progress is not None:
                    on_progress(PullProgress("downloading", int(match[1]), int(match[2])))
        return process.wait(), list(kept)
    finally:
        process.kill()
        process.wait()


@contextmanager
def _watched(folder: Path, on_progress: OnProgress | None) -> Iterator[None]:
    """Report the size of what arrives in `folder`, for a pip that does not tell.

    Raises what `on_progress` raises, once pip has ended.
    """
    if on_progress is None:
        yield
        return
    is_over = threading.Event()

    def watch() -> None:
        while True:
            was_over = is_over.wait(LOOK_EVERY_S)
            sizes = [_size(path) for path in folder.rglob("*.whl")]
            on_progress(PullProgress("downloading", max(sizes, default=0), 0))
            if was_over:
                return

    with ThreadPoolExecutor(1, thread_name_prefix="octavo-download") as watcher:
        watching = watcher.submit(watch)
        try:
            yield
        finally:
            is_over.set()
        watching.result()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # pip moves its files
        return 0


def _explained(package: str, output: list[str]) -> str:
    text = "\n".join(output)
    if _DISK_FULL.search(text):
        return f"the disk is full; {package} could not be fetched. {SPACE_ADVICE}"
    errors = [line for line in output if line.startswith("ERROR:")] or output
    said = f" pip says: {' / '.join(errors[-3:])}" if errors else ""
    if _OFFLINE.search(text):
        return (
            f"the package index could not be reached to fetch {package}. Check the network; mirror "
            "and proxy are set as for pip (PIP_INDEX_URL, HTTPS_PROXY). Without a network, give "
            f"the path of a model folder or .gguf file instead of a name.{said}"
        )
    if _BROKEN_OFF.search(text):
        return f"the download of {package} broke off. Check the network and try again.{said}"
    return f"pip could not fetch {package}.{said}"
