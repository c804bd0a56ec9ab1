"""Downloads from the Hugging Face hub, through its own library.

Owns which files of a repository are fetched and in what order: the small ones first, so that a model
that cannot be served is refused before its weights are on the way. The library is imported only when
something is really fetched; it knows HF_TOKEN, HF_ENDPOINT, HF_HOME and its other variables itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.errors import DownloadError, ModelFileError
from octavo.foundation.quantities import format_bytes
from octavo.weights.durable import is_disk_full, require_space
from octavo.weights.gguf_checkpoint import part_names
from octavo.weights.hf_config import facts_from_config
from octavo.weights.hf_folder import CONFIG, INDEX, SINGLE
from octavo.weights.hub_cache import HubModel, choose_gguf, hub_cache_folder, is_offline
from octavo.weights.progress import OnProgress, PullProgress

SMALL_FILES = (".json", ".jinja")


def download_model(
    model: HubModel, revision: str | None = None, on_progress: OnProgress | None = None
) -> Path:
    """Fetch what is missing; the folder or GGUF file in the hub's cache.

    Raises DownloadError that says what to try, UnsupportedModelError before any weight is fetched.
    """
    if is_offline():
        raise DownloadError(f"{model} is not in {hub_cache_folder()}, and HF_HUB_OFFLINE is set")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        message = f"the package huggingface_hub is needed to fetch {model}: pip install huggingface_hub"
        raise DownloadError(message) from error
    try:
        return _Repository(huggingface_hub, model, revision, on_progress).fetch()
    except (OSError, ValueError, errors.HTTPError) as error:
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

    def fetch(self) -> Path:
        return self._fetch_gguf() if self._model.wants_gguf else self._fetch_folder()

    def _fetch_gguf(self) -> Path:
        first = choose_gguf(self._model, self._sizes)
        names = [name for name in part_names(first) if name in self._sizes]
        return self._fetch_all(names)[0]

    def _fetch_folder(self) -> Path:
        if CONFIG not in self._sizes:
            ggufs = sorted(name for name in self._sizes if name.endswith(".gguf"))
            hint = f" Choose one of its GGUF files: {self._model}/{ggufs[0]}" if ggufs else ""
            raise ModelFileError(f"{self._model} has no {CONFIG}.{hint}")
        small = [n for n in self._sizes if n.endswith(SMALL_FILES) and "/" not in n]
        folder = self._fetch_all(small)[0].parent
        facts_from_config(_json(folder / CONFIG), f"{self._model}, {CONFIG}")
        if INDEX in self._sizes:
            weight_map = _json(folder / INDEX).get("weight_map")
            weights = sorted(set(weight_map.values())) if isinstance(weight_map, dict) else []
        else:
            weights = [SINGLE]
        missing = [name for name in weights if name not in self._sizes]
        if missing or not weights:
            raise ModelFileError(f"{self._model} has no {', '.join(missing) or SINGLE}")
        self._fetch_all(weights)
        return folder

    def _fetch_all(self, names: list[str]) -> list[Path]:
        self._total += sum(self._sizes[name] for name in names)
        require_space(hub_cache_folder(), self._total - self._done, str(self._model))
        return [self._fetch_file(name) for name in names]

    def _fetch_file(self, name: str) -> Path:
        before = self._done
        path = self._library.hf_hub_download(
            self._model.repository, name, revision=self._revision, tqdm_class=self._bar()
        )
        self._done = before + self._sizes[name]  # files that were there are never counted by a bar
        self._report()
        return Path(path)

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
