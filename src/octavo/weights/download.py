"""Fetching models ahead of use, and listing what is there: `octavo pull` and `octavo list`.

Owns where a name leads to: the catalogue, or the Hugging Face hub. Does not know how either is
fetched, and opens no weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelFileError
from octavo.foundation.env import cache_folder
from octavo.weights.catalogue import CATALOGUE, find_entry
from octavo.weights.checkpoint import CONFIG
from octavo.weights.gguf_parts import part_paths
from octavo.weights.hf_config import facts_from_config
from octavo.weights.hub import download_model
from octavo.weights.hub_cache import cached_models
from octavo.weights.hub_names import HubModel, parse_hub_model
from octavo.weights.json_file import read_fields
from octavo.weights.package_folder import installed_path
from octavo.weights.package_model import fetch_package_model
from octavo.weights.progress import OnProgress


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that is at hand, or that can be had by a short name."""

    name: str  # what to call it on the command line
    num_bytes: int
    path: Path | None  # its file or folder; None: not fetched

    @property
    def status(self) -> str:
        """In a word or two, for a table."""
        return "ready" if self.path is not None else "not fetched"


def pull(name: str, on_progress: OnProgress | None = None, *, revision: str | None = None) -> Path:
    """Fetch a model by short name or hub id; its file or folder. Does nothing when it is there.

    A hub model is compared with the hub, and what changed is fetched.
    Raises DownloadError that says what to try, ModelFileError for a name that means nothing.
    """
    entry = find_entry(name)
    if entry is not None:
        return fetch_package_model(entry, cache_folder(), on_progress)
    model = parse_hub_model(name)
    if model is None:
        known = ", ".join(entry.name for entry in CATALOGUE)
        raise ModelFileError(f"{name!r} is neither a short name ({known}) nor a hub id (org/name)")
    return download_model(model, revision, on_progress)


def list_models() -> list[ListedModel]:
    """The catalogue, then models of the Hugging Face cache that can be served."""
    cache = cache_folder()
    known = [ListedModel(e.name, e.num_bytes, installed_path(e, cache)) for e in CATALOGUE]
    return [*known, *_from_hub()]


def _from_hub() -> Iterator[ListedModel]:
    for model, path in cached_models():
        if not _can_be_served(model, path):
            continue
        files = part_paths(path) if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
        yield ListedModel(str(model), sum(file.stat().st_size for file in files), path)


def _can_be_served(model: HubModel, path: Path) -> bool:
    """The cache is shared with other programs, whose models may be of any kind."""
    try:
        if path.is_dir():
            facts_from_config(read_fields(path / CONFIG).values, str(model))
        else:
            part_paths(path)
    except ModelFileError:
        return False
    return True
