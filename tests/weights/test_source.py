"""From what a user calls a model to its checkpoint."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.errors import ModelFileError
from octavo.weights.catalogue import CATALOGUE, DEFAULT_MODEL
from octavo.weights.download import ListedModel, list_models, pull
from octavo.weights.source import open_checkpoint
from tests.support.data import smollm2_path
from tests.support.gguf_bytes import tiny_llama
from tests.support.hf_folders import tiny_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, empty caches, and no way out."""
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def install_default_model(cache: Path) -> Path:
    """The default model where `octavo pull` would put it."""
    entry = CATALOGUE[0]
    path = cache / "models" / entry.folder_name / entry.file_name
    path.parent.mkdir(parents=True)
    try:
        path.hardlink_to(smollm2_path())
    except OSError:  # another file system
        shutil.copy(smollm2_path(), path)
    return path


def cached_snapshot(home: Path) -> Path:
    """An empty snapshot of acme/tiny in the Hugging Face cache."""
    folder = home / "hub" / "models--acme--tiny"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    return folder / "snapshots" / COMMIT


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "smollm2", "SmolLM2-135M-Instruct"])
def test_a_short_name_opens_the_fetched_model(tmp_path: Path, name: str) -> None:
    """Without a network; the banner shows the short name."""
    path = install_default_model(tmp_path / "cache")

    checkpoint = open_checkpoint(name)

    assert checkpoint.name == DEFAULT_MODEL
    assert checkpoint.facts.num_layers == 30
    assert pull(name) == path


def test_paths_open_what_they_lead_to(nowhere: Path) -> None:
    """A file, a folder with a model, a folder with one GGUF file, with and without a dot before."""
    tiny_llama().write(nowhere / "one.gguf")
    (nowhere / "holder").mkdir()
    tiny_llama().write(nowhere / "holder" / "two.gguf")
    tiny_folder(nowhere / "folder")
    tiny_folder(nowhere / "acme" / "local")

    expected = {
        "one.gguf": "one",
        "./one.gguf": "one",
        str(nowhere / "one.gguf"): "one",
        "holder": "two",
        "holder/two.gguf": "two",
        "folder": "folder",
        "./folder/": "folder",
        "acme/local": "local",
    }
    assert expected == {path: open_checkpoint(path).name for path in expected}


def test_a_home_folder_may_be_written_with_a_tilde(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a shell."""
    monkeypatch.setenv("HOME", str(nowhere))
    tiny_folder(nowhere / "model")

    assert open_checkpoint("~/model").name == "model"


def test_a_folder_named_like_a_short_name_needs_a_dot(nowhere: Path, tmp_path: Path) -> None:
    """The short name wins, so that a stray folder does not change what a command means."""
    install_default_model(tmp_path / "cache")
    tiny_folder(nowhere / "smollm2")

    assert open_checkpoint("smollm2").name == DEFAULT_MODEL
    assert open_checkpoint("./smollm2").name == "smollm2"


def test_a_hub_model_in_the_cache_opens_without_the_hub_s_library(tmp_path: Path) -> None:
    """In a fresh interpreter, which would show the import."""
    tiny_folder(cached_snapshot(tmp_path / "hf"))
    code = (
        "import sys; from octavo.weights.source import open_checkpoint;"
        "print(open_checkpoint('acme/tiny').name, 'huggingface_hub' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert done.stdout == "acme/tiny False\n"


def test_a_name_that_leads_nowhere_lists_what_was_tried() -> None:
    """With near short names and the commands that help."""
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint("smolm2:135")

    message = str(caught.value)
    assert "no model 'smolm2:135'. Did you mean smollm2:135m?" in message
    for part in (
        "short names (smollm2:135m)",
        "local folder",
        "org/name",
        "octavo list",
        "octavo pull",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("./missing", "there is no file or folder missing"),
        ("missing.gguf", r"there is no file or folder missing\.gguf"),
        ("/missing/model.gguf", "there is no file or folder /missing"),
        ("./notes.txt", "neither a folder nor a .gguf file"),
        ("./empty", r"empty has neither config\.json nor a \.gguf file"),
        ("./many", r"many holds several models; give the file: a\.gguf, b\.gguf"),
        ("acme/tiny", "HF_HUB_OFFLINE"),
        ("", "no model ''"),
    ],
)
def test_what_cannot_be_opened_says_why(nowhere: Path, model: str, message: str) -> None:
    """In terms of what the user wrote."""
    (nowhere / "notes.txt").touch()
    (nowhere / "empty").mkdir()
    (nowhere / "many").mkdir()
    for name in ("a.gguf", "b.gguf"):
        tiny_llama().write(nowhere / "many" / name)

    error = Exception if model == "acme/tiny" else ModelFileError
    with pytest.raises(error, match=message):
        open_checkpoint(model)


def test_pulling_a_cached_hub_model_offline_is_content_with_it(tmp_path: Path) -> None:
    """It cannot be compared with the hub, but it is there."""
    snapshot = cached_snapshot(tmp_path / "hf")
    tiny_folder(snapshot)

    assert pull("acme/tiny") == snapshot


def test_pulling_a_name_that_means_nothing_is_refused() -> None:
    """A local path cannot be fetched."""
    with pytest.raises(ModelFileError, match="neither a short name"):
        pull("./folder")


def test_the_list_has_the_catalogue_and_what_can_be_served_from_the_hub_s_cache(
    tmp_path: Path,
) -> None:
    """Models of other programs in the same cache are passed over."""
    snapshot = cached_snapshot(tmp_path / "hf")
    tiny_folder(snapshot)
    size = CATALOGUE[0].num_bytes
    num_bytes = sum(file.stat().st_size for file in snapshot.iterdir())

    assert list_models() == [
        ListedModel(DEFAULT_MODEL, size, None),
        ListedModel("acme/tiny", num_bytes, snapshot),
    ]
    assert [model.status for model in list_models()] == ["not fetched", "ready"]

    path = install_default_model(tmp_path / "cache")
    tiny_folder(snapshot, architectures=["ViTModel"])
    assert list_models() == [ListedModel(DEFAULT_MODEL, size, path)]
