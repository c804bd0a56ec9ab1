"""Hugging Face folders as checkpoints: weight files, and the small files beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import CorruptFileError, ModelFileError, UnsupportedModelError
from octavo.weights.hf_folder import open_folder
from tests.support.hf_folders import SHAPES, SHARDS, sharded_folder, tiny_folder, write_json
from tests.support.safetensors_bytes import write_safetensors

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "tiny-llama")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return sharded_folder(tmp_path / "sharded")


def edit_index(folder: Path, **weight_map: str | None) -> None:
    """Change entries of the index; None removes one."""
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    for name, file_name in weight_map.items():
        index["weight_map"][name] = file_name
        if file_name is None:
            del index["weight_map"][name]
    write_json(folder / INDEX, index)


def test_a_folder_with_one_weight_file(folder: Path) -> None:
    """Its name is the folder's, its tensors are the file's."""
    checkpoint = open_folder(folder)

    assert checkpoint.name == "tiny-llama"
    assert checkpoint.facts.hidden_size == 8
    assert {name: view.shape for name, view in checkpoint.tensors.items()} == SHAPES


def test_a_folder_with_sharded_weights_is_one_model(shards: Path) -> None:
    """The index says which files belong to it, and a stray file does not."""
    write_safetensors(shards / "adapter.safetensors", {"lora": (1,)})

    assert {name: view.shape for name, view in open_folder(shards).tensors.items()} == SHAPES


def test_an_index_that_misses_a_tensor_of_its_files_is_refused(shards: Path) -> None:
    """Index and files must match both ways."""
    edit_index(shards, **{"model.norm.weight": None})

    with pytest.raises(CorruptFileError, match=r"has model\.norm\.weight, .*1 differences"):
        open_folder(shards)


def test_an_index_that_claims_more_than_its_files_have_is_refused(shards: Path) -> None:
    """A tensor that is nowhere."""
    edit_index(shards, **{"lm_head.weight": SHARDS[0]})

    with pytest.raises(CorruptFileError, match=r"does not have lm_head\.weight"):
        open_folder(shards)


def test_an_index_that_names_the_wrong_file_is_refused(shards: Path) -> None:
    """The tensor is there, but elsewhere."""
    edit_index(shards, **{"model.embed_tokens.weight": SHARDS[1]})

    with pytest.raises(CorruptFileError, match="2 differences"):
        open_folder(shards)


def test_a_missing_shard_is_named(shards: Path) -> None:
    """As a file that cannot be read."""
    (shards / SHARDS[1]).unlink()

    with pytest.raises(ModelFileError, match=SHARDS[1]):
        open_folder(shards)


OUTSIDE = ["../x.safetensors", "/x.safetensors", "a/b.safetensors", "x.bin", ".."]


@pytest.mark.parametrize("file_name", OUTSIDE)
def test_an_index_cannot_lead_out_of_its_folder(shards: Path, file_name: str) -> None:
    """Nor to a file of another kind."""
    edit_index(shards, **{"model.norm.weight": file_name})

    with pytest.raises(CorruptFileError, match=r"must name a \.safetensors file of the folder"):
        open_folder(shards)


def test_a_folder_with_pickled_weights_only_is_refused(folder: Path) -> None:
    """Unpickling could run anything."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(ModelFileError, match=r"pytorch_model\.bin is a pickle"):
        open_folder(folder)


def test_the_config_decides_before_any_weight_is_looked_at(tmp_path: Path) -> None:
    """A model that we cannot serve is refused even when its weights are missing."""
    tiny_folder(tmp_path, architectures=["MambaForCausalLM"])
    (tmp_path / "model.safetensors").unlink()

    with pytest.raises(UnsupportedModelError, match="MambaForCausalLM"):
        open_folder(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "nul", '{"a":' * 100_000])
def test_a_broken_config_is_refused(folder: Path, content: str) -> None:
    """By file name."""
    (folder / "config.json").write_text(content, encoding="utf-8")

    with pytest.raises(CorruptFileError, match=r"config\.json"):
        open_folder(folder)


@pytest.mark.parametrize(
    ("prefix", "head"),
    [("language_model.model.", "language_model.lm_head."), ("model.language_model.", "lm_head.")],
)
def test_a_model_that_also_sees_shows_its_decoder_only(
    tmp_path: Path, prefix: str, head: str
) -> None:
    """In the older and the newer layout; the parts for images are left out."""
    text = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    tiny_folder(tmp_path, architectures=["Gemma3ForConditionalGeneration"], text_config=text)
    shapes: dict[str, tuple[int, ...]] = {
        prefix + "norm.weight": (8,),
        head + "weight": (10, 8),
        "vision_tower.patch.weight": (3,),
        "multi_modal_projector.weight": (3,),
    }
    write_safetensors(tmp_path / "model.safetensors", shapes)

    tensors = open_folder(tmp_path).tensors

    assert {name: view.shape for name, view in tensors.items()} == {
        "model.norm.weight": (8,),
        "lm_head.weight": (10, 8),
    }
    assert all(name == view.name for name, view in tensors.items())


def test_eos_ids_are_gathered_from_every_file_that_has_some(folder: Path) -> None:
    """generation_config.json first, then config.json, then the tokenizer's own end."""
    write_json(folder / "generation_config.json", {"eos_token_id": [7, 2]})
    write_json(
        folder / "tokenizer_config.json",
        {
            "eos_token": {"content": "<|end|>", "lstrip": False},
            "added_tokens_decoder": {"8": {"content": "<s>"}, "9": {"content": "<|end|>"}},
        },
    )

    assert open_folder(folder).facts.eos_token_ids == (7, 2, 9)
    assert open_folder(folder).facts.bos_token_id == 1


def test_the_tokenizer_s_own_table_gives_the_id_where_the_config_has_none(folder: Path) -> None:
    """tokenizer.json is looked into for its added tokens."""
    write_json(folder / "tokenizer_config.json", {"eos_token": "</s>"})
    added = [{"id": 5, "content": "<s>", "special": True}, {"id": 6, "content": "</s>"}]
    write_json(folder / "tokenizer.json", {"model": {"vocab": {"a": 0}}, "added_tokens": added})

    assert open_folder(folder).facts.eos_token_ids == (2, 6)


@pytest.mark.parametrize("eos", ["</s>", 2.5, [1, "x"], True, {}])
def test_an_eos_id_that_is_none_is_refused(tmp_path: Path, eos: Any) -> None:
    """An id or a list of ids."""
    with pytest.raises(CorruptFileError, match="eos_token_id must be a token id or a list"):
        open_folder(tiny_folder(tmp_path, eos_token_id=eos))


def test_sampling_defaults_are_those_of_generation_config(folder: Path) -> None:
    """By vLLM's choice of keys; null and what is no sampling parameter are left out."""
    write_json(
        folder / "generation_config.json",
        {
            "temperature": 0.6,
            "top_k": 20,
            "top_p": None,
            "repetition_penalty": 1,
            "max_new_tokens": 99,
            "do_sample": True,
            "transformers_version": "5",
        },
    )

    expected = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.0, "max_new_tokens": 99}
    assert open_folder(folder).facts.generation_defaults == expected


def test_a_sampling_default_in_words_is_refused(folder: Path) -> None:
    """Generation config, key, value."""
    write_json(folder / "generation_config.json", {"temperature": "hot"})

    message = r"generation_config\.json: temperature must be a number, got 'hot'"
    with pytest.raises(CorruptFileError, match=message):
        open_folder(folder)


def test_the_newest_place_of_the_chat_template_wins(folder: Path) -> None:
    """A file of its own, then chat_template.json, then a key of the tokenizer's config."""
    assert open_folder(folder).chat_template is None
    write_json(folder / "tokenizer_config.json", {"chat_template": "oldest"})
    assert open_folder(folder).chat_template == "oldest"
    write_json(folder / "chat_template.json", {"chat_template": "older"})
    assert open_folder(folder).chat_template == "older"
    (folder / "chat_template.jinja").write_text("newest ü", encoding="utf-8")
    assert open_folder(folder).chat_template == "newest ü"


def test_of_several_templates_the_default_one_is_taken(folder: Path) -> None:
    """Some models bring further ones for tools or retrieval."""
    templates = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "plain"},
    ]
    write_json(folder / "tokenizer_config.json", {"chat_template": templates})
    assert open_folder(folder).chat_template == "plain"

    write_json(folder / "tokenizer_config.json", {"chat_template": templates[:1]})
    assert open_folder(folder).chat_template is None


@pytest.mark.parametrize("template", [1, ["plain"], [{"name": "default"}]])
def test_a_template_of_no_known_form_is_refused(folder: Path, template: Any) -> None:
    """By key."""
    write_json(folder / "tokenizer_config.json", {"chat_template": template})

    with pytest.raises(CorruptFileError, match="template"):
        open_folder(folder)
