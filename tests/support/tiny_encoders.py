"""Tiny random models that make vectors, made with transformers, and their folders.

As `tiny_models.py` for encoders, classifiers and decoders without a language model's head.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from octavo.config.model_facts import PoolingMethod
from tests.support.tiny_models import randomise
from tests.support.tiny_tokenizer import SENTENCES

VOCAB_SIZE = 300
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
}
_ROBERTA: dict[str, Any] = {
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_MODERN: dict[str, Any] = {
    "local_attention": 16,
    "num_hidden_layers": 5,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "cls_token_id": 0,
    "eos_token_id": 2,
    "sep_token_id": 2,
}
# Specials of the tokenizer have the ids that RoBERTa wants.
SPECIALS = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")


@dataclass(frozen=True)
class EncoderCase:
    """A configuration and a head of transformers; what octavo calls it is in its config.json."""

    config: str
    model: str
    method: PoolingMethod = "first"
    changes: dict[str, Any] = field(default_factory=dict)


CASES = {
    "bert": EncoderCase("BertConfig", "BertModel"),
    "bert_odd_heads": EncoderCase(
        "BertConfig", "BertModel", changes={"hidden_size": 60, "num_attention_heads": 5}
    ),
    "bert_masked_lm": EncoderCase("BertConfig", "BertForMaskedLM"),
    "bert_reranker": EncoderCase(
        "BertConfig", "BertForSequenceClassification", changes={"num_labels": 1}
    ),
    "bert_classifier": EncoderCase(
        "BertConfig", "BertForSequenceClassification", changes={"num_labels": 3}
    ),
    "roberta": EncoderCase("RobertaConfig", "RobertaModel", changes=_ROBERTA),
    "xlm_roberta": EncoderCase("XLMRobertaConfig", "XLMRobertaModel", changes=_ROBERTA),
    "xlm_roberta_reranker": EncoderCase(
        "XLMRobertaConfig",
        "XLMRobertaForSequenceClassification",
        changes=_ROBERTA | {"num_labels": 1},
    ),
    "modernbert": EncoderCase(
        "ModernBertConfig",
        "ModernBertModel",
        changes=_MODERN,
    ),
    "modernbert_classifier": EncoderCase(
        "ModernBertConfig",
        "ModernBertForSequenceClassification",
        "mean",
        _MODERN | {"classifier_pooling": "mean", "num_labels": 2},
    ),
    "qwen3": EncoderCase(
        "Qwen3Config", "Qwen3Model", "last", {"num_key_value_heads": 2, "head_dim": 16}
    ),
    "qwen3_reranker": EncoderCase(
        "Qwen3Config",
        "Qwen3ForSequenceClassification",
        "last",
        {"num_key_value_heads": 2, "head_dim": 16, "num_labels": 1, "pad_token_id": 1},
    ),
    "embedding_gemma": EncoderCase(
        "Gemma3TextConfig",
        "Gemma3TextModel",
        changes={
            "num_key_value_heads": 2,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 20,
            "sliding_window_pattern": 3,
            "use_bidirectional_attention": True,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        },
    ),
    "qwen3_lm": EncoderCase(
        "Qwen3Config", "Qwen3ForCausalLM", "last", {"num_key_value_heads": 2, "head_dim": 16}
    ),
    "llama": EncoderCase("LlamaConfig", "LlamaModel", "last", {"num_key_value_heads": 2}),
}


def make_encoder(name: str, **changes: Any) -> PreTrainedModel:
    """The model in float32 with random weights; `changes` are of its configuration."""
    case = CASES[name]
    config = getattr(transformers, case.config)(
        **{**_SIZES, **case.changes, **changes}, attn_implementation="eager"
    )
    model: PreTrainedModel = getattr(transformers, case.model)(config).eval()
    randomise(model)
    return model


def save_encoder(model: PreTrainedModel, folder: Path, **config: Any) -> Path:
    """What Hugging Face's tools write; `config` adds keys to config.json."""
    model.save_pretrained(folder)
    make_tokenizer: Any = PreTrainedTokenizerFast
    make_tokenizer(
        tokenizer_object=pair_library(),
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
    ).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def as_sentence_transformer(
    folder: Path, mode: str, *, normalizes: bool = True, max_seq_length: int | None = None
) -> Path:
    """Add the files of sentence-transformers: `mode` is a flag of 1_Pooling/config.json."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalizes else [])]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": "" if index == 0 else f"{index}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    flags = ("pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_lasttoken")
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 64} | {flag: flag == mode for flag in flags})
    )
    if max_seq_length is not None:
        (folder / "sentence_bert_config.json").write_text(
            json.dumps({"max_seq_length": max_seq_length, "do_lower_case": False})
        )
    return folder


def add_dense(folder: Path, *, out_features: int) -> tuple[Tensor, Tensor]:
    """Add a module of a small layer to a folder of sentence-transformers: matrix and bias."""
    path = folder / "modules.json"
    modules = json.loads(path.read_text())
    entry = {"idx": 9, "name": "9", "path": "9_Dense", "type": "sentence_transformers.models.Dense"}
    path.write_text(json.dumps([*modules, entry]))
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(out_features, 64, generator=generator) / 8
    bias = torch.randn(out_features, generator=generator)
    (folder / "9_Dense").mkdir()
    config = {
        "in_features": 64,
        "out_features": out_features,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    (folder / "9_Dense" / "config.json").write_text(json.dumps(config))
    save_file(
        {"linear.weight": matrix, "linear.bias": bias}, folder / "9_Dense" / "model.safetensors"
    )
    return matrix, bias


@functools.cache
def pair_library() -> tokenizers.Tokenizer:
    """A WordPiece tokenizer as BERT has it: [CLS] a [SEP] b [SEP], with segments.

    Trained once: training breaks ties at random.
    """
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCAB_SIZE - 20,
        special_tokens=[AddedToken(token, special=True) for token in SPECIALS],
        show_progress=False,
    )
    library.train_from_iterator(SENTENCES, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 2)],
    )
    return library


@torch.inference_mode()
def hidden_states(
    model: PreTrainedModel, token_ids: Sequence[int], second_segment: int = -1
) -> Tensor:
    """After the last layer, norm included where there is one: [num_tokens, hidden_size]."""
    bare: Any = getattr(model, model.base_model_prefix, model)
    output = bare(**_inputs(model, token_ids, second_segment))
    states: Tensor = output.last_hidden_state[0]
    return states


@torch.inference_mode()
def class_scores(
    model: PreTrainedModel, token_ids: Sequence[int], second_segment: int = -1
) -> Tensor:
    """What a classifier gives, before any activation: [num_labels]."""
    any_model: Any = model
    logits: Tensor = any_model(**_inputs(model, token_ids, second_segment)).logits[0]
    return logits


@torch.inference_mode()
def next_logits(model: PreTrainedModel, token_ids: Sequence[int]) -> Tensor:
    """Of a language model after the last token: [vocab_size]."""
    any_model: Any = model
    logits: Tensor = any_model(**_inputs(model, token_ids, -1)).logits[0, -1]
    return logits


def _inputs(
    model: PreTrainedModel, token_ids: Sequence[int], second_segment: int
) -> dict[str, Tensor]:
    inputs = {
        "input_ids": torch.tensor([list(token_ids)]),
        "attention_mask": torch.ones(1, len(token_ids), dtype=torch.long),
    }
    if second_segment >= 0:
        types = [int(place >= second_segment) for place in range(len(token_ids))]
        inputs["token_type_ids"] = torch.tensor([types])
    return inputs
