"""Hub names, and the Hugging Face cache as it lies on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import ModelFileError
from octavo.weights.hub_cache import (
    cached_model,
    cached_models,
    choose_gguf,
    hub_cache_folder,
    is_offline,
)
from octavo.weights.hub_names import HubModel, parse_hub_model
from tests.support.gguf_bytes import tiny_llama
from tests.support.hf_folders import SHARDS, sharded_folder, tiny_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = HubModel("acme/tiny")


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty snapshot of acme/tiny, the commit of its branch main."""
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "models--acme--tiny"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    return snapshot


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acme/tiny", HubModel("acme/tiny")),
        ("acme/tiny-1.5B_x", HubModel("acme/tiny-1.5B_x")),
        ("acme/tiny:Q4_K_M", HubModel("acme/tiny", quantisation="Q4_K_M")),
        ("acme/tiny/tiny-q8_0.gguf", HubModel("acme/tiny", file="tiny-q8_0.gguf")),
        ("acme/tiny/q8/tiny.gguf", HubModel("acme/tiny", file="q8/tiny.gguf")),
        ("tiny", None),
        ("acme/tiny/config.json", None),
        ("acme/", None),
        ("/tiny", None),
        ("../tiny", None),
        ("acme/..", None),
        ("acme/tiny/../x.gguf", None),
        ("-acme/tiny", None),
        ("acme/tiny:", None),
        ("a b/tiny", None),
    ],
)
def test_what_a_name_means_on_the_hub(text: str, expected: HubModel | None) -> None:
    """org/name, a quantisation of it or a file of it; nothing that could be a path elsewhere."""
    model = parse_hub_model(text)

    assert model == expected
    assert model is None or str(model) == text


NAMES = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "q8_0/m-q8_0-00001-of-00002.gguf", "README.md"]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("acme/tiny:q4_k_m", "m-Q4_K_M.gguf"),
        ("acme/tiny:Q8_0", "q8_0/m-q8_0-00001-of-00002.gguf"),
        ("acme/tiny/m-Q4_K_S.gguf", "m-Q4_K_S.gguf"),
    ],
)
def test_the_one_file_that_a_name_fits_is_chosen(text: str, chosen: str) -> None:
    """Case does not matter for a quantisation; of a split model it is the first part."""
    model = parse_hub_model(text)
    assert model is not None

    assert choose_gguf(model, [*NAMES, "q8_0/m-q8_0-00002-of-00002.gguf"]) == chosen


@pytest.mark.parametrize("text", ["acme/tiny:Q4_K", "acme/tiny:Q2_K", "acme/tiny/other.gguf"])
def test_a_name_that_fits_no_file_is_refused_with_the_files(text: str) -> None:
    """Q4_K is not Q4_K_M: a part of a word does not count."""
    model = parse_hub_model(text)
    assert model is not None

    with pytest.raises(ModelFileError, match=r"fits no file .* m-Q4_K_M\.gguf, m-Q4_K_S\.gguf"):
        choose_gguf(model, NAMES)


def test_a_name_that_fits_two_files_is_refused_with_the_files() -> None:
    """Nothing is chosen by chance."""
    with pytest.raises(ModelFileError, match="fits 2 files"):
        choose_gguf(HubModel("acme/tiny", "Q4_0"), ["a-Q4_0.gguf", "b-Q4_0.gguf"])


def test_a_whole_snapshot_is_found_by_branch_and_by_commit(snapshot: Path) -> None:
    """And by no other revision."""
    tiny_folder(snapshot)

    assert cached_model(MODEL) == snapshot
    assert cached_model(MODEL, COMMIT) == snapshot
    assert cached_model(MODEL, "v2") is None
    assert cached_model(MODEL, "../../x") is None
    assert cached_model(HubModel("acme/other")) is None


def test_a_snapshot_with_something_missing_does_not_count(snapshot: Path) -> None:
    """An interrupted download: no weights yet, a shard missing, a link to nowhere."""
    assert cached_model(MODEL) is None
    sharded_folder(snapshot)
    assert cached_model(MODEL) == snapshot

    (snapshot / SHARDS[0]).unlink()
    assert cached_model(MODEL) is None
    (snapshot / SHARDS[0]).symlink_to(snapshot / "nowhere")
    assert cached_model(MODEL) is None


def test_a_gguf_file_of_a_snapshot_is_found_alone(snapshot: Path) -> None:
    """The rest of the repository need not be there."""
    path = tiny_llama().write(snapshot / "tiny-Q4_0.gguf")

    assert cached_model(HubModel("acme/tiny", "Q4_0")) == path
    assert cached_model(HubModel("acme/tiny", file="tiny-Q4_0.gguf")) == path
    assert cached_model(HubModel("acme/tiny", "Q8_0")) is None
    assert cached_model(MODEL) is None


def test_half_of_a_split_model_does_not_count(snapshot: Path) -> None:
    """Both parts or nothing."""
    first = tiny_llama().write(snapshot / "tiny-Q4_0-00001-of-00002.gguf")
    assert cached_model(HubModel("acme/tiny", "Q4_0")) is None

    tiny_llama().write(snapshot / "tiny-Q4_0-00002-of-00002.gguf")
    assert cached_model(HubModel("acme/tiny", "Q4_0")) == first


def test_the_list_shows_folders_and_files_by_the_names_that_open_them(snapshot: Path) -> None:
    """One entry for a split model; other things in the cache are passed over."""
    tiny_folder(snapshot)
    for name in ("a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"):
        tiny_llama().write(snapshot / name)
    (hub_cache_folder() / "models--broken").mkdir()
    (hub_cache_folder() / "datasets--acme--words").mkdir()

    assert list(cached_models()) == [
        (MODEL, snapshot),
        (HubModel("acme/tiny", file="a.gguf"), snapshot / "a.gguf"),
        (HubModel("acme/tiny", file="b-00001-of-00002.gguf"), snapshot / "b-00001-of-00002.gguf"),
    ]


def test_the_cache_is_where_the_hub_s_variables_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the special to the general."""
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert hub_cache_folder() == tmp_path / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert hub_cache_folder() == Path("/xdg/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert hub_cache_folder() == tmp_path / "hf" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", "/hub")
    assert hub_cache_folder() == Path("/hub")


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("true", True), ("0", False), ("", False)]
)
def test_offline_is_what_the_hub_s_library_takes_for_it(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool
) -> None:
    """HF_HUB_OFFLINE, or TRANSFORMERS_OFFLINE of old."""
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert is_offline() == expected

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", value)
    assert is_offline() == expected
