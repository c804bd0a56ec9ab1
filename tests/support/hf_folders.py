"""Small folders in Hugging Face's layout: a Llama of one layer, weights all zero, no tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.safetensors_bytes import write_safetensors

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
_LAYER = "model.layers.0"
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (10, 8),
    "model.norm.weight": (8,),
    f"{_LAYER}.input_layernorm.weight": (8,),
    f"{_LAYER}.post_attention_layernorm.weight": (8,),
    f"{_LAYER}.self_attn.q_proj.weight": (8, 8),
    f"{_LAYER}.self_attn.k_proj.weight": (8, 8),
    f"{_LAYER}.self_attn.v_proj.weight": (8, 8),
    f"{_LAYER}.self_attn.o_proj.weight": (8, 8),
    f"{_LAYER}.mlp.gate_proj.weight": (16, 8),
    f"{_LAYER}.mlp.up_proj.weight": (16, 8),
    f"{_LAYER}.mlp.down_proj.weight": (8, 16),
}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def write_json(path: Path, values: Any) -> Path:
    """A JSON file."""
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def tiny_folder(folder: Path, **config: Any) -> Path:
    """config.json and one weight file; `config` adds or replaces keys."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG | config)
    write_safetensors(folder / "model.safetensors", SHAPES)
    return folder


def sharded_folder(folder: Path) -> Path:
    """The same with two weight files and their index."""
    tiny_folder(folder)
    (folder / "model.safetensors").unlink()
    weight_map = {name: SHARDS[index % 2] for index, name in enumerate(SHAPES)}
    for shard in SHARDS:
        shapes = {name: SHAPES[name] for name, file in weight_map.items() if file == shard}
        write_safetensors(folder / shard, shapes)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)
    return folder
