"""Downloads from the Hugging Face hub, through its own library.

Owns which files of a repository are fetched and in what order: the small ones first, so that a
model that cannot be served is refused before its weights are on the way. The library is imported
only when something is really fetched; it reads HF_TOKEN, HF_ENDPOINT, HF_HOME and the like itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.errors import DownloadError, ModelFileError
from octavo.weights.checkpoint import CONFIG
from octavo.weights.durable import SPACE_ADVICE, is_disk_full, require_space
from octavo.weights.gguf_parts import part_names
from octavo.weights.hf_config import facts_from_config
from octavo.weights.hf_folder import INDEX, SINGLE, weight_files
from octavo.weights.hub_cache import (
    cached_model,
    choose_gguf,
    hub_cache_folder,
    is_offline,
    snapshot_folder,
)
from octavo.weights.hub_names import HubModel
from octavo.weights.json_file import read_fields
from octavo.weights.progress import OnProgress, PullProgress

SMALL_FILES = (".json", ".jinja")
CODE_FILES = (".py",)  # of models that Octavo lacks; fetching runs nothing


def download_model(
    model: HubModel,
    revision: str | None = None,
    on_progress: OnProgress | None = None,
    *,
    any_architecture: bool = False,
) -> Path:
    """Fetch what is missing; the folder or GGUF file in the hub's cache.

    Raises DownloadError that says what to try, and unless any architecture will do
    UnsupportedModelError before any weight is fetched.
    """
    if is_offline():
        cached = cached_model(model, revision)
        if cached is not None:
            return cached
        raise DownloadError(f"{model} is not in {hub_cache_folder()}, and HF_HUB_OFFLINE is set")

    def fetch(library: Any) -> Path:
        repository = _Repository(library, model, revision, on_progress)
        return repository.fetch(any_architecture=any_architecture)

    return _with_library(model, revision, fetch)


def download_config(model: HubModel, revision: str | None = None) -> Path:
    """Fetch config.json alone, or take it from the hub's cache.

    Raises DownloadError that says what to try.
    """
    return _with_library(
        model,
        revision,
        lambda library: Path(
            library.hf_hub_download(
                model.repository, CONFIG, revision=revision, local_files_only=is_offline()
            )
        ),
    )


def _with_library(model: HubModel, revision: str | None, fetch: Callable[[Any], Path]) -> Path:
    """What `fetch` makes of the hub's library. Its errors become DownloadError."""
    try:
        import huggingface_hub  # noqa: PLC0415 - only when something is fetched
        import huggingface_hub.errors  # noqa: PLC0415
    except ImportError as error:
        message = (
            f"the package huggingface_hub is needed to fetch {model}: pip install huggingface_hub"
        )
        raise DownloadError(message) from error
    library: Any = huggingface_hub  # typed, but not every name that it exports is declared so
    try:
        return fetch(library)
    except (OSError, ValueError, library.errors.HTTPError) as error:
        raise DownloadError(_explained(model, revision, error)) from error


class _Repository:
    """One commit of one repository, and how much of it has arrived."""

    def __init__(
        self, library: Any, model: HubModel, revision: str | None, on_progress: OnProgress | None
    ) -> None:
        self._library = library
        self._model = model
        self._on_progress = on_progress
        info = library.HfApi().model_info(model.repository, revision=revision, files_metadata=True)
        self._commit = info.sha
        self._revision = revision
        self._sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
        self._done = self._total = 0

    def fetch(self, *, any_architecture: bool) -> Path:
        if self._model.wants_gguf:
            return self._fetch_gguf()
        return self._fetch_folder(any_architecture=any_architecture)

    def _fetch_gguf(self) -> Path:
        first = choose_gguf(self._model, self._sizes)
        parts = part_names(first)
        self._require(parts)
        path = self._fetch_all(parts)[0]
        self._note_revision(first)
        return path

    def _fetch_folder(self, *, any_architecture: bool) -> Path:
        if CONFIG not in self._sizes:
            ggufs = sorted(name for name in self._sizes if name.endswith(".gguf"))
            hint = f" Choose one of its GGUF files: {self._model}/{ggufs[0]}" if ggufs else ""
            raise ModelFileError(f"{self._model} has no {CONFIG}.{hint}")
        endings = SMALL_FILES + (CODE_FILES if any_architecture else ())
        small = [n for n in self._sizes if n.endswith(endings) and "/" not in n]
        folder = self._fetch_all(small)[0].parent
        if not any_architecture:
            facts_from_config(read_fields(folder / CONFIG).values, f"{self._model}, {CONFIG}")
        has_index = INDEX in self._sizes
        weights = [path.name for path in weight_files(folder)] if has_index else [SINGLE]
        self._require(weights)
        self._fetch_all(weights)
        self._note_revision(CONFIG)
        return folder

    def _require(self, names: list[str]) -> None:
        missing = [name for name in names if name not in self._sizes]
        if missing:
            raise ModelFileError(f"{self._model} has no {', '.join(missing)}")

    def _fetch_all(self, names: list[str]) -> list[Path]:
        """Several files of the one commit, even when the branch moves on meanwhile."""
        snapshot = snapshot_folder(self._model.repository, self._commit)
        missing = sum(self._sizes[name] for name in names if not (snapshot / name).is_file())
        require_space(hub_cache_folder(), missing, str(self._model))
        self._total += sum(self._sizes[name] for name in names)
        return [self._fetch_file(name) for name in names]

    def _fetch_file(self, name: str) -> Path:
        before = self._done
        path = self._library.hf_hub_download(
            self._model.repository, name, revision=self._commit, tqdm_class=self._bar()
        )
        self._done = before + self._sizes[name]  # a file that was there already moves no bar
        self._report()
        return Path(path)

    def _note_revision(self, name: str) -> None:
        """Let the cache know which commit the branch is, now that all of it is there."""
        self._library.hf_hub_download(self._model.repository, name, revision=self._revision)

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(PullProgress("downloading", self._done, self._total))

    def _bar(self) -> type:
        """A progress bar in the library's sense that draws nothing and reports to us."""
        base: Any = self._library.utils.tqdm
        repository = self

        class SilentBar(base):  # type: ignore[misc]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **(kwargs | {"disable": True}))

            def update(self, n: float | None = 1) -> None:
                repository._done += int(n or 0)
                repository._report()

        return SilentBar


def _explained(model: HubModel, revision: str | None, error: Exception) -> str:
    """What the library's error means for the user."""
    if isinstance(error, OSError) and is_disk_full(error):
        return f"the disk is full; {model} could not be fetched. {SPACE_ADVICE}"
    kind = type(error).__name__
    said = " ".join(str(error).split())[:300]
    if kind == "GatedRepoError":
        return f"{model} is gated: accept its licence on the hub, then set HF_TOKEN. {said}"
    if kind == "RepositoryNotFoundError":
        return f"the hub has no model {model.repository}, or it is private and HF_TOKEN is not set"
    if kind == "RevisionNotFoundError":
        return f"{model.repository} has no revision {revision}"
    return (
        f"{model} could not be fetched: {said or kind}. Check the network, and HF_ENDPOINT if "
        "it is set. Without a network, give the path of a model folder or .gguf file"
    )
