"""Sound little folders in Hugging Face's layout, that are damaged by the tests of broken files.

A Llama of one layer whose matrices are floats, or the tables of one way to quantise. The numbers in
the tables are random: only what a reader does with them is of interest.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from octavo.weights.quant.bitsandbytes import NF4_NUMBERS
from octavo.weights.stored_tensor import NUM_BITS
from tests.support.hf_folders import write_json
from tests.support.safetensors_bytes import safetensors_bytes
from tests.support.tiny_tokenizer import END, START, tiny_id, tiny_library

SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_VOCAB, _HIDDEN, _INNER = 403, 128, 128
_LAYER = "model.layers.0"
_PROJECTIONS: Mapping[str, tuple[int, int]] = {
    "self_attn.q_proj": (128, _HIDDEN),
    "self_attn.k_proj": (64, _HIDDEN),
    "self_attn.v_proj": (64, _HIDDEN),
    "self_attn.o_proj": (_HIDDEN, 128),
    "mlp.gate_proj": (_INNER, _HIDDEN),
    "mlp.up_proj": (_INNER, _HIDDEN),
    "mlp.down_proj": (_HIDDEN, _INNER),
}
# Ending -> type, shape, bytes.
Table = tuple[str, tuple[int, ...], bytes]
Quantise = Callable[[int, int, random.Random], dict[str, Table]]


def _floats(dtype: str, shape: tuple[int, ...], number: float = 0.02) -> Table:
    """One number everywhere: scales, norms."""
    count = 1
    for size in shape:
        count *= size
    raw = struct.pack("<e" if dtype == "F16" else "<f", number)
    return dtype, shape, (raw[2:] if dtype == "BF16" else raw) * count


def _random(dtype: str, shape: tuple[int, ...], source: random.Random) -> Table:
    """Any codes."""
    num_bits = NUM_BITS[dtype]
    for size in shape:
        num_bits *= size
    return dtype, shape, source.randbytes(num_bits // 8)


def _numbers(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    values = [source.gauss(0, cols**-0.5) for _ in range(rows * cols)]
    return {"weight": ("F32", (rows, cols), struct.pack(f"<{len(values)}f", *values))}


def _awq(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    return {
        "qweight": _random("I32", (cols, rows // 8), source),
        "qzeros": _random("I32", (cols // 32, rows // 8), source),
        "scales": _floats("F16", (cols // 32, rows)),
    }


def _gptq(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    """With act-order."""
    groups = [column % (cols // 32) for column in range(cols)]
    return {
        "qweight": _random("I32", (cols // 8, rows), source),
        "qzeros": _random("I32", (cols // 32, rows // 8), source),
        "scales": _floats("F16", (cols // 32, rows)),
        "g_idx": ("I32", (cols,), struct.pack(f"<{cols}i", *groups)),
    }


def _packed(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    return {
        "weight_packed": _random("I32", (rows, cols // 8), source),
        "weight_scale": _floats("BF16", (rows, cols // 32)),
        "weight_zero_point": _random("I32", (rows // 8, cols // 32), source),
        "weight_shape": ("I64", (2,), struct.pack("<2q", rows, cols)),
    }


def _int8(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    return {
        "weight": _random("I8", (rows, cols), source),
        "weight_scale": _floats("BF16", (rows, 1), 0.001),
        "weight_zero_point": _random("I8", (rows, 1), source),
    }


def _fp8(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    codes = bytes(byte & 0xFB for byte in source.randbytes(rows * cols))  # no NaN
    scales = _floats("F32", (-(-rows // 128), -(-cols // 128)), 0.001)
    return {"weight": ("F8_E4M3", (rows, cols), codes), "weight_scale_inv": scales}


def _nvfp4(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    return {
        "weight_packed": _random("U8", (rows, cols // 2), source),
        "weight_scale": ("F8_E4M3", (rows, cols // 16), bytes([0x30]) * (rows * cols // 16)),
        "weight_global_scale": _floats("F32", (1,), 10.0),
    }


def _mxfp4(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    return {
        "weight_packed": _random("U8", (rows, cols // 2), source),
        "weight_scale": ("U8", (rows, cols // 32), bytes([122]) * (rows * cols // 32)),
    }


def _nf4(rows: int, cols: int, source: random.Random) -> dict[str, Table]:
    count = rows * cols // 64
    state = {
        "shape": [rows, cols],
        "blocksize": 64,
        "nested_blocksize": 256,
        "nested_offset": 0.1,
    }
    raw = json.dumps(state).encode()
    return {
        "weight": _random("U8", (rows * cols // 2, 1), source),
        "weight.absmax": _random("U8", (count,), source),
        "weight.nested_absmax": _floats("F32", (-(-count // 256),)),
        "weight.nested_quant_map": _floats("F32", (256,), 0.5),
        "weight.quant_map": ("F32", (16,), struct.pack("<16f", *NF4_NUMBERS)),
        "weight.quant_state.bitsandbytes__nf4": ("U8", (len(raw),), raw),
    }


def _compressed(layout: str, bits: int) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"num_bits": bits}}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
    }


# Name -> quantization_config, and how a matrix is stored.
FOLDER_BASES: Mapping[str, tuple[dict[str, Any], Quantise]] = {
    "floats": ({}, _numbers),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32}, _awq),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}, _gptq),
    "packed": (_compressed("pack-quantized", 4), _packed),
    "int8": (_compressed("int-quantized", 8), _int8),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, _fp8),
    "nvfp4": (_compressed("nvfp4-pack-quantized", 4), _nvfp4),
    "mxfp4": (_compressed("mxfp4-pack-quantized", 4), _mxfp4),
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, _nf4),
}


def folder_base(name: str, folder: Path, *, sharded: bool = False) -> Path:
    """One of FOLDER_BASES, written; sharded: two weight files with an index."""
    folder.mkdir()
    settings, quantise = FOLDER_BASES[name]
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": _VOCAB,
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0}
        | {"high_freq_factor": 4.0, "original_max_position_embeddings": 32},
        "eos_token_id": tiny_id(END),
        "bos_token_id": tiny_id(START),
    }
    write_json(
        folder / "config.json", config | ({"quantization_config": settings} if settings else {})
    )
    _write_tokenizer(folder)
    tensors = _tensors(quantise)
    if not sharded:
        (folder / SAFETENSORS).write_bytes(_file(tensors))
        return folder
    shards: list[dict[str, Table]] = [{}, {}]
    for place, (tensor, table) in enumerate(tensors.items()):
        shards[place % 2][tensor] = table
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-00002.safetensors"
        (folder / file_name).write_bytes(_file(shard))
        weight_map |= dict.fromkeys(shard, file_name)
    write_json(folder / INDEX, {"metadata": {"total_size": 1}, "weight_map": weight_map})
    return folder


def _tensors(quantise: Quantise) -> dict[str, Table]:
    source = random.Random(1)
    tensors = {
        "model.embed_tokens.weight": _numbers(_VOCAB, _HIDDEN, source)["weight"],
        "lm_head.weight": _numbers(_VOCAB, _HIDDEN, source)["weight"],
        "model.norm.weight": _floats("F16", (_HIDDEN,), 1.0),
        f"{_LAYER}.input_layernorm.weight": _floats("F32", (_HIDDEN,), 1.0),
        f"{_LAYER}.post_attention_layernorm.weight": _floats("BF16", (_HIDDEN,), 1.0),
    }
    for name, (rows, cols) in _PROJECTIONS.items():
        for ending, table in quantise(rows, cols, source).items():
            tensors[f"{_LAYER}.{name}.{ending}"] = table
    return tensors


def _file(tensors: Mapping[str, Table]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    return safetensors_bytes(header, data)


def _write_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(tiny_library().to_str(), encoding="utf-8")
    write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": START,
            "eos_token": {"content": END},
            "tokenizer_class": "LlamaTokenizer",
            "add_bos_token": True,
            "added_tokens_decoder": {
                str(tiny_id(token)): {"content": token, "special": True} for token in (END, START)
            },
            "chat_template": [{"name": "default", "template": "{{ messages[0].content }}"}],
        },
    )
    write_json(
        folder / "generation_config.json",
        {"eos_token_id": [tiny_id(END), 2], "temperature": 0.6, "top_k": 5, "max_new_tokens": 4},
    )
