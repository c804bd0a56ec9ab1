"""How folders say that a model makes vectors, and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.config.model_facts import PoolingFacts
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.fields import Fields
from octavo.weights.hf_config import facts_from_config, named_architecture
from octavo.weights.hf_families import base_architecture
from octavo.weights.hf_folder import open_folder
from octavo.weights.hf_names import layout_of, renamed
from octavo.weights.hf_pooling import classifier_facts, with_pooling
from tests.support.hf_folders import CONFIG, tiny_folder
from tests.support.random_checkpoint import tensor_of

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def pooling_of(folder: Path, **changes: Any) -> PoolingFacts | None:
    """Of a BERT with these keys in this folder."""
    values = BERT | changes
    config = Fields(values, "config.json")
    facts = facts_from_config(values, "config.json")
    return with_pooling(facts, folder, config, named_architecture(config)).pooling


def write_modules(folder: Path, *types: str, **pooling: Any) -> Path:
    modules = [
        {"path": "" if index == 0 else f"{index}_{kind}", "type": f"any.module.{kind}"}
        for index, kind in enumerate(types)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("BertForMaskedLM", "BertModel"),
        ("RobertaModel", "XLMRobertaModel"),
        ("XLMRobertaForSequenceClassification", "XLMRobertaModel"),
        ("ModernBertForSequenceClassification", "ModernBertModel"),
        ("Qwen3Model", "Qwen3ForCausalLM"),
        ("Qwen3ForSequenceClassification", "Qwen3ForCausalLM"),
        ("Gemma3TextModel", "Gemma3ForCausalLM"),
        ("GPT2Model", "GPT2LMHeadModel"),
        ("LlamaForCausalLM", "LlamaForCausalLM"),
        ("ViTModel", None),
        ("BertForQuestionAnswering", None),
    ],
)
def test_a_head_does_not_hide_what_a_model_is(name: str, base: str | None) -> None:
    """Names of classes with other heads lead to the architecture that we have."""
    assert base_architecture(name) == base


def test_an_encoder_alone_pools_its_first_token(tmp_path: Path) -> None:
    """Where no file of sentence-transformers says more."""
    assert pooling_of(tmp_path) == PoolingFacts(method="first")


def test_modules_say_how_to_pool(tmp_path: Path) -> None:
    """Newer files have a word, older ones a flag for each way; Normalize is one more module."""
    write_modules(tmp_path, "Transformer", "Pooling", pooling_mode="mean")
    by_word = pooling_of(tmp_path)
    write_modules(
        tmp_path,
        "Transformer",
        "Pooling",
        "Normalize",
        pooling_mode_cls_token=False,
        pooling_mode_lasttoken=True,
    )
    by_flag = pooling_of(tmp_path)

    assert by_word == PoolingFacts(method="mean", normalize=False)
    assert by_flag == PoolingFacts(method="last", normalize=True)


@pytest.mark.parametrize(
    ("types", "pooling", "message"),
    [
        (("Transformer", "Pooling"), {"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
        (("Transformer", "Pooling"), {}, "one of: cls, mean, lasttoken"),
        (("Transformer", "LSTM"), {"pooling_mode": "mean"}, "modules of type LSTM"),
    ],
)
def test_a_way_of_pooling_that_we_lack_is_refused(
    tmp_path: Path, types: tuple[str, ...], pooling: dict[str, Any], message: str
) -> None:
    """By name, with what there is."""
    write_modules(tmp_path, *types, **pooling)

    with pytest.raises(UnsupportedModelError, match=message):
        pooling_of(tmp_path)


@pytest.mark.parametrize(
    "text", ["{}", "[3]", "[", '[{"type": "a.Pooling", "path": "../elsewhere"}]', "[{}]"]
)
def test_a_broken_list_of_modules_is_an_error_of_the_file(tmp_path: Path, text: str) -> None:
    """Also one that leads out of the folder."""
    (tmp_path / "modules.json").write_text(text)

    with pytest.raises(CorruptFileError):
        pooling_of(tmp_path)


@pytest.mark.parametrize(
    ("changes", "activation"),
    [
        ({}, "softmax"),
        ({"id2label": {"0": "only"}}, "sigmoid"),
        ({"problem_type": "regression"}, "none"),
        ({"problem_type": "multi_label_classification"}, "sigmoid"),
        (
            {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            "none",
        ),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}},
            "sigmoid",
        ),
    ],
)
def test_a_classifiers_activation_is_vllms_choice(
    tmp_path: Path, changes: dict[str, Any], activation: str
) -> None:
    """What was written for it, the kind of problem, then the number of labels."""
    pooling = pooling_of(tmp_path, architectures=["BertForSequenceClassification"], **changes)

    assert pooling is not None
    assert pooling.activation == activation


def test_labels_keep_their_order() -> None:
    """By number, however the file sorts them."""
    values = BERT | {"id2label": {"1": "dog", "10": "x", "0": "cat"}}
    facts = facts_from_config(BERT, "config.json")
    config = Fields(values, "config.json")
    with pytest.raises(CorruptFileError, match="id2label must have a label for each number"):
        classifier_facts(facts, config, "BertForSequenceClassification")

    values["id2label"] = {"1": "dog", "0": "cat"}
    made = classifier_facts(facts, config, "BertForSequenceClassification")
    assert made.labels == ("cat", "dog")


def test_a_language_model_stays_one(tmp_path: Path) -> None:
    """Unless the folder has modules.json."""
    folder = tiny_folder(tmp_path / "model")
    assert open_folder(folder).facts.pooling is None

    write_modules(folder, "Transformer", "Pooling", "Normalize", pooling_mode="lasttoken")
    assert open_folder(folder).facts.pooling == PoolingFacts(method="last")


def test_keys_of_the_configuration_may_be_replaced(tmp_path: Path) -> None:
    """What the file has otherwise stays."""
    folder = tiny_folder(tmp_path / "model")

    assert open_folder(folder, overrides={"eos_token_id": 5}).facts.eos_token_ids == (5,)
    assert CONFIG["vocab_size"] == open_folder(folder).facts.vocab_size


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"position_embedding_type": "relative_key"}, UnsupportedModelError, "only absolute is"),
        ({"is_decoder": "no", "vocab_size": 0}, CorruptFileError, "vocab_size"),
        (
            {"architectures": ["RobertaModel"], "pad_token_id": 5},
            CorruptFileError,
            "pad_token_id must be 1",
        ),
        (
            {"architectures": ["RobertaModel"], "max_position_embeddings": 2},
            CorruptFileError,
            "leaves no position",
        ),
    ],
)
def test_an_encoder_that_we_cannot_run_is_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    """With the key's name."""
    with pytest.raises(error, match=message):
        facts_from_config(BERT | changes, "config.json")


@pytest.mark.parametrize(
    ("stored", "ours"),
    [
        ("bert.embeddings.LayerNorm.gamma", "model.embed_norm.weight"),
        ("embeddings.LayerNorm.beta", "model.embed_norm.bias"),
        (
            "encoder.layer.3.attention.output.LayerNorm.weight",
            "model.layers.3.post_attention_layernorm.weight",
        ),
        ("encoder.layer.0.output.dense.bias", "model.layers.0.mlp.down_proj.bias"),
        ("bert.pooler.dense.weight", "pooler.dense.weight"),
        ("classifier.weight", "classifier.weight"),
    ],
)
def test_names_of_bert_in_all_their_ages(stored: str, ours: str) -> None:
    """With and without a prefix, with the endings of TensorFlow's files."""
    view = tensor_of(stored, (4,), [0.0] * 4)

    assert [ours] == list(renamed({stored: view}, layout_of("BertModel")))


@pytest.fixture
def bare() -> Callable[[str], str]:
    def name_of(stored: str) -> str:
        view = tensor_of(stored, (4,), [0.0] * 4)
        return next(iter(renamed({stored: view}, layout_of("Qwen3ForCausalLM"))))

    return name_of


def test_a_decoder_saved_without_its_head_has_no_prefix(bare: Callable[[str], str]) -> None:
    """Its tensors are those of the model below the head."""
    assert bare("layers.0.mlp.up_proj.weight") == "model.layers.0.mlp.up_proj.weight"
    assert bare("embed_tokens.weight") == "model.embed_tokens.weight"
    assert bare("norm.weight") == "model.norm.weight"
    assert bare("model.norm.weight") == "model.norm.weight"
