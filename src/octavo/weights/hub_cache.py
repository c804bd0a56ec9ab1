"""The Hugging Face cache on this machine, read without the hub's library.

Owns the layout of the cache:

    models--<org>--<name>/refs/<branch>           a commit
    models--<org>--<name>/snapshots/<commit>/...  its files, each there only when whole

Does not know names (`hub_names.py`) or the network (`hub.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from octavo.errors import ModelFileError
from octavo.weights.checkpoint import CONFIG
from octavo.weights.gguf_parts import part_paths
from octavo.weights.hf_folder import weight_files
from octavo.weights.hub_names import HubModel, parse_hub_model

_COMMIT = re.compile(r"[0-9a-f]{40}")
DEFAULT_REVISION = "main"


def choose_gguf(model: HubModel, file_names: Iterable[str]) -> str:
    """The one GGUF file of the repository that `model` means; of a split one its first part.

    Raises ModelFileError that lists the files when it is none or more than one.
    """
    names = sorted(name for name in file_names if name.endswith(".gguf"))
    if model.file is not None:
        chosen = [name for name in names if name == model.file]
    else:
        wanted = re.escape(model.quantisation or "")
        # Q4_K must not find Q4_K_M: behind the word no underscore may follow.
        word = re.compile(rf"(?:^|[-._/]){wanted}(?:[-./]|$)", re.IGNORECASE)
        chosen = [n for n in names if word.search(n) and "mmproj" not in n]
    firsts = [name for name in chosen if "-00001-of-" in name or "-of-" not in name]
    if len(firsts) == 1:
        return firsts[0]
    found = f"fits {len(firsts)} files" if firsts else "fits no file"
    listed = ", ".join(names) or "none"
    raise ModelFileError(f"{model} {found} of {model.repository}. Its GGUF files: {listed}")


def cached_model(model: HubModel, revision: str | None = None) -> Path | None:
    """The folder or GGUF file in the cache, None unless all of it is there."""
    snapshot = _snapshot(model.repository, revision or DEFAULT_REVISION)
    if snapshot is None:
        return None
    try:
        if model.wants_gguf:
            path = snapshot / choose_gguf(model, _files(snapshot))
            part_paths(path)
            return path
        return snapshot if _is_whole(snapshot) else None
    except ModelFileError:
        return None


def cached_models() -> Iterator[tuple[HubModel, Path]]:
    """Every model of the cache that is there as a whole, by its default branch."""
    cache = hub_cache_folder()
    for folder in sorted(cache.glob("models--*")) if cache.is_dir() else []:
        repository = folder.name.removeprefix("models--").replace("--", "/", 1)
        model = parse_hub_model(repository)
        snapshot = _snapshot(repository, DEFAULT_REVISION) if model is not None else None
        if model is None or snapshot is None:
            continue
        if _is_whole(snapshot):
            yield model, snapshot
        for name in _files(snapshot):
            if name.endswith(".gguf") and ("-00001-of-" in name or "-of-" not in name):
                yield HubModel(repository, file=name), snapshot / name


def hub_cache_folder() -> Path:
    """HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub: the rules of its library."""
    folder = os.environ.get("HF_HUB_CACHE")
    if folder:
        return Path(os.path.expandvars(folder)).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(os.path.expandvars(home)).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def snapshot_folder(repository: str, commit: str) -> Path:
    """Where the files of a commit are, or will be."""
    return _repository_folder(repository) / "snapshots" / commit


def is_offline() -> bool:
    """Whether the user forbade the network to the hub's library."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in ("1", "ON", "YES", "TRUE")


def _repository_folder(repository: str) -> Path:
    return hub_cache_folder() / ("models--" + repository.replace("/", "--"))


def _snapshot(repository: str, revision: str) -> Path | None:
    commit = revision
    if not _COMMIT.fullmatch(revision):
        reference = _repository_folder(repository) / "refs" / revision
        if ".." in revision or not reference.is_file():
            return None
        commit = reference.read_text(encoding="utf-8", errors="replace").strip()
    snapshot = snapshot_folder(repository, commit)
    return snapshot if _COMMIT.fullmatch(commit) and snapshot.is_dir() else None


def _is_whole(snapshot: Path) -> bool:
    """Whether config and all weights are there; an interrupted download leaves some out."""
    try:
        return (snapshot / CONFIG).is_file() and all(f.is_file() for f in weight_files(snapshot))
    except ModelFileError:
        return False


def _files(snapshot: Path) -> list[str]:
    """Names of a snapshot's files, with their folders; a link to a missing blob does not count."""
    return sorted(
        path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()
    )
